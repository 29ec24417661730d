"""Clean-up on the one dependency relation: what nothing needs goes, what is computed twice is computed once.

Each file has one transformation; which values share memory is in ``transforms/memory.py``.  Nothing here runs a program,
except that ``fold_constants`` runs single operators on tensors of the state.
"""

from __future__ import annotations

from .canonicalize import canonicalize
from .common_subexpressions import eliminate_common_subexpressions
from .constants import fold_constants
from .dead_code import eliminate_dead_code
from .noops import remove_noops

__all__ = ["canonicalize", "eliminate_common_subexpressions", "eliminate_dead_code", "fold_constants", "remove_noops"]
