"""``rebuilt``: the program with its parts as they were changed.

One idea: only the root and the bodies of changed parts are written; a body that others call too is left to them, and the part
gets one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.chain import Chain
from ...ir.graph import Graph
from ...ir.meta import EMPTY_META, Meta
from ...ir.names import Names
from ...ir.node import Node
from ...ir.program import Program
from ..metas import value_only
from .open_part import OpenPart

__all__ = ["rebuilt"]


def rebuilt(
    program: Program, chain: Chain, parts: Sequence[OpenPart], *, metas: Mapping[str, Meta], output: Mapping[int, str]
) -> Program:
    """Return a split program whose parts were changed.

    Args:
        program: the program that the parts were read from.
        chain: its parts as they were.
        parts: the parts as they are now, in order.
        metas: of the values of the root that have new names.
        output: the value that the root gives back instead, by position.
    """
    once = {name: chain.value(name) for name in chain.makers if chain.value(name) != name}
    for name in once:
        parts[chain.makers[name][0]].changed = True
    for part in parts:
        part.use(lambda name: once.get(name, name))
    known: dict[str, Meta] = {**{value.name: value.meta for value in (*program.main.inputs, *program.main.nodes)}, **metas}
    graphs, nodes = _written(program, parts, known)
    refs: dict[str, Arg] = {name: Ref(first) for name, first in once.items()}
    results = tuple([Ref(output[at]) if at in output else replace_refs(arg, refs) for at, arg in enumerate(program.main.output)])
    graphs[program.root] = evolve(program.main, nodes=tuple(nodes), output=results)
    return program.evolve(graphs=program.graphs.update(graphs))


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
