"""The two forms of a region in which operators run in another mode, and the gradient mode of each node.

A marker sets the mode for all nodes that run after it, in callers too, until the next one; an operator with a body sets it for
its body only.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.arguments import Body
from ...ir.calls.call_graph import bodies_of
from ...ir.effects.declared import leveled
from ...ir.graph import Node, Op
from ...ir.operators import op_of
from ...ir.program import Program
from ...ir.torch_private import ENTER_AUTOCAST, EXIT_AUTOCAST, SET_GRAD_ENABLED

__all__ = ["BODY_AT", "ENTER", "EXIT", "SET_GRAD", "WITH_AUTOCAST", "WITH_GRAD", "Mode", "Modes", "is_op", "name_of", "wrapped"]

_hop: Any = torch.ops.higher_order

SET_GRAD = op_of(SET_GRAD_ENABLED)
ENTER = op_of(ENTER_AUTOCAST)
EXIT = op_of(EXIT_AUTOCAST)
WITH_GRAD = op_of(_hop.wrap_with_set_grad_enabled)
WITH_AUTOCAST = op_of(_hop.wrap_with_autocast)
"""The markers, and the operators with a body."""

BODY_AT = {WITH_GRAD.name: 1, WITH_AUTOCAST.name: 4}
"""The number of the body among the arguments of those operators; literals are before it, operands after it."""

KEPT = "kept"
"""The exit mode of a graph that leaves the mode unchanged."""

Mode = bool | None
"""A gradient mode; None if it is unknown."""


def is_op(node: Node, *ops: Op) -> bool:
    """Return whether a node calls one of these operators.

    >>> is_op(Node("y", SET_GRAD, (False,)), SET_GRAD, ENTER), is_op(Node("y", Op("toy.neg")), SET_GRAD)
    (True, False)
    """
    return name_of(node) in [op.name for op in ops]


def name_of(node: Node) -> str:
    """Return the name of the operator of a node; "" for calls and reads.

    >>> name_of(Node("y", Op("toy.neg")))
    'toy.neg'
    """
    return node.do.name if type(node.do) is Op else ""


def wrapped(node: Node) -> str | None:
    """Return the body that a node runs in another mode; None for other nodes, and for unexpected arguments.

    >>> wrapped(Node("y", WITH_GRAD, (False, Body("inner")))), wrapped(Node("y", SET_GRAD, (False,)))
    ('inner', None)
    """
    place = BODY_AT.get(name_of(node))
    if place is None or node.kwargs or len(node.args) <= place or (place == 1 and type(node.args[0]) is not bool):
        return None
    body = node.args[place]
    return body.graph if type(body) is Body else None


class Modes:
    """The gradient modes of a program.

    Args:
        program: the program.
        grad: the mode of its caller.

    >>> from purefx.ir import Graph
    >>> Modes(Program.of({"": Graph((), (Node("n", SET_GRAD, (False,)),), ())}), grad=True).before("")
    [True, False]
    """

    def __init__(self, program: Program, *, grad: bool) -> None:
        self.program = program
        self.exits: dict[str, Mode | str] = {}
        """The mode after each graph."""
        self.levels: dict[str, tuple[int, int]] = {}
        """The number of regions of other modes that each graph closes without opening, and that it leaves open."""
        for name in program.bottom_up:
            nodes, mode = program.graphs[name].nodes, KEPT
            for node in nodes:
                mode = self._after(node, mode)
            self.exits[name] = mode
            self.levels[name] = leveled(map(self.level, nodes))
        self.entries: dict[str, Mode] = {program.root: grad}
        """The mode before each graph; None if callers differ."""
        for name in reversed(program.bottom_up):
            for node, mode in zip(program.graphs[name].nodes, self.before(name), strict=False):
                inside = node.args[0] if is_op(node, WITH_GRAD) and node.args else mode
                known = inside if type(inside) is bool else None
                for body in bodies_of(node):
                    self.entries[body] = known if self.entries.get(body, known) is known else None

    def before(self, name: str) -> list[Mode]:
        """Return the mode before each node of a graph, and after the last one."""
        found: list[Mode] = [self.entries[name]]
        for node in self.program.graphs[name].nodes:
            after = self._after(node, found[-1])
            found.append(after if type(after) is bool else None)
        return found

    def level(self, node: Node) -> tuple[int, int]:
        """Return the number of regions that a node closes and opens; markers of gradient modes do not count."""
        if is_op(node, SET_GRAD):
            return 0, 0
        if type(node.do) is Op and node.do.effects.scope:
            return int(node.do.effects.scope < 0), int(node.do.effects.scope > 0)
        return max([self.levels[body] for body in bodies_of(node)], default=(0, 0))

    def _after(self, node: Node, mode: Any) -> Any:
        if is_op(node, SET_GRAD):
            return node.args[0] if len(node.args) == 1 and type(node.args[0]) is bool else None
        if type(node.do) is Op and "inference_mode" in node.do.name:
            return None  # it turns gradients off, and restores them
        if is_op(node, WITH_GRAD):
            return mode
        left = {self.exits[body] for body in bodies_of(node)} - {KEPT, mode}
        if not left:
            return mode
        return left.pop() if len(left) == 1 and len(bodies_of(node)) == 1 else None  # of several bodies one runs
