"""Module calls of raw traces: one stack for each call, and signatures of calls from their boundary nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from attrs import field, frozen

from ...ir.arguments import Arg, Ref, map_refs
from ...ir.calls.call_graph import bodies_run_by
from ...ir.calls.parts import with_listed
from ...ir.errors import NamingError, UnsupportedProgram
from ...ir.graph import Frame, Get, Graph, Node, Op, Stack, place_of
from ...ir.importing.stacks import TracedStacks, read_place
from ...ir.meta import Meta
from ...ir.names import did_you_mean, is_below, is_path, join, relative, word_of
from ...ir.origins import made_of, standing_in
from ...ir.own_operators import GIVES, TAKES
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Program
from ...ir.rewriter import Relocation
from ...ir.state import reading_place
from ...ir.torch_private import pytree
from ..transformation import transformation

__all__ = ["collect_call_signatures", "normalize_stacks"]

KEY = "nn_module_stack"


@frozen(eq=False)
class Place:
    """The place of a node."""

    frame: Frame | None = None
    """The innermost call around it, as it is now; None in the root."""
    inner: dict[tuple[str, int], Place] = field(factory=dict)
    """The calls that are made here, by module and number as they were."""


class Renumbering:
    """Works out the stacks of one program.

    Args:
        program: a flat program.
        aliases: the path to keep, for each path that is another one of a module.
    """

    def __init__(self, program: Program, aliases: Mapping[str, str]) -> None:
        self.source = program
        self.aliases = aliases
        self.traced = TracedStacks()
        self.graphs: dict[str, Graph] = {}
        self.root = Place()
        self.next: dict[str, int] = {}
        """The next number of a call of each module."""
        self.became: dict[Frame, dict[Frame, None]] = {}
        self._paths: dict[str, str] = {}
        self._known: dict[tuple[Place, Stack], tuple[Place, Stack]] = {}

    def program(self) -> Program:
        """Return the program; the same object if nothing is to do."""
        source = self.source
        todo = [self._graph(source.root, (), self.root)]
        while todo:
            inner = next(todo[-1], None)
            if inner is None:
                todo.pop()
            else:
                todo.append(self._graph(*inner))
        made, signatures = source.with_graphs(self.graphs), self._signatures()
        modules = with_listed(source.modules, self.next, self.traced.types)
        if made is source and signatures is source.call_signatures and modules is source.modules:
            return source
        return made.evolve(call_signatures=signatures, modules=modules)

    def _graph(self, name: str, outer: Stack, place: Place) -> Iterator[tuple[str, Stack, Place]]:
        # Yields the bodies that are to be walked before it goes on, each with the calls around it: as they were, and as they
        # are now.
        graph = self.graphs[name] = self.source.graphs[name]
        nodes: list[Node] = []
        for node in graph.nodes:
            inner, own = self._entered(place, self._raw(node, outer, is_root=place is self.root))
            nodes.append(self._node(node, own, place))
            for body in bodies_run_by(node):
                if body not in self.graphs:
                    yield body, (*outer, *self._absolute(node.stack, outer)), inner
        self.graphs[name] = graph.with_nodes(nodes)

    def _raw(self, node: Node, outer: Stack, *, is_root: bool) -> Stack:
        raw = node.meta.get(KEY) if is_root else None
        read = self.traced.read(raw) if isinstance(raw, Mapping) else ()
        return read or self._absolute(node.stack, outer)

    def _absolute(self, stack: Stack, outer: Stack) -> Stack:
        return Relocation(partial(join, outer[-1].path)).stack(stack) if outer else stack

    def _entered(self, start: Place, stack: Stack) -> tuple[Place, Stack]:
        """Return where a stack of calls leads from a place, and its calls as they are now."""
        found = self._known.get((start, stack))
        if found is None:
            place, own = start, list[Frame]()
            met: set[Frame] = set()
            for frame in stack:
                if frame not in met:  # a call is not made inside itself
                    met.add(frame)
                    place = self._call(place, frame)
                    assert place.frame is not None
                    own.append(place.frame)
            found = self._known[start, stack] = (place, tuple(own))
        return found

    def _call(self, around: Place, frame: Frame) -> Place:
        key = (frame.path, frame.call)
        place = around.inner.get(key)
        if place is None:
            path = self._path(frame.path)
            number = self.next.get(path, 0)
            self.next[path] = number + 1
            place = around.inner[key] = Place(Frame(path, number))
            self.became.setdefault(Frame(*key), {})[Frame(path, number)] = None
        return place

    def _path(self, path: str) -> str:
        place = self._paths.get(path)
        if place is None:
            place = read_place(path) or path
            above = place
            while above and above not in self.aliases:
                above = above.rpartition(".")[0]
            if above:
                place = self.aliases[above] + place[len(above) :]
            self._paths[path] = place
        return place

    def _node(self, node: Node, own: Stack, place: Place) -> Node:
        if place.frame is not None:
            outer = place.frame.path
            own = Relocation(lambda path: relative(path, outer)).stack(own)
        do = node.do
        if type(do) is Get and own != node.stack and own and place is self.root:
            do = self._read(do, own)
        meta: Any = node.meta
        if KEY in meta:
            meta = MappingProxyType({key: value for key, value in meta.items() if key != KEY})
        return node.evolve(do=do, stack=node.stack if own == node.stack else own, meta=meta)

    def _read(self, do: Get, stack: Stack) -> Get:
        if is_below(do.slot, stack[-1].path) or do.slot not in self.source.state:
            return do
        depth, slot = reading_place(self.source.state, do.slot, stack)
        return Get(slot) if depth == len(stack) else do

    def _signatures(self) -> Any:
        signatures = self.source.call_signatures
        moved = {frame: list(self.became.get(frame, ())) or [self._unmade(frame)] for frame in signatures}
        if all(found == [frame] for frame, found in moved.items()):
            return signatures
        return pmap({new: signatures[frame] for frame, found in moved.items() for new in found})

    def _unmade(self, frame: Frame) -> Frame:
        # The signature of a call that no node is in.
        path = self._path(frame.path)
        number = self.next.get(path, 0)
        self.next[path] = number + 1
        return Frame(path, number)


@transformation(
    proven=True,
    requires={"flat"},
    laws=["nodes of one call stay in one call", "calls of a module are numbered from 0 without gaps, in the order of the nodes"],
)
def normalize_stacks(program: Program, *, aliases: Mapping[str, str] | torch.nn.Module | None = None) -> Program:
    """Write the module stacks of all nodes in one way.

    Before::

        y = aten.relu.default(x)   in L['self'].act@3
        z = aten.relu.default(y)   in other            # the same module, under another name
        w = aten.neg.default(z)    # meta has nn_module_stack: {"L__self___up": ("L['self'].up[0]", Up)}

    After, with ``aliases={"other": "act"}``::

        y = aten.relu.default(x)   in act
        z = aten.relu.default(y)   in act@1
        w = aten.neg.default(z)    in up.0

    A stack in meta (``nn_module_stack``, as any tracer spells it) is read by a grammar and takes the place of the node's own;
    a part of one that makes no sense is dropped, and text is never evaluated.  A call that is made inside itself is left out,
    and one that two calls seem to make is two calls.  What reads state below a module that is called otherwise then names it
    there.  Preserved call signatures move with their calls.

    Args:
        program: a flat program.
        aliases: for paths that lead to a module which has another path too, that path; or the original module, which is asked
            for them.  What is below an alias is an alias.  A program does not know them by itself: equal state is no proof.

    Returns:
        The program with normal stacks; the same object if they are.

    Raises:
        PipelineError: the program calls modules.
        NamingError: an alias names no module of the program.
        TypeError: ``aliases`` is neither a mapping of paths nor a module.

    >>> import purefx as px
    >>> nodes = [px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("L['self'].act", 3),))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), ())})
    >>> px.normalize_stacks(program).main.nodes[0].stack
    (Frame(path='act', call=0),)
    """
    return Renumbering(program, _checked(program, aliases)).program()


def _checked(program: Program, aliases: object) -> dict[str, str]:
    if aliases is None:
        return {}
    if isinstance(aliases, torch.nn.Module):
        return _of_module(aliases)
    if not isinstance(aliases, Mapping):
        raise TypeError(f"normalize_stacks(aliases=) takes a mapping of paths, or the module, not a {type(aliases).__name__}")
    given: Mapping[Any, Any] = aliases
    known = {module.path for module in program.modules}
    known.update(frame.path for _, node in program.nodes() for frame in node.stack)
    for path in (*given, *given.values()):
        if not is_path(path) or path not in known:
            raise NamingError(f"normalize_stacks(aliases=): the program has no module {path!r}{did_you_mean(path, known)}")
    return {alias: _end(alias, given) for alias in given}


def _end(alias: str, given: Mapping[str, str]) -> str:
    seen = [alias]
    while seen[-1] in given:
        seen.append(given[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise NamingError(f"normalize_stacks(aliases=): {' is '.join(map(repr, seen))}: one of them must be the path to keep")
    return seen[-1]


def _of_module(module: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for path, inner in module.named_modules(remove_duplicate=False):
        kept = first.setdefault(id(inner), path)
        if kept != path:
            found[path] = kept
    return found


TRACEPOINT = "higher_order._export_tracepoint"

BOUNDARIES = {"module_call_inputs": TAKES, "module_call_outputs": GIVES}


@transformation(
    proven=True,
    requires={"flat"},
    laws=["no tracepoint is left", "each traced call has a signature, and its nodes are in it"],
)
def collect_call_signatures(program: Program, *, specs: Mapping[str, Any] | None = None) -> Program:
    """Turn tracepoints into preserved call signatures.

    Before::

        t = higher_order._export_tracepoint(x, kind="module_call_inputs", path="sub")
        a = operator.getitem(t, 0)
        y = aten.relu.default(a)
        u = higher_order._export_tracepoint(y, kind="module_call_outputs", path="sub")
        b = operator.getitem(u, 0)
        z = aten.neg.default(b)

    After::

        sub_takes = purefx.takes(x)     in sub
        y = aten.relu.default(x)        in sub
        sub_gives = purefx.gives(y)     in sub
        z = aten.neg.default(y)
        signature sub: in_spec ((*,), {}), out_spec *

    ``torch.export`` puts such nodes around the modules whose signature it is asked to preserve; so does ``make_fx`` under its
    hooks.  Nodes between the two without a stack are put into the call; calls of a module are numbered in their order where
    stacks do not say.

    Args:
        program: a flat program.
        specs: the pytrees of arguments and result of each module, by path: a dict with ``in_spec`` and ``out_spec``, as torch's
            hooks fill it, or a ``CallSignature``.  Without them a call takes its leaves by position, and gives one value, or a
            tuple of several.

    Returns:
        The program with the signatures; the same object if it has no tracepoint.

    Raises:
        UnsupportedProgram: a tracepoint has no partner, or its result is used whole.
        NamingError: a pytree does not have the leaves of the call, or is given for a module without tracepoints.
        PipelineError: the program calls modules.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> collect_call_signatures(program) is program
    True
    """
    if not any(map(is_tracepoint, program.main.nodes)):
        if specs:
            raise NamingError(f"the program has no tracepoint, and specs= refers to {', '.join(map(repr, specs))}")
        return program
    return _Collecting(program, specs or {}).program()


def is_tracepoint(node: Node) -> bool:
    """Return whether a node marks the arguments or the results of a module call.

    >>> is_tracepoint(Node("t", Op("toy.neg")))
    False
    """
    return type(node.do) is Op and node.do.name == TRACEPOINT


class _Collecting:
    """One walk over the root, with the calls that are open."""

    def __init__(self, program: Program, specs: Mapping[str, Any]) -> None:
        self.source = program
        self.specs = specs
        graph = program.main
        self.names = graph.names()
        self.leaves: dict[str, tuple[Arg, ...]] = {}
        """What each tracepoint was given."""
        self.known: dict[str, Arg] = {}
        self.gone: dict[str, list[Meta]] = {}
        """What stands for a projection of a tracepoint."""
        self.open: list[tuple[Frame, int]] = []
        """The calls around, each with the count of its arguments."""
        self.counts: dict[str, int] = {}
        self.signatures: dict[Frame, CallSignature] = {}

    def program(self) -> Program:
        """Return the program without tracepoints."""
        graph = self.source.main
        nodes = [made for node in graph.nodes if (made := self._node(node)) is not None]
        if self.open:
            raise UnsupportedProgram(
                f"the call of {self.open[-1][0].path!r} has a tracepoint for its arguments, and none for its result"
            )
        unused = [path for path in self.specs if path not in self.counts]
        if unused:
            raise NamingError(
                f"specs= refers to {unused[0]!r}, and no tracepoint does; there are {', '.join(map(repr, self.counts))}"
            )
        root = Graph(standing_in(graph.inputs, self.gone), standing_in(nodes, self.gone), map_refs(graph.output, self._use))
        signatures = pmap({**self.source.call_signatures, **self.signatures})
        return self.source.with_main(root, call_signatures=signatures, modules=with_listed(self.source.modules, self.counts))

    def _use(self, ref: Any) -> Arg:
        if type(ref) is not Ref:
            return ref
        if ref.name in self.leaves:
            raise UnsupportedProgram(f"the result of the tracepoint {ref.name} is used whole; use operator.getitem of it")
        return self.known.get(ref.name, ref)

    def _node(self, node: Node) -> Node | None:
        if is_tracepoint(node):
            return self._tracepoint(node)
        whole, index = node.projection or ("", 0)
        leaves = self.leaves.get(whole, ())
        if -len(leaves) <= index < len(leaves):
            leaf = self.known[node.name] = leaves[index]
            if type(leaf) is Ref:
                self.gone.setdefault(leaf.name, []).append(node.meta)
            return None
        made = node.with_refs(self._use)
        stack = made.stack
        for frame, _ in self.open:
            stack = stack if frame in stack else _with_call(stack, frame)
        return made if stack is made.stack else Node(made.name, made.do, made.args, made.kwargs, stack, made.meta)

    def _tracepoint(self, node: Node) -> Node:
        told = dict(node.kwargs)
        path, kind = told.get("path"), told.get("kind")
        if type(path) is not str or not path or kind not in BOUNDARIES:
            raise UnsupportedProgram(
                f"{place_of(node)}: a tracepoint has a path and a kind, module_call_inputs or module_call_outputs"
            )
        leaves = self.leaves[node.name] = tuple([map_refs(arg, self._use) for arg in node.args])
        frame = self._entered(node, path, len(leaves)) if BOUNDARIES[kind] is TAKES else self._left(node, path, leaves)
        stack = node.stack
        for outer in (*[outer for outer, _ in self.open], frame):
            stack = stack if outer in stack else _with_call(stack, outer)
        word = BOUNDARIES[kind].name.rpartition(".")[2]
        name, inside = self.names.fresh(word_of(f"{path}.{word}")), stack[: stack.index(frame) + 1]
        return Node(name, BOUNDARIES[kind], leaves, (), inside, made_of([node.meta]))

    def _entered(self, node: Node, path: str, count: int) -> Frame:
        number = self.counts.get(path, 0)
        self.counts[path] = number + 1
        frame = next((frame for frame in node.stack if frame.path == path), Frame(path, number))
        self.open.append((frame, count))
        return frame

    def _left(self, node: Node, path: str, leaves: tuple[Arg, ...]) -> Frame:
        if not self.open or self.open[-1][0].path != path:
            inside = f"the call of {self.open[-1][0].path!r}" if self.open else "no call"
            raise UnsupportedProgram(f"{place_of(node)}: it ends the call of {path!r}, and stands in {inside}")
        frame, count = self.open.pop()
        self.signatures[frame] = self._signature(path, count, len(leaves))
        return frame

    def _signature(self, path: str, takes: int, gives: int) -> CallSignature:
        given = self.specs.get(path)
        if given is None:
            one: Any = 0 if gives == 1 else (0,) * gives
            return CallSignature(pytree.tree_structure(((0,) * takes, {})), pytree.tree_structure(one))
        made = given if isinstance(given, CallSignature) else None
        if made is None and isinstance(given, Mapping) and {"in_spec", "out_spec"} <= set(given):
            made = CallSignature(given["in_spec"], given["out_spec"])
        if made is None:
            raise NamingError(
                f"specs[{path!r}] is a dict with in_spec and out_spec, or a CallSignature, not {type(given).__name__}"
            )
        for what, spec, count in (("takes", made.in_spec, takes), ("gives", made.out_spec, gives)):
            if getattr(spec, "num_leaves", None) != count:
                raise NamingError(
                    f"the call of {path!r} {what} {count} values, and its pytree has {getattr(spec, 'num_leaves', 'no')} leaves"
                )
        return made


def _with_call(stack: tuple[Frame, ...], frame: Frame) -> tuple[Frame, ...]:
    # Around the calls of what is below the module, inside the others.
    depth = next((depth for depth, inner in enumerate(stack) if is_below(inner.path, frame.path)), len(stack))
    return (*stack[:depth], frame, *stack[depth:])
