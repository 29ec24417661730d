"""What begins to communicate, and what waits for it: told by the effects of operators, not by their names.

Calls of bodies that do so are neither: bodies are looked at each by itself.
"""

from __future__ import annotations

from ...ir.effects.declared import COMMUNICATION
from ...ir.graph import Node, Op
from ...ir.program import Program

__all__ = ["is_start", "is_wait", "talking"]


def is_start(node: Node) -> bool:
    """Return whether a node is an operator that talks to other processes.

    >>> from purefx.ir import Effects, Ref
    >>> is_start(Node("a", Op("toy.send", Effects(domain=COMMUNICATION)), (Ref("x"),))), is_start(Node("b", Op("toy.neg")))
    (True, False)
    """
    return type(node.do) is Op and node.do.effects.domain == COMMUNICATION


def is_wait(node: Node) -> bool:
    """Return whether a node waits for what another one began, and does not begin anything itself.

    >>> from purefx.ir import ArgAt, Effects, Ref
    >>> is_wait(Node("a", Op("toy.wait", Effects(completes=(ArgAt(0, "a"),))), (Ref("x"),))), is_wait(Node("b", Op("toy.neg")))
    (True, False)
    """
    return type(node.do) is Op and bool(node.do.effects.completes) and not is_start(node)


def talking(program: Program) -> list[str]:
    """Return the graphs in which something begins to communicate or waits, bodies before their callers.

    >>> from purefx.ir import Graph
    >>> talking(Program.of({"": Graph((), (), ())}))
    []
    """
    graphs = program.graphs
    return [name for name in program.bottom_up if any(is_start(node) or is_wait(node) for node in graphs[name].nodes)]
