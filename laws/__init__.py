"""Oracles and laws, for our own tests and for those of users.  Import it as ``purefx.laws``.

An oracle compares and returns what differs as text, so that a test shows all of it at once; an empty list
means equal.  Nothing here transforms or lowers a program.
"""

from __future__ import annotations

from .oracles import (
    Calls,
    assert_same_as_eager,
    behaviour_differences,
    gradient_differences,
    structure_differences,
    value_differences,
)
from .purity import changes_in_export, changes_in_program

__all__ = [
    "Calls", "assert_same_as_eager", "behaviour_differences", "changes_in_export", "changes_in_program", "gradient_differences",
    "structure_differences", "value_differences",
]  # fmt: skip
