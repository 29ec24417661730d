"""Splitting programs into parts, and joining them again.  Import it from ``purefx.transforms``.

One idea: a part is a module of its own in the root (``ir/parts.py``); inside it everything has its original name.  What crosses
between parts is rewired by ``relay_skips`` and ``move_non_tensor_nodes``.
"""

from __future__ import annotations

from .join import join
from .move_non_tensor_nodes import move_non_tensor_nodes
from .relay_skips import relay_skips
from .split_balanced import split_balanced
from .split_by_module import split_by_module
from .split_by_tags import split_by_tags

__all__ = ["join", "move_non_tensor_nodes", "relay_skips", "split_balanced", "split_by_module", "split_by_tags"]
