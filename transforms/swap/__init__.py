"""Replace modules by other modules or programs with the same signature."""

from __future__ import annotations

from .swap_modules import swap_modules

__all__ = ["swap_modules"]
