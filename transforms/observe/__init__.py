"""Add the outputs of inner modules to the outputs of a program."""

from __future__ import annotations

from .observe import observe

__all__ = ["observe"]
