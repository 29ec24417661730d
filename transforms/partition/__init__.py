"""Transformations of split programs, whose root calls one body for each part.

``relay_skips.py`` hands values through the parts between, ``move_non_tensor_nodes.py`` computes numbers where they are used.
"""

from __future__ import annotations

from .move_non_tensor_nodes import move_non_tensor_nodes
from .relay_skips import relay_skips

__all__ = ["move_non_tensor_nodes", "relay_skips"]
