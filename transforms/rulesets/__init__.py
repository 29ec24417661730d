"""The rule sets of the library: attention, algebra, fusions.  They are ordinary rules (``rules/``)."""

from __future__ import annotations

from .algebra import algebra
from .attention import attention
from .fusions import fusions

__all__ = ["algebra", "attention", "fusions"]
