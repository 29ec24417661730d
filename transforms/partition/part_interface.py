"""``OpenPart``: one part of a split program while values are added to and removed from its interface.

``rebuilt`` is the program with its parts as they were changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from types import MappingProxyType

from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.calls.parts import Chain
from ...ir.calls.parts import PartCall as Part
from ...ir.graph import Call, Graph, Input, Node
from ...ir.meta import EMPTY_META, Meta
from ...ir.names import Names, word_of
from ...ir.operators import GETITEM
from ...ir.program import Program
from ..shared_bodies import value_only

__all__ = ["OpenPart", "rebuilt"]


class OpenPart:
    """One part that can be changed.

    Args:
        part: what it is in the root.
        graph: its body.
        names: hands out names for values of the root.
    """

    def __init__(self, part: Part, graph: Graph, names: Names) -> None:
        self.part = part
        self.graph = graph
        self.formals: list[Input] = list(graph.inputs)
        self.actuals: list[Arg] = list(part.node.args)
        self.nodes: list[Node] = list(graph.nodes)
        self.outputs: list[Arg] = list(part.outputs)
        self.given: list[str | None] = list(part.given)
        self.changed = False
        self._names = names
        self._inner: Names | None = None

    @property
    def inner(self) -> Names:
        """Hands out names for values of the body."""
        if self._inner is None:
            self._inner = self.graph.names()
        return self._inner

    def take(self, value: str, wanted: str, meta: Meta) -> str:
        """Return what the body calls a value of the root, which becomes an input if it is none yet.

        Args:
            value: the name in the root.
            wanted: the name that a new input gets if it is free.
            meta: of a new input.
        """
        for formal, actual in zip(self.formals, self.actuals, strict=True):
            if type(actual) is Ref and actual.name == value:
                return formal.name
        self.changed = True
        self.formals.append(Input(self.inner.fresh(wanted), meta))
        self.actuals.append(Ref(value))
        return self.formals[-1].name

    def take_no_more(self, formal: Input) -> None:
        """Remove an input; its uses in the body must be replaced."""
        index = next(at for at, one in enumerate(self.formals) if one is formal)
        del self.formals[index], self.actuals[index]
        self.changed = True

    def give(self, inner: str, wanted: str) -> str:
        """Return what the root calls a value of the body, which becomes a result if it is none yet.

        Args:
            inner: the name in the body.
            wanted: the name that the root gets for it if that is free.
        """
        for index, (output, name) in enumerate(zip(self.outputs, self.given, strict=True)):
            if type(output) is Ref and output.name == inner:
                return name if name is not None else self._named(index, wanted)
        self.outputs.append(Ref(inner))
        self.given.append(None)
        return self._named(len(self.given) - 1, wanted)

    def _named(self, index: int, wanted: str) -> str:
        self.changed = True
        name = self.given[index] = self._names.fresh(wanted)
        return name

    def use(self, instead: Callable[[str], str]) -> None:
        """Take other values of the root in place of some.

        Args:
            instead: gives the name of what is taken for a value.
        """
        for index, actual in enumerate(self.actuals):
            if type(actual) is Ref and (name := instead(actual.name)) != actual.name:
                self.actuals[index] = Ref(name)
                self.changed = True

    def body(self) -> Graph:
        """Return the body; the same object if it does not differ."""
        made = self.graph.with_nodes(self.nodes, inputs=tuple(self.formals))
        before = self.graph.output if type(self.graph.output) is tuple else (self.graph.output,)
        if len(self.outputs) == len(before) and all(map(is_, self.outputs, before)):
            return made
        return Graph(made.inputs, made.nodes, self.outputs[0] if len(self.outputs) == 1 else tuple(self.outputs))

    def in_root(self, graph: str, body: Graph, metas: Sequence[Meta]) -> list[Node]:
        """Return the nodes of the root that call the part and take its results.

        Args:
            graph: the id of the body.
            body: the body.
            metas: of the results, in order.
        """
        node, call = self.part.node, self.part.node.do
        assert type(call) is Call
        called = node.calling(lambda _: graph).evolve(args=tuple(self.actuals))
        if type(body.output) is not tuple:
            return [called.evolve(name=self.given[0] or node.name, meta=metas[0])]
        kept = type(self.graph.output) is tuple and self.part.node.name not in self.given
        name = node.name if kept else self._names.fresh(word_of(call.instance.path))
        value = MappingProxyType({"val": tuple([meta.get("val") for meta in metas])})
        made = [called.evolve(name=name, meta=value)]
        for index, (given, meta) in enumerate(zip(self.given, metas, strict=True)):
            if given is not None:
                made.append(Node(given, GETITEM, (Ref(name), index), (), (), meta))
        return made


def rebuilt(
    program: Program, chain: Chain, parts: Sequence[OpenPart], *, metas: Mapping[str, Meta], output: Mapping[int, str]
) -> Program:
    """Return a split program whose parts were changed.

    Args:
        program: the program that the parts were read from.
        chain: its parts as they were.
        parts: the parts as they are now, in order.
        metas: of the values of the root that have new names.
        output: the value that the root returns instead, by position.
    """
    once = {name: chain.value(name) for name in chain.makers if chain.value(name) != name}
    for name in once:
        parts[chain.makers[name][0]].changed = True
    for part in parts:
        part.use(lambda name: once.get(name, name))
    graphs, nodes = _written(program, parts, {**program.main.metas, **metas})
    refs: dict[str, Arg] = {name: Ref(first) for name, first in once.items()}
    results = tuple([Ref(output[at]) if at in output else replace_refs(arg, refs) for at, arg in enumerate(program.main.output)])
    graphs[program.root] = evolve(program.main, nodes=tuple(nodes), output=results)
    return program.with_graphs(graphs)


def _written(program: Program, parts: Sequence[OpenPart], metas: Mapping[str, Meta]) -> tuple[dict[str, Graph], list[Node]]:
    calls = Counter(callee for name in program.order for callee in program.graphs[name].callees)
    ids = Names(program.graphs)
    graphs: dict[str, Graph] = {}
    nodes: list[Node] = []
    for part, old in zip(parts, _nodes_of(program, parts), strict=True):
        if not part.changed:
            nodes.extend(old)
            continue
        body, graph = part.body(), part.part.graph
        if body is not part.graph:
            if calls[graph] > 1:
                calls[graph] -= 1
                graph = ids.fresh(graph)
            graphs[graph] = body
        told = [value_only(metas.get(name or "", EMPTY_META)) for name in part.given]
        nodes.extend(part.in_root(graph, body, told))
    return graphs, nodes


def _nodes_of(program: Program, parts: Sequence[OpenPart]) -> list[list[Node]]:
    # The call of each part and the nodes that take its results; those may stand further down.
    numbers = {part.part.node.name: number for number, part in enumerate(parts)}
    found: list[list[Node]] = [[] for _ in parts]
    for node in program.main.nodes:
        number = numbers.get(node.name)
        found[numbers[node.refs()[0]] if number is None else number].append(node)
    return found
