"""``swap_modules``: redirect calls of modules to other modules, or to other programs.

A preserved call signature has the arguments and results of a module in eager; a replacement is called with the same.
"""

from __future__ import annotations

from .swap_modules import swap_modules

__all__ = ["swap_modules"]
