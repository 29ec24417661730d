"""Simplify programs: remove dead code, common subexpressions and no-ops, fold constants.

Every pass uses the same dependency relation. Only ``fold_constants`` runs operators, on tensors of the state.
"""

from __future__ import annotations

from .common_subexpressions import eliminate_common_subexpressions
from .constants import fold_constants
from .dead_code import eliminate_dead_code
from .noops import remove_noops

__all__ = [
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "fold_constants",
    "remove_noops",
]
