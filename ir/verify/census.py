"""``Census``: the parts of one graph that rules about the whole program look at.

The survey takes it in its one walk over the graph; it judges nothing.  What it holds of a well-formed graph is kept with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import field, frozen

from ..graph import Call, Get, Graph, Node, Op, Stack
from .findings import Finding

GETITEM = "operator.getitem"


@frozen(eq=False)
class Seen:
    """The parts of a graph, whatever it is called; numbers are positions of nodes.  It does not hold the graph itself."""

    callees: list[tuple[int, str]] = field(factory=list)
    calls: list[tuple[int, Node, Call]] = field(factory=list)
    gets: list[tuple[int, Node, Get]] = field(factory=list)
    bodies: list[tuple[int, str]] = field(factory=list)
    projections: list[tuple[int, Node]] = field(factory=list)
    stacks: list[tuple[int, Stack]] = field(factory=list)
    """Each stack that is not empty, at the first node of each run of nodes with it."""
    ops: dict[int, tuple[Op, int]] = field(factory=dict)
    """Every distinct ``Op`` object by ``id``, with the first node that has it."""


class Census:
    """A graph of a program with its parts."""

    __slots__ = ("bodies", "callees", "calls", "gets", "graph", "is_root", "name", "projections", "seen", "stacks")

    def __init__(self, name: str, graph: Graph, seen: Seen, *, is_root: bool = False) -> None:
        self.name = name
        self.graph = graph
        self.is_root = is_root
        self.seen = seen
        self.callees = seen.callees
        self.calls = seen.calls
        self.gets = seen.gets
        self.bodies = seen.bodies
        self.projections = seen.projections
        self.stacks = seen.stacks

    @property
    def nodes(self) -> Iterator[tuple[int, Node]]:
        """The nodes with their positions."""
        return iter(enumerate(self.graph.nodes))

    def at(self, index: int, message: str, cause: str | None = None) -> Finding:
        """Return what is wrong with a node, or with the output, whose position is behind that of the last node."""
        nodes = self.graph.nodes
        name: Any = getattr(nodes[index], "name", None) if index < len(nodes) else "output"
        return Finding(message, self.name, index, name if type(name) is str else f"node {index}", cause)
