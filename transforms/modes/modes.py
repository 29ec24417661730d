"""In which gradient mode each graph of a program runs, and what it leaves open.

A marker sets the mode for everything that runs after it, in callers too, until the next one; the operator with a body sets it
for its body only.
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

__all__ = ["ENTER", "EXIT", "PLACES", "SET_GRAD", "WITH_AUTOCAST", "WITH_GRAD", "Mode", "Modes", "is_op", "wrapped"]

_hop: Any = torch.ops.higher_order

SET_GRAD = op_of(SET_GRAD_ENABLED)
ENTER = op_of(ENTER_AUTOCAST)
EXIT = op_of(EXIT_AUTOCAST)
WITH_GRAD = op_of(_hop.wrap_with_set_grad_enabled)
WITH_AUTOCAST = op_of(_hop.wrap_with_autocast)
"""The markers, and the operators with a body."""

PLACES = {WITH_GRAD.name: 1, WITH_AUTOCAST.name: 4}
"""Which argument of those operators is the body; literals are before it, operands after it."""

KEPT = "kept"
"""A graph that leaves the mode as it found it."""

Mode = bool | None
"""A gradient mode; None if it is not known."""


def is_op(node: Node, *ops: Op) -> bool:
    """Return whether a node calls one of some operators.

    >>> is_op(Node("y", SET_GRAD, (False,)), SET_GRAD, ENTER), is_op(Node("y", Op("toy.neg")), SET_GRAD)
    (True, False)
    """
    return type(node.do) is Op and node.do.name in [op.name for op in ops]


def wrapped(node: Node) -> str | None:
    """Return the body that a node runs in another mode; None for any other node, and for one that is not written so.

    >>> wrapped(Node("y", WITH_GRAD, (False, Body("inner")))), wrapped(Node("y", SET_GRAD, (False,)))
    ('inner', None)
    """
    if not is_op(node, WITH_GRAD, WITH_AUTOCAST) or node.kwargs:
        return None
    place = PLACES[node.do.name] if type(node.do) is Op else 0
    body = node.args[place] if place < len(node.args) else None
    says = type(node.args[0]) is bool or not is_op(node, WITH_GRAD)
    return body.graph if type(body) is Body and says else None


class Modes:
    """The gradient modes of a program.

    Args:
        program: the program.
        grad: the mode that its root runs in.

    >>> from purefx.ir import Graph
    >>> Modes(Program.of({"": Graph((), (Node("n", SET_GRAD, (False,)),), ())}), grad=True).before("")
    [True, False]
    """

    def __init__(self, program: Program, *, grad: bool) -> None:
        self.program = program
        self.exits: dict[str, Mode | str] = {}
        """What each graph leaves the mode at."""
        self.levels: dict[str, tuple[int, int]] = {}
        """How many other regions each graph closes that it did not open, and leaves open."""
        for name in program.bottom_up:
            nodes = program.graphs[name].nodes
            found: Mode | str = KEPT
            for node in nodes:
                found = self._after(node, found)
            self.exits[name] = found
            self.levels[name] = leveled(self.level(node) for node in nodes)
        self.entries: dict[str, Mode] = {program.root: grad}
        """What each graph runs in; None where that is not one mode."""
        for name in reversed(program.bottom_up):
            for node, mode in zip(program.graphs[name].nodes, self.before(name), strict=False):
                self._enter(node, mode)

    def before(self, name: str) -> list[Mode]:
        """Return the mode before each node of a graph, and after the last one."""
        found: list[Mode] = [self.entries[name]]
        for node in self.program.graphs[name].nodes:
            after = self._after(node, found[-1])
            found.append(after if type(after) is bool else None)
        return found

    def level(self, node: Node) -> tuple[int, int]:
        """Return how many regions a node closes and how many it opens; a gradient mode is none of them."""
        do = node.do
        if is_op(node, SET_GRAD):
            return 0, 0
        if type(do) is Op and do.effects.scope:
            return int(do.effects.scope < 0), int(do.effects.scope > 0)
        found = [self.levels[body] for body in bodies_of(node)]
        return max(found, default=(0, 0))

    def _after(self, node: Node, mode: Mode | str) -> Mode | str:
        if is_op(node, SET_GRAD):
            value = node.args[0] if len(node.args) == 1 and not node.kwargs else None
            return value if type(value) is bool else None
        if type(node.do) is Op and "inference_mode" in node.do.name:
            return None  # it turns gradients off, and on again as they were
        if is_op(node, WITH_GRAD):
            return mode
        left = {self.exits[body] for body in bodies_of(node)}
        if left <= {mode, KEPT}:
            return mode
        return left.pop() if len(left) == 1 else None  # of several bodies one runs

    def _enter(self, node: Node, mode: Mode) -> None:
        inside = node.args[0] if is_op(node, WITH_GRAD) and node.args else mode
        known = inside if type(inside) is bool else None
        for body in bodies_of(node):
            self.entries[body] = known if self.entries.get(body, known) is known else None
