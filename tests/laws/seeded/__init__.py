"""Realistic mistakes in transformations, and the law that finds each.

A suite of laws is worth what it can find.  Each mistake is written as small as it can be on top of what is
right, and none is a typing error: all are misunderstandings that real compilers have had.  A new one is a function with
``@mistake(stage, law)`` above it, in the file of its subject.  It asserts nothing.
"""

from __future__ import annotations

from . import (
    cleaning,
    collecting,
    crossing,
    expanding,
    merging,
    moving,
    origins,
    outlining,
    purity,
    reading,
    rewiring,
    splitting,
    swapping,
    writing,
)
from .mistake import Mistake

__all__ = ["MISTAKES", "Mistake"]

SUBJECTS = (
    merging,
    expanding,
    outlining,
    writing,
    reading,
    moving,
    rewiring,
    purity,
    splitting,
    swapping,
    crossing,
    cleaning,
    collecting,
    origins,
)

MISTAKES: tuple[Mistake, ...] = tuple(
    made for subject in SUBJECTS for made in vars(subject).values() if isinstance(made, Mistake)
)
"""All of them, by subject."""
