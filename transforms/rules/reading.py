"""Reads of state as rules see them: which read a value is a copy of.

What is read is not looked at here (``new_state.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.arguments import Arg, Ref
from ...ir.graph import Node, Op

__all__ = ["copied_from"]

COPYING = frozenset([f"aten.{name}.default" for name in ("lift_fresh_copy", "lift_fresh", "detach_", "detach", "alias", "clone")])
"""Operators that the exporter puts behind a tensor that was made in the program, and others that keep its contents."""


def copied_from(
    arg: Arg, node_of: Callable[[str], Node | None], is_changed: Callable[[str], bool] | None
) -> tuple[Arg, dict[str, None]] | None:
    """Return what a value is a copy of, itself if it is none, and the nodes from there to it; None where something writes one.

    Args:
        arg: a use of a value.
        node_of: the node that computes a value; None for an input.
        is_changed: says whether something writes the memory of a value; None where it is not asked.

    >>> from ...ir.graph import Get
    >>> nodes = {"w": Node("w", Get("weight")), "y": Node("y", Op("aten.clone.default"), (Ref("w"),))}
    >>> copied_from(Ref("y"), nodes.get, None)
    (Ref(name='w'), {'y': None, 'w': None})
    """
    passed: dict[str, None] = {}
    while type(arg) is Ref:
        node = node_of(arg.name)
        if node is not None:
            passed[arg.name] = None
        if is_changed is not None and is_changed(arg.name):
            return None
        if node is None or type(node.do) is not Op or node.do.name not in COPYING:
            break
        arg = node.args[0]
    return arg, passed
