"""Outline a flat program: turn it into the tree of module calls.

``outline`` makes the nodes of each call contiguous, ``extraction`` extracts the calls, and ``merged`` does this and
``deduplicate`` in one walk.
"""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
