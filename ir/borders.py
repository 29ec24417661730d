"""Borders: the two nodes that say what a module call with a preserved signature takes and gives.

One idea: the leaves of the arguments and of the results stand in the graph as arguments of nodes inside the call, so every
pass that renames, moves or replaces values keeps them right without knowing of them.  They compute nothing.  The
pytrees that the leaves make up are in ``Program.call_signatures``.
"""

from __future__ import annotations

from typing import Any

from .node import Node, Op

__all__ = ["GIVES", "TAKES", "gives", "is_border", "takes"]


def takes(*_leaves: Any) -> None:
    """Name the leaves of the arguments of the call that this stands in."""


def gives(*_leaves: Any) -> None:
    """Name the leaves of the results of the call that this stands in."""


for function in (takes, gives):
    function.__module__ = "purefx"  # the text says purefx.takes, wherever this file is

TAKES = Op("purefx.takes", target=takes)
"""``purefx.takes(leaf, ...)``; a leaf that the exporter lost is None."""
GIVES = Op("purefx.gives", target=gives)
"""``purefx.gives(leaf, ...)``."""

_NAMES = frozenset({TAKES.name, GIVES.name})


def is_border(node: Node) -> bool:
    """Say whether a node is one of the two: naming a value there is no use of its contents.

    >>> is_border(Node("t", TAKES)), is_border(Node("y", Op("toy.neg")))
    (True, False)
    """
    return type(node.do) is Op and node.do.name in _NAMES
