"""``Census``: what one graph holds that rules about the whole program ask for.

The survey takes it in its one walk over the graph; it judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..graph import Call, Get, Graph, Node, Op, Stack
from .findings import Finding

__all__ = ["GETITEM", "Census", "Ops"]

GETITEM = "operator.getitem"

Ops = dict[int, tuple[Op, "Census", int]]
"""Every distinct ``Op`` object by ``id``, with the graph and the position of the node that it was first met in."""


class Census:
    """What a graph holds that rules about the whole program ask for; numbers are positions of nodes."""

    __slots__ = ("asked", "bodies", "callees", "calls", "gets", "graph", "is_root", "name", "projections", "stacks")

    def __init__(self, name: str, graph: Graph, *, is_root: bool = False) -> None:
        self.name = name
        self.graph = graph
        self.is_root = is_root
        self.callees: list[tuple[int, str]] = []
        self.calls: list[tuple[int, Node, Call]] = []
        self.gets: list[tuple[int, Node, Get]] = []
        self.bodies: list[tuple[int, str]] = []
        self.projections: list[tuple[int, Node]] = []
        self.stacks: list[tuple[int, Stack]] = []
        """Each stack that is not empty, where a run of nodes with it begins; none where a witness says that all are sound."""
        self.asked: Sequence[int] | None = None
        """The positions of nodes that stand for all in what they call, and with what types of arguments, where that is known."""

    @property
    def nodes(self) -> Iterator[tuple[int, Node]]:
        """The nodes with their positions."""
        return iter(enumerate(self.graph.nodes))

    def at(self, index: int, message: str, cause: str | None = None) -> Finding:
        """Return what is wrong with a node, or with the output, whose position is behind that of the last node."""
        nodes = self.graph.nodes
        name: Any = getattr(nodes[index], "name", None) if index < len(nodes) else "output"
        return Finding(message, self.name, index, name if type(name) is str else f"node {index}", cause)
