"""Splitting programs into parts, and joining them again.  Import it from ``purefx.transforms``.

A part is a module of its own in the root (``ir/calls/parts.py``); inside it everything has its original name.  Boundary values
between parts are rewired by ``relay_skips`` and ``move_non_tensor_nodes``.
"""

from __future__ import annotations

from .boundary_values import move_non_tensor_nodes, relay_skips
from .cut import join
from .split import split_balanced, split_by_module, split_by_tags

__all__ = ["join", "move_non_tensor_nodes", "relay_skips", "split_balanced", "split_by_module", "split_by_tags"]
