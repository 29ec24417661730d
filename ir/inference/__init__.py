"""Abstract interpretation on fake tensors: compute dtype, shape and device of each value without running the program.

All inferred values of a program live in the fake mode of its inputs.
"""

from __future__ import annotations

from .propagation import CallValues, Propagation, branches_of, disagreement_of_branches, shared_bodies, shown_value
from .results import agrees, input_given_back, operand_given_back, plainly_alike, values_of
from .values import UNASKED, FakeValues, Memo, Symbols, clone_value, fresh_mode, gives_nothing, running

__all__ = [
    "UNASKED", "CallValues", "FakeValues", "Memo", "Propagation", "Symbols", "agrees", "branches_of", "clone_value",
    "disagreement_of_branches", "fresh_mode", "gives_nothing", "input_given_back", "operand_given_back", "plainly_alike",
    "running", "shared_bodies", "shown_value", "values_of",
]  # fmt: skip
