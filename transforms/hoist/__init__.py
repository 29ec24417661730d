"""Computations that move between a body and its callers: computed once, or in each body.

``movable`` says what of a body its callers could compute, ``sites`` what the calls of a graph pass and which of them pass the
same; ``hoist`` and ``replicate`` have a file each.
"""

from __future__ import annotations

from .hoist import hoist
from .replicate import replicate

__all__ = ["hoist", "replicate"]
