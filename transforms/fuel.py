"""``Fuel``: how many rewrites one application of a transformation may still do.

One idea (hoopl's): a transformation asks before each rewrite, so it can be stopped after any number of them, and the first
bad one can be searched for.  A counter lives for one application; without a limit it counts nothing, writes down nothing
and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from ..ir.errors import FuelError

__all__ = ["UNLIMITED", "Fuel", "takes_fuel", "without_fuel"]


class Fuel:
    """What is left for one application of a transformation, and what has been done with it.

    Args:
        limit: how many rewrites may be done; without one, all.

    Raises:
        FuelError: the limit is not an int of at least 0.

    >>> fuel = Fuel(1)
    >>> fuel.burn("merge body", 1, "into", 0), fuel.burn("merge body", 2, "into", 0)
    (True, False)
    >>> fuel.labels, fuel.refused
    (('merge body 1 into 0',), True)
    """

    __slots__ = ("_burnt", "limit", "refused")

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise FuelError(f"fuel is a number of rewrites, an int of at least 0, or None for no limit; it was {limit!r}")
        self.limit = limit
        self.refused = False
        """Whether a rewrite was asked for and not allowed: the transformation has not run to its end."""
        self._burnt: list[tuple[object, ...]] = []

    def burn(self, *label: object) -> bool:
        """Say whether one more rewrite may be done, and count it.

        Args:
            label: what is rewritten, in words; they are joined when somebody asks for them, so pass values as they are.
        """
        if self.limit is None:
            return True
        if len(self._burnt) >= self.limit:
            self.refused = True
            return False
        self._burnt.append(label)
        return True

    @property
    def limited(self) -> bool:
        """Whether rewrites are counted."""
        return self.limit is not None

    @property
    def burnt(self) -> int:
        """How many rewrites were done."""
        return len(self._burnt)

    @property
    def labels(self) -> tuple[str, ...]:
        """What was rewritten, in order."""
        return tuple([" ".join(map(str, label)) for label in self._burnt])


UNLIMITED = Fuel()
"""Without a limit nothing is counted, so one value serves all."""


def takes_fuel(function: Callable[..., Any]) -> bool:
    """Say whether a function has a parameter ``fuel``.

    >>> takes_fuel(lambda program, *, fuel: program), takes_fuel(lambda program: program)
    (True, False)
    """
    try:
        return "fuel" in signature(function).parameters
    except (TypeError, ValueError):
        return False


def without_fuel(name: str) -> FuelError:
    """Return the error for a transformation that can not be stopped.

    >>> str(without_fuel("soften")).splitlines()[0]
    'soften takes no fuel, so it can not be stopped after some rewrites.'
    """
    return FuelError(
        f"{name} takes no fuel, so it can not be stopped after some rewrites.\n"
        "Give its function a keyword `fuel: Fuel`, make it a transformation with @transformation(), and ask\n"
        '`if fuel.burn("what is rewritten")` before each rewrite; where the answer is no, leave that place as it is.'
    )
