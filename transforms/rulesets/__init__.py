"""Rule sets that come with the library: attention, identities of algebra, fusions; one file each.

Rules here are values that anybody could write; what a rule is, and when a match may be taken, is in ``rules/``.
"""

from __future__ import annotations

from .algebra import algebra
from .attention import attention
from .fusions import fusions

__all__ = ["algebra", "attention", "fusions"]
