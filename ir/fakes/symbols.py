"""Symbols of a program that comes without fake values: one that was written by hand, or read from text.

One idea: a dynamic size needs a number that stands for what the exporter saw, which torch asks when a size must be decided.
The smallest numbers are taken, another one for each symbol, that are in the ranges and meet the guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..expression import UNCOMPUTABLE, Apply, Expr, InputDim, InputValue, Sym, evaluate, symbols_in
from ..program import Program
from ..signature import NumberType, TensorType, UserInput
from ..torch_private import FakeTensorMode, new_shape_env, new_symbol, symbols_of

__all__ = ["Symbols", "fresh_mode"]

ATTEMPTS = 256
"""How many numbers are tried for a symbol; guards are about remainders and bounds."""


def fresh_mode() -> Any:
    """Return a fake mode of its own, which knows symbols."""
    return FakeTensorMode(shape_env=new_shape_env())


class Symbols:
    """The symbols of one program, as torch's symbolic integers."""

    def __init__(self, program: Program, mode: Any) -> None:
        self.program = program
        self.mode = mode

    @cached_property
    def _known(self) -> dict[str, Any]:
        return symbols_of(self.mode.shape_env)

    def number(self, expr: Expr) -> Any:
        """Return the value of a size: an integer, or a symbolic one.

        Args:
            expr: of integers and symbols.
        """
        names = symbols_in(expr)
        for name in names:
            if name not in self._known:
                low, high = self._bounds.get(name, (None, None))
                self._known[name] = new_symbol(self.mode.shape_env, name, self._numbers[name], low, high)
        return evaluate(expr, {Sym(name): self._known[name] for name in names}) if isinstance(expr, Apply | Sym) else expr

    @cached_property
    def _bounds(self) -> Mapping[str, tuple[int | None, int | None]]:
        ranges = self.program.constraints.ranges
        return {span.expr.name: (span.low, span.high) for span in ranges if isinstance(span.expr, Sym)}

    @cached_property
    def _sizes(self) -> dict[Expr, Expr]:
        # Every number that a guard can speak of, as an expression of symbols.
        users = [spec.type for spec in self.program.signature.inputs if isinstance(spec, UserInput)]
        found: dict[Expr, Expr] = {}
        for index, kind in enumerate(users):
            if isinstance(kind, TensorType):
                found.update((InputDim(index, dim), size) for dim, size in enumerate(kind.shape))
            elif isinstance(kind, NumberType) and kind.expr is not None:
                found[InputValue(index)] = kind.expr
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        names = list(dict.fromkeys(name for size in self._sizes.values() for name in symbols_in(size)))
        tried = [self._attempt(names, step) for step in range(ATTEMPTS)]
        return next((numbers for numbers in tried if self._meets_guards(numbers)), tried[0])

    def _attempt(self, names: list[str], step: int) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for place, name in enumerate(names):
            low, high = self._bounds.get(name, (None, None))
            number = max(2 if low is None else low, 2 if high is None or high >= 2 else low or 0) + step + place
            numbers[name] = number if high is None else min(number, high)
        return numbers

    def _meets_guards(self, numbers: Mapping[str, int]) -> bool:
        values = {Sym(name): number for name, number in numbers.items()}
        try:
            known = {place: evaluate(size, values) for place, size in self._sizes.items()}
            return all(evaluate(guard, known) for guard in self.program.constraints.guards)
        except (KeyError, *UNCOMPUTABLE):
            return False
