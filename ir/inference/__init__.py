"""Abstract interpretation on fake tensors: infer the dtype, shape and device of each value without running the program.

All inferred values of a program live in the fake mode of its inputs.
"""

from __future__ import annotations

from .borders import Border, borders_of
from .interpreter import CallValues, Interpreter, Run, shared_bodies
from .results import (
    agrees,
    all_agree,
    as_tuple,
    changes_sizes,
    disagreement_of_bodies,
    returned_input,
    returned_operand,
    shown_value,
    values_of,
)
from .values import (
    ASSUMED,
    UNKNOWN,
    ExampleValues,
    FakeValues,
    clone_value,
    described,
    fresh_mode,
    has_no_result,
    running,
)

__all__ = [
    "ASSUMED", "UNKNOWN", "Border", "CallValues", "ExampleValues", "FakeValues", "Interpreter", "Run", "agrees", "all_agree",
    "as_tuple", "borders_of", "changes_sizes", "clone_value", "described", "disagreement_of_bodies", "fresh_mode",
    "has_no_result", "returned_input", "returned_operand", "running", "shared_bodies", "shown_value", "values_of",
]  # fmt: skip
