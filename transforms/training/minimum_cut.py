"""Minimum cuts: Dinic's algorithm, without recursion.

Of all cuts of the least capacity it gives the last one, that with the most vertices before it.  There is exactly one such cut,
whatever order the flow was found in.
"""

from __future__ import annotations

__all__ = ["ENDLESS", "Network"]

ENDLESS = 1 << 100
"""The capacity of an edge that is never cut."""


class Network:
    """A directed graph with capacities; vertices are numbers, 0 is the source and 1 the sink.

    Args:
        size: how many vertices there are.

    >>> network = Network(4)
    >>> for begin, end, capacity in ((0, 2, 3), (2, 3, 2), (3, 1, 2)):
    ...     network.connect(begin, end, capacity)
    >>> network.cut()
    [True, False, True, True]
    >>> network.flow
    2
    """

    def __init__(self, size: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(size)]
        """Of each vertex the numbers of the edges that leave it; the edge back of edge ``n`` is ``n ^ 1``."""
        self.ends: list[int] = []
        self.left: list[int] = []
        """The capacity that each edge has left."""
        self.flow = 0

    def connect(self, begin: int, end: int, capacity: int) -> None:
        """Add an edge.

        Args:
            begin: the vertex that it leaves.
            end: the vertex that it enters.
            capacity: a whole number of at least 0.
        """
        for vertex, other, amount in ((begin, end, capacity), (end, begin, 0)):
            self.edges[vertex].append(len(self.ends))
            self.ends.append(other)
            self.left.append(amount)

    def cut(self) -> list[bool]:
        """Return for each vertex whether it is before the last cut of the least capacity."""
        while (levels := self._levels(0, 0))[1] >= 0:
            self._push(levels)
        return [level < 0 for level in self._levels(1, 1)]

    def _levels(self, begin: int, back: int) -> list[int]:
        # How many edges each vertex is from the source, or from the sink against the edges (``back`` is 1); -1 out of reach.
        edges, ends, left = self.edges, self.ends, self.left
        levels = [-1] * len(edges)
        levels[begin] = 0
        reached = [begin]
        for vertex in reached:
            beyond = levels[vertex] + 1
            for edge in edges[vertex]:
                end = ends[edge]
                if levels[end] < 0 and left[edge ^ back]:
                    levels[end] = beyond
                    reached.append(end)
        return levels

    def _push(self, levels: list[int]) -> None:
        # As much as goes along shortest ways; what leads nowhere is not tried again.
        edges, ends, left = self.edges, self.ends, self.left
        tried = [0] * len(edges)
        path: list[int] = []
        vertex = 0
        while True:
            if vertex == 1:
                vertex = self._fill(path)
                continue
            mine = edges[vertex]
            while tried[vertex] < len(mine):
                edge = mine[tried[vertex]]
                if left[edge] and levels[ends[edge]] == levels[vertex] + 1:
                    break
                tried[vertex] += 1
            else:
                if not path:
                    return
                levels[vertex] = -1
                vertex = ends[path.pop() ^ 1]
                continue
            path.append(edge)
            vertex = ends[edge]

    def _fill(self, path: list[int]) -> int:
        # Fills a way to the sink, and returns the vertex before its first full edge.
        left = self.left
        amount = min([left[edge] for edge in path])
        self.flow += amount
        first = len(path)
        for number in range(len(path) - 1, -1, -1):
            edge = path[number]
            left[edge] -= amount
            left[edge ^ 1] += amount
            if not left[edge]:
                first = number
        vertex = self.ends[path[first] ^ 1]
        del path[first:]
        return vertex
