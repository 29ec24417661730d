"""``precedences``: what must come before what in each graph of a program, wherever the graph stands.

The dependency relation is one of a graph at one place.  A body that several calls share stands at several, and its callers decide
which of its inputs and which state are one memory; who puts nodes of a body in another order asks this.  Nothing is moved here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ir.calls.call_graph import all_instances
from ..ir.effects.declared import NodeEffects
from ..ir.effects.dependencies import dependencies
from ..ir.effects.resolved import in_use, program_effects
from ..ir.graph import Get
from ..ir.own_operators import is_boundary
from ..ir.program import Program
from .memory import Memory

__all__ = ["precedences"]


def precedences(program: Program) -> Iterator[tuple[str, list[list[int]]]]:
    """Return for each graph, bodies first, the numbers of the nodes that must come before each node, at every place of the graph.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph, Input, Node, Op, Ref
    >>> nodes = (Node("a", Op("toy.neg"), (Ref("x"),)), Node("b", Op("toy.neg"), (Ref("a"),)))
    >>> list(precedences(Program.of({"": Graph((Input("x"),), nodes, Ref("b"))})))
    [('', [[], [0]])]
    """
    places, effects = all_instances(program), program_effects(program)
    for name in program.bottom_up:
        yield name, _before(program, name, places[name], effects[name])


def _before(program: Program, name: str, places: Iterable[str], effects: Sequence[NodeEffects]) -> list[list[int]]:
    graph = program.graphs[name]
    found: list[set[int]] = [set() for _ in graph.nodes]
    for place in places:
        for mine, of in zip(found, dependencies(program, graph, path=place), strict=True):
            mine.update(of)
    if name != program.root:
        _keep_outside(Memory(program, name, effects, sent=False), found)
    return [sorted(of) for of in found]


def _keep_outside(memory: Memory, found: list[set[int]]) -> None:
    # Which inputs of a body and which state are one memory, its callers decide: where one is written, all are.
    if memory.outside.isdisjoint(memory.written):
        return
    writer, readers = -1, list[int]()
    held = in_use(memory.sets, memory.graph, list(memory.effects.values()))
    for number, node in enumerate(memory.graph.nodes):
        does = memory.effects[node.name]
        writes = memory.reaches_outside(does)
        reads = any(map(memory.is_outside, node.refs())) or not memory.outside.isdisjoint(memory.of_slots(does.reads_slots))
        reads |= any(not memory.outside.isdisjoint(held.get(memory.find(one), ())) for one in does.completes)
        if type(node.do) is Get or is_boundary(node) or not (reads or writes):
            continue
        found[number].update([writer] if writer >= 0 else [], readers if writes else [])
        writer, readers = (number, []) if writes else (writer, [*readers, number])
