"""Abstract interpretation on fake tensors: infer the dtype, shape and device of each value without running the program.

All inferred values of a program live in the fake mode of its inputs.
"""

from __future__ import annotations

from .interpreter import CallValues, Interpreter, Run, without_value
from .results import (
    agrees,
    branches_of,
    disagreement_of_branches,
    input_given_back,
    operand_given_back,
    plainly_alike,
    shown_value,
    values_of,
)
from .values import UNKNOWN, ExampleValues, FakeValues, Memo, Symbols, clone_value, fresh_mode, gives_nothing, running

__all__ = [
    "UNKNOWN", "CallValues", "ExampleValues", "FakeValues", "Interpreter", "Memo", "Run", "Symbols", "agrees", "branches_of",
    "clone_value", "disagreement_of_branches", "fresh_mode", "gives_nothing", "input_given_back", "operand_given_back",
    "plainly_alike", "running", "shown_value", "values_of", "without_value",
]  # fmt: skip
