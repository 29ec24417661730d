"""``observe``: what inner modules give becomes a further output of the program.

The values travel through the bodies that the calls stand in; a body that several modules share gives them in all of its calls,
and callers take what they need.  For calibration, for features of inner layers, for looking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import evolve, frozen

from ..ir.arguments import Ref
from ..ir.calls.parts import part_names
from ..ir.effects.resolved import program_effects
from ..ir.errors import NamingError, UnsupportedProgram
from ..ir.graph import Call, Frame, Graph, Node
from ..ir.names import Names, did_you_mean, join
from ..ir.operators import GETITEM, op_of
from ..ir.program import Program
from ..ir.signature import UserOutput
from ..ir.torch_private import pytree
from .cleanup import infer
from .inline import inline
from .outline import outline

__all__ = ["observe"]

Chain = tuple[str, ...]
"""The nodes that call one another, from a graph down to the call that is observed."""


@frozen
class Observed:
    """One call that is observed."""

    name: str
    """The path of the module; with ``@1`` for its second call."""
    chain: Chain


def observe(program: Program, paths: str | Sequence[str]) -> Program:
    """Let a program return what inner modules give: ``(result, {path: value})``.

    Before::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z,)

    After ``observe(program, "up")``::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z, y)      # (z, {"up": y})

    A module gives the values that the rest of the program uses of it: what its ``forward`` returned, as far as a trace tells it
    (a tuple if there are several; of a module exported with ``preserve_module_call_signature`` exactly what it returned).
    A value that the program writes somewhere is copied where the module gives it, otherwise it is the tensor itself, as a forward
    hook gets it.  A module that is called again is ``path@1``, ``path@2`` ..., in the order of the calls.

    Laws: what the program gave before, and what it writes, is what it was; what is observed is what a forward hook of eager gets.

    Args:
        program: flat, or a tree with shared bodies; before it is split.
        paths: globs of module paths, such as ``layers.*.mlp``.

    Returns:
        The program with further outputs, flat if it was flat.

    Raises:
        NamingError: a glob matches no module that is called, or none that gives a value.
        UnsupportedProgram: the program is split, or a module stands inside of one whose call signature is preserved.
        TypeError: ``paths`` is no glob.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> program = px.transform(px.import_ep(torch.export.export(model, (torch.ones(1, 2),))))
    >>> result, seen = px.lower(px.observe(program, "0"))(torch.ones(1, 2))
    >>> result.shape, {path: tuple(value.shape) for path, value in seen.items()}
    (torch.Size([1, 3]), {'0': (1, 3)})
    """
    globs = [paths] if isinstance(paths, str) else list(paths)
    if not all(isinstance(glob, str) for glob in globs):
        raise TypeError(f"observe takes globs of module paths, such as 'layers.*.mlp', not {paths!r}")
    if part_names(program):
        raise UnsupportedProgram("observe takes a program before it is split: join it, observe it, and split it again")
    is_tree = any(type(node.do) is Call for _, node in program.nodes())
    tree = program if is_tree else outline(program)
    found = _found(tree, globs)
    result = infer(_Threading(tree, found).observed()) if found else tree
    return result if is_tree else inline(result)


def _found(program: Program, globs: Sequence[str]) -> list[Observed]:
    # The calls that are observed, in the order in which they run.
    met: Counter[str] = Counter()
    used: set[str] = set()
    found: list[Observed] = []
    todo: list[tuple[str, str, Chain]] = [(program.root, "", ())]
    while todo:
        graph, path, chain = todo.pop()
        if chain:
            node = _last(program, chain)
            number = met[path] - (1 if node.instance.part else 0)
            met[path] = number + 1
            matching = [glob for glob in globs if fnmatchcase(path, glob)]
            if matching and _given(program.graphs[graph]):
                used.update(matching)
                found.append(Observed(f"{path}@{number}" if number else path, chain))
        inner = [(node.do, node.name) for node in program.graphs[graph].callers if type(node.do) is Call]
        todo += [(call.graph, join(path, call.instance.path), (*chain, name)) for call, name in reversed(inner)]
    for glob in globs:
        if glob not in used:
            raise NamingError(f"observe: no module {glob!r} is called that gives a value{did_you_mean(glob, met)}")
    return found


def _last(program: Program, chain: Chain) -> Call:
    graph = program.main
    call = None
    for name in chain:
        call = graph.by_name[name].do
        assert type(call) is Call
        graph = program.graphs[call.graph]
    assert call is not None
    return call


def _given(body: Graph) -> list[int]:
    # Which results of a body are values, by number.
    results = body.output if type(body.output) is tuple else (body.output,)
    return [number for number, result in enumerate(results) if type(result) is Ref]


class _Threading:
    """Gives values through the bodies that they are made in."""

    def __init__(self, program: Program, found: Sequence[Observed]) -> None:
        self.program = program
        self.found = found
        self.copies = any(does.writes or does.writes_slots for effects in program_effects(program).values() for does in effects)
        self.wanted: dict[str, dict[Chain, None]] = {}
        """What each graph gives beside its results, as chains below it."""
        for observed in found:
            self._want(observed)
        self.made: dict[str, dict[Chain, list[Ref]]] = {}
        """The values of each chain in the graph that it begins in."""

    def _want(self, observed: Observed) -> None:
        graph, path = self.program.root, ""
        for depth, name in enumerate(observed.chain):
            self.wanted.setdefault(graph, {})[observed.chain[depth:]] = None
            call = self.program.graphs[graph].by_name[name].do
            assert type(call) is Call
            path = join(path, call.instance.path)
            if depth + 1 < len(observed.chain) and Frame(path, call.instance.call) in self.program.call_signatures:
                raise UnsupportedProgram(
                    f"{observed.name} cannot be observed: it stands in {path}, whose call signature is preserved, so it gives "
                    f"nothing else; observe {path}, or export without preserve_module_call_signature"
                )
            graph = call.graph

    def program_of(self, graphs: Mapping[str, Graph]) -> Program:
        """Return the program with graphs whose extra results the root returns."""
        program = self.program.with_graphs(graphs)
        made = self.made[program.root]
        values = [made[observed.chain] for observed in self.found]
        extra = [value for each in values for value in each]
        main = program.main
        main = Graph(main.inputs, main.nodes, (*main.output, *extra))
        signature = evolve(
            program.signature,
            outputs=(*program.signature.outputs, *(UserOutput() for _ in extra)),
            out_spec=self._spec(values),
        )
        return program.with_main(main, signature=signature)

    def _spec(self, values: Sequence[Sequence[Ref]]) -> Any:
        inner: dict[str, Any] = {}
        for observed, each in zip(self.found, values, strict=True):
            old = inner.get(observed.name, ())
            inner[observed.name] = (*old, *each)
        leaves = {name: each[0] if len(each) == 1 else each for name, each in inner.items()}
        was = self.program.signature.out_spec
        given = pytree.tree_structure(leaves)
        if was is None:
            was = pytree.tree_structure(tuple(0 for spec in self.program.signature.outputs if isinstance(spec, UserOutput)))
        return pytree.treespec_tuple([was, given])

    def observed(self) -> Program:
        """Return the program with further outputs."""
        program = self.program
        graphs = {
            name: self._threaded(name)
            for name in program.bottom_up
            if name in self.wanted or not self.wanted.keys().isdisjoint(program.graphs[name].callees)
        }
        return self.program_of(graphs)

    def _threaded(self, name: str) -> Graph:
        graph, wanted = self.program.graphs[name], self.wanted.get(name, {})
        names, nodes = graph.names(), list[Node]()
        made: dict[Chain, list[Ref]] = {}
        for node in graph.nodes:
            chains = [chain for chain in wanted if chain[0] == node.name]
            grows = type(node.do) is Call and node.do.graph in self.wanted
            nodes += self._called(node, chains, names, made) if chains or grows else [node]
        self.made[name] = {chain: made[chain] for chain in wanted}
        results = graph.output if type(graph.output) is tuple else (graph.output,)
        extra = [ref for chain in wanted for ref in made[chain]]
        output = graph.output if name == self.program.root or not extra else (*results, *extra)
        return Graph(graph.inputs, tuple(nodes), output)

    def _called(self, node: Node, chains: Sequence[Chain], names: Names, made: dict[Chain, list[Ref]]) -> list[Node]:
        # A call with the values behind it that are taken out of its results.
        assert type(node.do) is Call
        body = self.program.graphs[node.do.graph]
        single = type(body.output) is not tuple
        meta = {key: value for key, value in node.meta.items() if key != "val"}
        grows = node.do.graph in self.wanted
        call = node.evolve(name=names.fresh(node.name), meta=meta) if grows and single else node
        if grows and not single:
            call = node.evolve(meta=meta)
        added = (
            [Node(node.name, GETITEM, (Ref(call.name), 0), meta=node.meta, stack=node.stack)] if call.name != node.name else []
        )
        given = self._results(node.do.graph)
        for chain in chains:
            if len(chain) == 1:
                numbers, is_new = _given(body), True
            else:
                start = given[chain[1:]]
                numbers, is_new = list(range(start, start + len(self.made[node.do.graph][chain[1:]]))), False
            for number in numbers:
                if single and len(chain) == 1:
                    ref = Ref(node.name)
                else:
                    ref = Ref(names.fresh("getitem"))
                    added.append(Node(ref.name, GETITEM, (Ref(call.name), number), stack=node.stack))
                if is_new and self.copies:
                    copy = Node(names.fresh("clone"), op_of(torch.ops.aten.clone.default), (ref,), stack=node.stack)
                    added.append(copy)
                    ref = Ref(copy.name)
                made.setdefault(chain, []).append(ref)
        return [call, *added]

    def _results(self, name: str) -> dict[Chain, int]:
        # Where the values of each chain begin among the results of a body.
        body = self.program.graphs[name]
        count = len(body.output) if type(body.output) is tuple else 1
        found: dict[Chain, int] = {}
        for chain in self.wanted.get(name, ()):
            found[chain] = count
            count += len(self.made[name][chain])
        return found
