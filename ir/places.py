"""``place_of``: where a node is, as messages say it.

One idea: whoever refuses a node names it in one way: its module, its name, and the line of the user that made it.
"""

from __future__ import annotations

from .node import Node

__all__ = ["place_of"]


def place_of(node: Node) -> str:
    """Return where a node is, for messages: its module, its name, the line of the user that made it.

    >>> from purefx.ir import Op
    >>> place_of(Node("y", Op("toy.neg")))
    'node y'
    """
    path = node.stack[-1].path + " / " if node.stack else ""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    return f"node {path}{node.name}" + (f" ({lines[-2].strip()})" if len(lines) > 1 else "")
