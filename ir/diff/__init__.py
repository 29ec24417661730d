"""The difference of two programs: computed, shown, applied.

One idea: ``diff(a, b).apply(a) == b``; and what a transformation did can be read.
"""

from __future__ import annotations

from .difference import Diff, diff
from .text import print_diff

__all__ = ["Diff", "diff", "print_diff"]
