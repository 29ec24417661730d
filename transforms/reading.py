"""Which bodies it matters for where they stand.

One idea: a body that reads state, or calls a module, names it relative to itself, and has to stay where it stands.
"""

from __future__ import annotations

from ..ir.node import Op
from ..ir.program import Program

__all__ = ["placed"]


def placed(program: Program) -> frozenset[str]:
    """Return the graphs that read state or call modules, themselves or through others: where they stand matters.

    Args:
        program: any program.

    >>> from purefx.ir import Get, Graph, Node
    >>> sorted(placed(Program.of({"": Graph((), (Node("w", Get("weight")),))})))
    ['']
    """
    found: set[str] = set()
    for name in program.bottom_up:
        graph = program.graphs[name]
        if any(type(node.do) is not Op for node in graph.nodes) or not found.isdisjoint(graph.callees):
            found.add(name)
    return frozenset(found)
