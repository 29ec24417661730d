"""``Listening``: whether a law told something of a case: its premise held, and the transformation did something.

A law that speaks of hardly any program would hold of anything.  The program to which something was done need not be the drawn
one: many laws put in first what should go.  Nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from attrs import evolve

from purefx.ir.errors import UnsupportedProgram
from purefx.ir.program import Program
from purefx.laws.law import Case, Law, Transform
from purefx.transforms import Transformation
from tests.laws.aimed import as_aimed

__all__ = ["Listening"]


class Listening:
    """A transformation that remembers whether it did something."""

    def __init__(self, transform: Transform) -> None:
        self.acted = False
        self.transform: Transform = self._listened(transform)

    def told(self, law: Law, case: Case) -> bool:
        """Return whether a law told something of a case, after it was asked of ``transform``; and forget it."""
        acted, self.acted = self.acted, False
        try:
            one = as_aimed(law)
            told = (acted if one.acts is None else one.acts(self.transform, case)) and one.premise(self.transform, case)
        except UnsupportedProgram:
            told = False  # nothing is said of what the transformation refuses
        self.acted = False  # a premise may ask what the transformation does
        return told

    def _listened(self, transform: Any) -> Any:
        if isinstance(transform, Transformation):
            return evolve(transform, apply=self._heard(transform.apply))
        return self._heard(transform)

    def _heard(self, apply: Callable[..., Program]) -> Callable[..., Program]:
        @wraps(apply)
        def heard(program: Program, *args: Any, **options: Any) -> Program:
            result = apply(program, *args, **options)
            self.acted |= result is not program
            return result

        return heard
