"""Which operators can be run on fake values to learn what they give.

One idea: only what is known to have no effect beyond its operands is run: operators of the dispatcher, functions of torch and of
numbers, methods of tensors, operators with bodies.  What may do anything is not.
"""

from __future__ import annotations

from typing import Any

import torch

from ..borders import is_border
from ..node import Get, Node, Op
from ..torch_private import OpOverload
from .values import gives_nothing as has_no_result

__all__ = ["alters", "depends_on_contents", "gives_nothing", "is_runnable"]

UNSURE = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})


def gives_nothing(node: Node) -> bool:
    """Say whether a node has no value at all.

    >>> from purefx.ir.borders import TAKES
    >>> gives_nothing(Node("t", TAKES)), gives_nothing(Node("y", Op("toy.neg")))
    (True, False)
    """
    return type(node.do) is Op and (is_border(node) or has_no_result(node))


def depends_on_contents(node: Node) -> bool:
    """Say whether sizes or numbers that an operator gives depend on the contents of tensors.

    >>> depends_on_contents(Node("y", Op("toy.neg")))
    False
    """
    target: Any = node.do.target if type(node.do) is Op else None
    return isinstance(target, OpOverload) and not UNSURE.isdisjoint(target.tags)


def is_runnable(node: Node) -> bool:
    """Say whether it can be asked what a node gives: operators may still refuse, calls depend on their bodies.

    >>> import torch
    >>> from purefx.ir.operators import op_of
    >>> is_runnable(Node("y", op_of(torch.ops.aten.neg.default))), is_runnable(Node("y", op_of(print)))
    (True, False)
    """
    do = node.do
    if type(do) is not Op:
        return type(do) is Get
    effects = do.effects
    if do.target is None or effects.unknown or effects.scope:
        return False
    return not effects.ordered


def alters(node: Node) -> int:
    """Return 1 where a node opens a region in which operators give other types or shapes, -1 where it closes one, else 0.

    >>> alters(Node("y", Op("toy.neg")))
    0
    """
    do = node.do
    if type(do) is not Op or not do.effects.scope:
        return 0
    return do.effects.scope if "autocast" in do.name or "vmap" in do.name else 0
