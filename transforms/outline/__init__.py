"""``outline``: the flat program becomes the tree of module calls."""

from __future__ import annotations

from .outline import outline

__all__ = ["outline"]
