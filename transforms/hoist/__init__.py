"""Computations that move between a body and its callers: computed once, or in each body.

``movable`` says what of a body its callers could compute, ``sites`` what the calls of a graph pass and which of them pass the
same, and ``moving`` takes nodes out of a body and puts them before its calls; ``hoist`` and ``replicate`` have a file each.
"""

from __future__ import annotations

from .hoist import hoist

__all__ = ["hoist"]
