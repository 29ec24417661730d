"""``swap_modules``: calls of modules go to other modules, or to other programs.

A preserved call signature says what a module took and gave in eager; whatever is put in its place is given just that.
"""

from __future__ import annotations

from .swap_modules import swap_modules

__all__ = ["swap_modules"]
