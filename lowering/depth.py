"""Deep nestings: code that runs thousands of nested modules within Python's recursion limit.

One idea: every call of a module takes a few Python frames.  Where calls nest deeper than the limit allows, the levels
are put in groups, and the code of a body runs the levels of its own group inline; only the first level of each group
is called as a module.  Ordinary programs are not touched.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.inlining import inlined
from ..ir.node import Call
from ..ir.program import Program

__all__ = ["DEEPEST", "Shallow"]

DEEPEST = 100
"""How many modules deep calls may nest: four frames each, or six in the interpreter, and 400 of 1,000 are the caller's."""


class Shallow:
    """Gives the graph to generate code from, for each body of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.heights = _heights(program)
        deepest = self.heights.get(program.root, 0)
        self.group = -(-deepest // DEEPEST) if deepest > DEEPEST else 0

    def graph(self, name: str) -> Graph:
        """Return what the code of a body runs: its graph, with the calls of its own group of levels inlined."""
        graph = self.program.graphs[name]
        if not self.group:
            return graph
        return inlined(self.program, graph, into=lambda callee: self.inlines(name, callee))

    def inlines(self, caller: str, callee: str) -> bool:
        """Say whether the code of a body runs another one inline, instead of calling it as a module."""
        return self.group > 0 and self.heights[callee] // self.group == self.heights[caller] // self.group


def _heights(program: Program) -> dict[str, int]:
    # The longest chain of calls below each body.
    heights: dict[str, int] = {}
    for name in program.bottom_up:
        below = [heights[node.do.graph] for node in program.graphs[name].nodes if type(node.do) is Call]
        heights[name] = 1 + max(below) if below else 0
    return heights
