"""When memory of a graph is written: what a node gives elsewhere in it, or just before another node.

Whether something is to be computed there is decided by who asks (``replicate.py``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ...ir.graph import Graph, Node
from ..memory import Memory
from .movable import is_pure

__all__ = ["Written"]


class Written:
    """When what memory of a graph is written.

    Args:
        memory: of the graph.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.graph: Graph = memory.graph
        self.position = {node.name: number for number, node in enumerate(self.graph.nodes)}
        self.writes: dict[object, list[int]] = {}
        self.regions: list[int] = []
        for number, node in enumerate(self.graph.nodes):
            does = memory.effects[node.name]
            for key in memory.touched(does):
                self.writes.setdefault(key, []).append(number)
            if does.scope != (0, 0):
                self.regions.append(number)

    def computes_until(self, node: Node, number: int) -> bool:
        """Return whether a node that is computed just before another one gives what it gave where it stands."""
        start = self.position[node.name]
        if not is_pure(node, self.memory.effects[node.name]) or _between(self.regions, start, number):
            return False
        return not any(_between(self.writes.get(self.memory.find(name), ()), start, number) for name in (node.name, *node.refs()))

    def is_the_same_always(self, node: Node) -> bool:
        """Return whether equal nodes give the same, wherever they stand in the graph."""
        if self.regions or not is_pure(node, self.memory.effects[node.name]):
            return False
        return not any(self.memory.find(name) in self.writes for name in (node.name, *node.refs()))

    def is_written_at(self, name: str, number: int) -> bool:
        """Return whether a node writes a value."""
        return number in self.writes.get(self.memory.find(name), ())


def _between(numbers: Sequence[int], start: int, end: int) -> bool:
    place = bisect_right(numbers, start)
    return place < len(numbers) and numbers[place] < end
