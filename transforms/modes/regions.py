"""The regions of one graph: from a marker to the one that ends it.

A region of a gradient mode may be cut at the markers of autocast, so the two may overlap; one under autocast is never cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ...ir.arguments import Ref
from ...ir.graph import Graph
from ...ir.own_operators import is_boundary
from .modes import ENTER, EXIT, SET_GRAD, Modes, is_op, leveled

__all__ = ["Region", "regions_of"]


AUTOCAST_TAKES = 4
"""How many arguments autocast takes: device type, dtype, whether it is enabled, whether it keeps casts."""


@frozen
class Region:
    """The nodes between two markers, which have these numbers.

    >>> Region(2, 5, None).has(5), Region(2, 5, None).has(6)
    (True, False)
    """

    first: int
    last: int
    grad: bool | None
    """The gradient mode inside; None for autocast."""

    def has(self, number: int) -> bool:
        """Return whether a node is one of the two markers, or between them."""
        return self.first <= number <= self.last


def regions_of(modes: Modes, name: str, *, refused: frozenset[Region] = frozenset()) -> list[Region]:
    """Return the regions of a graph that can be bodies, in the order in which they begin.

    Args:
        modes: the gradient modes of the program.
        name: the graph.
        refused: regions that are to stay as they are.

    >>> from purefx.ir import Graph, Node, Program
    >>> nodes = Node("a", SET_GRAD, (False,)), Node("b", SET_GRAD, (True,))
    >>> regions_of(Modes(Program.of({"": Graph((), nodes, ())}), grad=True), "")
    [Region(first=0, last=1, grad=False)]
    """
    graph = modes.program.graphs[name]
    if not any(is_op(node, SET_GRAD, ENTER) for node in graph.nodes):
        return []
    before = modes.before(name)
    sets = {number for number, node in enumerate(graph.nodes) if is_op(node, SET_GRAD)}
    if None in before or any(before[k] is not before[k + 1] for k in range(len(graph.nodes)) if k not in sets):
        return []  # a body that it calls leaves another mode than it found, or nobody knows which mode this is
    found = [*_under_autocast(graph), *_of_modes(before, sorted(sets))]
    kept = sorted([one for one in found if one not in refused], key=lambda one: one.first)
    while (fewer := [one for one in kept if _is_legal(one, kept, modes, graph)]) != kept:
        kept = fewer
    return kept


def _under_autocast(graph: Graph) -> Iterator[Region]:
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    for last, node in enumerate(graph.nodes):
        if not is_op(node, EXIT) or len(node.args) != 1 or type(begun := node.args[0]) is not Ref:
            continue
        first = position.get(begun.name, -1)
        made = graph.nodes[first] if first >= 0 else node
        is_plain = is_op(made, ENTER) and not (made.refs() or made.kwargs) and 1 <= len(made.args) <= AUTOCAST_TAKES
        if is_plain and graph.users[begun.name] == (node.name,) and begun.name not in graph.output_refs():
            yield Region(first, last, None)


def _of_modes(before: list[bool | None], sets: list[int]) -> Iterator[Region]:
    # From where the mode is another than that of the graph to where it is that again.  A marker that changes nothing is a region
    # of its own.
    first: int | None = None
    for number in sets:
        mode = before[number + 1]
        if first is None:
            first = number
        if mode is before[0]:
            yield Region(first, number, not before[0])
            first = None


def _is_legal(one: Region, kept: list[Region], modes: Modes, graph: Graph) -> bool:
    inside = range(one.first + 1, one.last)
    if any(is_boundary(graph.nodes[number]) or graph.nodes[number].meta.get("unbacked_bindings") for number in inside):
        return False  # callers know these by name
    if one.grad is None:
        # A marker that stayed in it would not say any more what holds behind it.
        taken = [other for other in kept if other.grad is not None]
        sets = [number for number in inside if is_op(graph.nodes[number], SET_GRAD)]
        if not all(any(other.has(number) for other in taken) for number in sets):
            return False
    cuts = {end for other in kept if one.grad is not None and other.grad is None for end in (other.first, other.last)}
    return leveled(modes.level(graph.nodes[number]) for number in inside if number not in cuts) == (0, 0)
