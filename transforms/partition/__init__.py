"""Split a program into parts and join the parts again.

Each part is a module of the root (``ir/calls/parts.py``). ``relay_skips`` and ``move_non_tensor_nodes`` rewire the values
between parts.
"""

from __future__ import annotations

from .boundary_values import move_non_tensor_nodes, relay_skips
from .cut import join
from .split import split_balanced, split_by_module, split_by_tags

__all__ = [
    "join",
    "move_non_tensor_nodes",
    "relay_skips",
    "split_balanced",
    "split_by_module",
    "split_by_tags",
]
