"""Abstract interpretation on fake tensors: what is known of the values of a program without running it.

A program has one fake mode, that of its inputs, and all inferred values live in it.  The caller decides which values are
inferred, and where they are stored.
"""

from __future__ import annotations

from .branches import branches_of, disagreement_of_branches
from .by_call import CallValues
from .memo import UNASKED, Memo
from .propagation import Propagation, shared_bodies
from .results import agrees, input_given_back, operand_given_back, plainly_alike, values_of
from .values import FakeValues, Symbols, clone_value, fresh_mode, gives_nothing, running

__all__ = [
    "UNASKED",
    "CallValues",
    "FakeValues",
    "Memo",
    "Propagation",
    "Symbols",
    "agrees",
    "branches_of",
    "clone_value",
    "disagreement_of_branches",
    "fresh_mode",
    "gives_nothing",
    "input_given_back",
    "operand_given_back",
    "plainly_alike",
    "running",
    "shared_bodies",
    "values_of",
]  # fmt: skip
