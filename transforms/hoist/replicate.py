"""``replicate``: what callers compute for a body from what they pass it anyway is computed in the body.

An argument moves where all calls of the body compute it alike; each pass moves arguments by one level, into the bodies that are
called, until nothing more can move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from attrs import frozen

from ...ir.arguments import Arg, Ref
from ...ir.calls.call_graph import all_instances
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.errors import NamingError
from ...ir.graph import Call, Get, Graph, Node, Op
from ...ir.meta import Meta
from ...ir.origins import standing_for
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..memory import Memory
from ..shared_bodies import common_meta
from ..transformation import UNLIMITED, Fuel, transformation
from .movable import adjustable, read_of, shared_slots
from .written import Written

__all__ = ["replicate"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    inverse="hoist",
    laws=[
        "no operator runs less often",
        "no body is given what it could compute from what else it is given",
        "with all calls inlined and equal nodes computed once the same operators run as before",
    ],
)
def replicate(
    program: Program, *, only: str | Sequence[str] | None = None, at_most: int | None = None, fuel: Fuel = UNLIMITED
) -> Program:
    """Compute in each body what its callers compute from what else they pass to it.

    Before::

        graph ""           m = aten.rsub.Scalar(mask, 1)
                           y = call layers.0 -> Layer (x, mask, m);  z = call layers.1 -> Layer (y, mask, m)
        graph "Layer"      (x, mask, m)        y = aten.add.Tensor(x, m);  return y

    After::

        graph ""           y = call layers.0 -> Layer (x, mask);  z = call layers.1 -> Layer (y, mask)
        graph "Layer"      (x, mask)           m = aten.rsub.Scalar(mask, 1);  y = aten.add.Tensor(x, m);  return y

    It undoes ``hoist``, and it is what makes pieces of a model independent before it is split: masks and positions are computed
    again in each, and do not cross from one to the other.  An argument of a body goes if

    - all calls of the body compute it by the same operators without effects, from other arguments of the same call, from
      literals, and from state that is one tensor for all of them;
    - between that and the call nothing writes what is read for it, or it, and no region (autocast, gradient modes, vmap) begins
      or ends;
    - the body neither writes it nor returns it or a view of it.

    What the callers do not use any more goes, but for equals of what they still pass: ``eliminate_dead_code`` takes those.
    Bodies of operators, calls with a preserved signature, and parts of a split program stay as they are.

    Args:
        program: a program at any stage.
        only: globs of paths; by default all bodies.  A body is among them if a module that it stands in is; its calls in others
            are changed likewise.
        at_most: how many operators may be computed again for one argument; by default as many as it takes.
        fuel: a rewrite is one argument of a body that is computed in it; bodies in order of first use, arguments in order, level
            by level.

    Returns:
        The program whose bodies compute more, and are given less.

    Raises:
        NamingError: a glob matches no module that is called.

    >>> import purefx as px
    >>> add = px.Node("y", px.Op("toy.add"), (px.Ref("x"), px.Ref("m")))
    >>> body = px.Graph((px.Input("x"), px.Input("m")), (add,), px.Ref("y"))
    >>> made = px.Node("m", px.Op("toy.exp"), (px.Ref("x"),))
    >>> call = px.Node("y", px.Call(px.Frame("a"), "f"), (px.Ref("x"), px.Ref("m")))
    >>> main = px.Graph((px.Input("x"),), (made, call), (px.Ref("y"),))
    >>> replicated = px.replicate(px.Program.of({"": main, "f": body}))
    >>> [node.name for node in replicated.main.nodes], [node.name for node in replicated.graphs["f"].nodes]
    (['y'], ['m', 'y'])
    """
    globs = None if only is None else [only] if isinstance(only, str) else list(only)
    result = program
    while (moved := _one_level(result, globs, at_most, fuel)) is not result:
        result = moved
    return result


def _one_level(program: Program, globs: Sequence[str] | None, at_most: int | None, fuel: Fuel) -> Program:
    facts = _Facts(program)
    moves: dict[str, _Move] = {}
    for name in facts.chosen(globs):
        work = _Matching(facts, name, at_most)
        formals = [formal.name for formal in program.graphs[name].inputs]
        taken = [one for one in formals if work.computes(one) and fuel.burn("replicate", one, "in", repr(name))]
        if taken:
            moves[name] = work.move(taken)
    if not moves:
        return program
    callers = {site.caller for name in moves for site in facts.sites[name]}
    changed = [name for name in program.order if name in moves or name in callers]
    return program.with_graphs({name: _changed(facts, name, moves) for name in changed}).pruned()


@frozen
class _Site:
    """One call of a body."""

    caller: str
    number: int
    node: Node
    known: Mapping[str, Arg]
    """What it passes, by input."""


class _Facts:
    """What is asked of a program before anything moves."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects: Mapping[str, Sequence[NodeEffects]] = program_effects(program)
        self.paths = all_instances(program)
        is_open = adjustable(program)
        self.sites: dict[str, list[_Site]] = {name: [] for name in program.order if name in is_open}
        """The calls of each body whose inputs may change, in order."""
        for name in program.order:
            for number, node in enumerate(program.graphs[name].nodes):
                if type(node.do) is Call and node.do.graph in self.sites:
                    known = dict(zip([one.name for one in program.graphs[node.do.graph].inputs], node.args, strict=True))
                    self.sites[node.do.graph].append(_Site(name, number, node, known))
        self._written: dict[str, Written] = {}
        self._reads: dict[str, Mapping[str, str]] = {}
        self._first: dict[str, Mapping[str, str]] = {}
        self._equal: dict[str, Mapping[str, list[Meta]]] = {}

    @cached_property
    def stacks_matter(self) -> bool:
        """Whether calls with a preserved signature may be flat."""
        return bool(len(self.program.call_signatures))

    def written(self, name: str) -> Written:
        """Return when what memory of a graph is written."""
        if name not in self._written:
            self._written[name] = Written(Memory(self.program, name, self.effects[name]))
        return self._written[name]

    def reads(self, name: str) -> Mapping[str, str]:
        """Return the slots that reads of a graph read in all of its instances."""
        if name not in self._reads:
            self._reads[name] = shared_slots(self.program, self.program.graphs[name], self.paths[name])
        return self._reads[name]

    def first_of(self, name: str) -> Mapping[str, str]:
        """Return the first node of each value that a graph reads, or computes by equal operators, for all such nodes."""
        if name not in self._first:
            reads, first, found = self.reads(name), dict[object, str](), dict[str, str]()
            written = self.written(name)
            for node in self.program.graphs[name].nodes:
                if type(node.do) is Get:
                    found[node.name] = first.setdefault(reads.get(node.name) or f"as {node.do.slot}", node.name)
                elif written.is_the_same_always(node):
                    made = node.using({known: Ref(of) for known in node.refs() if (of := found.get(known, known)) != known})
                    key = Node("", made.do, made.args, made.kwargs, made.stack if self.stacks_matter else ())
                    found[node.name] = first.setdefault(key, node.name)
            self._first[name] = found
        return self._first[name]

    def equal_to(self, name: str) -> Mapping[str, list[Meta]]:
        """Return what meta says of the nodes of a graph that are one value with the first such node."""
        if name not in self._equal:
            metas, found = self.program.graphs[name].metas, dict[str, list[Meta]]()
            for other, first in self.first_of(name).items():
                found.setdefault(first, []).append(metas[other])
            self._equal[name] = found
        return self._equal[name]

    def chosen(self, globs: Sequence[str] | None) -> list[str]:
        """Return the bodies that may get other inputs, of those at some paths."""
        if globs is None:
            return list(self.sites)
        paths = {path for name, places in self.paths.items() for path in places if name != self.program.root}
        for glob in globs:
            if not any(fnmatchcase(path, glob) for path in paths):
                raise NamingError(f"replicate(only={glob!r}) matches no module that is called; those are {sorted(paths)}")
        return [name for name in self.sites if any(fnmatchcase(path, glob) for path in self.paths[name] for glob in globs)]


Key = tuple[str, ...]
"""What several calls pass, by name in the caller of each."""


@frozen
class _Move:
    """What moves into one body."""

    taken: frozenset[str]
    """The inputs that go."""
    nodes: tuple[Node, ...]
    """What the body computes first."""
    used: Mapping[str, frozenset[str]]
    """What that stood for in its callers."""


class _Matching:
    """Finds how all calls of one body compute its inputs."""

    def __init__(self, facts: _Facts, name: str, at_most: int | None) -> None:
        self.facts = facts
        self.name = name
        self.graph: Graph = facts.program.graphs[name]
        self.sites = facts.sites[name]
        self.given = facts.written(name).memory.given
        self.at_most = at_most
        self.found: dict[str, dict[Key, Node]] = {}
        """For each input that can be computed, what that takes: the node of the first call, by what all calls name it."""
        passed: dict[Key, str] = {}
        for formal in self.graph.inputs:
            if (key := self._key([site.known[formal.name] for site in self.sites])) is not None:
                passed.setdefault(key, formal.name)
        self.passed: Mapping[Key, str] = passed
        """The inputs that calls pass values for."""

    def _key(self, args: Iterable[Arg]) -> Key | None:
        names = [arg.name for arg in args if type(arg) is Ref]
        return self._named(names) if len(names) == len(self.sites) else None

    def _named(self, names: Iterable[str]) -> Key:
        # All reads of one tensor are one value, and so is what equal operators compute.
        return tuple([self.facts.first_of(site.caller).get(name, name) for site, name in zip(self.sites, names, strict=True)])

    def computes(self, formal: str) -> bool:
        """Return whether the body can compute an input itself."""
        top = self._key([site.known[formal] for site in self.sites])
        if top is None or formal in self.given or self._is_written(top):
            return False
        found: dict[Key, Node] = {}
        todo = [top]
        while todo:
            key = todo.pop()
            if key in found or (key != top and self._is_given(key)):
                continue
            node = self._alike(key)
            if node is None:
                return False
            found[key] = node
            todo += self._operands(key)
        size = sum(type(node.do) is Op for node in found.values())
        if type(found[top].do) is not Op or (self.at_most is not None and size > self.at_most):
            return False
        self.found[formal] = found
        return True

    def _is_given(self, key: Key) -> bool:
        # State is read where it is used, whether calls pass it or not.
        return key in self.passed and self._read(key) is None

    def _is_written(self, key: Key) -> bool:
        pairs = zip(self.sites, key, strict=True)
        return any(self.facts.written(site.caller).is_written_at(name, site.number) for site, name in pairs)

    def _nodes(self, key: Key) -> list[Node | None]:
        graphs = self.facts.program.graphs
        return [graphs[site.caller].by_name.get(name) for site, name in zip(self.sites, key, strict=True)]

    def _read(self, key: Key) -> str | None:
        # The slot that all of them read.
        slots = {self.facts.reads(site.caller).get(name) for site, name in zip(self.sites, key, strict=True)}
        return slots.pop() if len(slots) == 1 else None

    def _alike(self, key: Key) -> Node | None:
        # What the body computes for it; None if calls differ in that, or it is not theirs to compute.
        nodes = [node for node in self._nodes(key) if node is not None]
        if len(nodes) < len(key):
            return None
        meta = common_meta(nodes[0].meta, [node.meta for node in nodes[1:]])
        equal = [self.facts.equal_to(site.caller).get(name, ()) for site, name in zip(self.sites, key, strict=True)]
        meta = standing_for(meta, [other for found in equal for other in found])
        if (slot := self._read(key)) is not None:
            return Node(nodes[0].name, read_of(slot, self.facts.paths[self.name]), meta=meta)
        for site, node in zip(self.sites, nodes, strict=True):
            if not self.facts.written(site.caller).computes_until(node, site.number):
                return None
            if self.facts.stacks_matter and node.stack != site.node.stack:
                return None
        same = {Node("", node.do, node.args, node.kwargs).with_refs(_anything) for node in nodes}
        return nodes[0].evolve(stack=(), meta=meta) if len(same) == 1 else None

    def _operands(self, key: Key) -> list[Key]:
        refs = [node.refs() for node in self._nodes(key) if node is not None]
        return [self._named(names) for names in zip(*refs, strict=True)]

    def move(self, taken: Sequence[str]) -> _Move:
        """Return what moves into the body for some of its inputs."""
        found = {key: node for formal in taken for key, node in self.found[formal].items()}
        return _Move(frozenset(taken), tuple(self._written_out(found, taken)), self._used(found, taken))

    def _used(self, found: Iterable[Key], taken: Iterable[str]) -> Mapping[str, frozenset[str]]:
        # What calls pass and what that is computed of; a value may be computed a second time for something else.
        used: dict[str, set[str]] = {site.caller: set() for site in self.sites}
        keys = list(found)
        for number, site in enumerate(self.sites):
            nodes, first = self.facts.program.graphs[site.caller].by_name, self.facts.first_of(site.caller)
            moved, names = {key[number] for key in keys}, used[site.caller]
            todo = [arg.name for formal in taken if type(arg := site.known[formal]) is Ref]
            while todo:
                name = todo.pop()
                if name not in names and first.get(name, name) in moved:
                    names.add(name)
                    todo += nodes[name].refs()
        return {caller: frozenset(names) for caller, names in used.items()}

    def _written_out(self, found: Mapping[Key, Node], taken: Sequence[str]) -> list[Node]:
        # In the order of the first caller; inputs that go are called as they were.
        names, nodes = self.graph.names(), list[Node]()
        known = {key: formal for key, formal in self.passed.items() if key not in found or formal in taken}
        called: dict[Key, list[str]] = {}
        for formal in taken:
            called.setdefault(next(iter(self.found[formal])), []).append(formal)
        place = self.facts.written(self.sites[0].caller).position
        for key in sorted(found, key=lambda key: place[key[0]]):
            for name in called.get(key) or [names.fresh(found[key].name)]:
                operands = iter(self._operands(key))
                made = found[key].with_refs(lambda _, operands=operands: Ref(known[next(operands)]))
                nodes.append(made.evolve(name=name))
                known.setdefault(key, name)
        return nodes


def _anything(_: Any) -> Arg:
    return Ref("")


def _changed(facts: _Facts, name: str, moves: Mapping[str, _Move]) -> Graph:
    # A graph that computes inputs of its own, and does not pass those of the bodies that it calls.
    graph = facts.program.graphs[name]
    edit, inputs = Rewriter(graph), graph.inputs
    if name in moves:
        edit.before(-1, *moves[name].nodes)
        inputs = tuple([formal for formal in inputs if formal.name not in moves[name].taken])
    moved: set[str] = set()
    for body, move in moves.items():
        for site in facts.sites[body]:
            if site.caller == name:
                args = [arg for formal, arg in site.known.items() if formal not in move.taken]
                edit.put(site.number, site.node.evolve(args=tuple(args)))
        moved |= move.used.get(name, frozenset())
    return _without(edit.graph(inputs=inputs), moved)


def _without(graph: Graph, moved: set[str]) -> Graph:
    # Without those of some nodes that nothing uses any more.
    used, kept = set(graph.output_refs()), list[Node]()
    for node in reversed(graph.nodes):
        if node.name in used or node.name not in moved:
            used.update(node.refs())
            kept.append(node)
    return graph.with_nodes(reversed(kept))
