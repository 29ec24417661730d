"""Minimize a failing program by delta debugging.

Reductions propose smaller programs; the caller's predicate decides which of them still fail.
"""

from __future__ import annotations

from .minimize import Minimized, minimize

__all__ = ["Minimized", "minimize"]
