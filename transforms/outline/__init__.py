"""Outline a flat program: turn it into the tree of module calls.

``schedule`` makes the nodes of each call contiguous, ``extraction`` extracts the calls; ``merged`` combines this with
``deduplicate``.
"""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
