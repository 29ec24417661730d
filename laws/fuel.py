"""What holds for every transformation that takes fuel: it can be stopped after any rewrite.

One idea: with each amount of fuel the law of the whole transformation must hold of a part of it; the amounts that are
tried are the ends and one between that the case's seed chooses.  They are asked of transformations, not of plain functions.
"""

from __future__ import annotations

import sys

from ..ir.program import Program
from ..ir.verify import verify
from ..transforms import Fuel, Transformation
from .evaluate import meaning_differences
from .law import Case, Law, Transform

__all__ = ["ANY_FUEL", "ENOUGH_FUEL", "FUEL", "NO_FUEL", "UNFINISHED"]


def _stoppable(transform: Transform) -> Transformation:
    if not isinstance(transform, Transformation) or not transform.takes_fuel:
        raise TypeError("the laws of fuel are asked of a Transformation whose function has a keyword fuel")
    return transform


def _count(transform: Transformation, program: Program) -> int:
    fuel = Fuel(sys.maxsize)
    transform.spend(program, fuel, **dict(transform.options))
    return fuel.burnt


def _amounts(count: int, seed: int) -> list[int]:
    # Too little by all but one, by some, by one.
    return sorted({1, 1 + seed % (count - 1), count - 1}) if count > 1 else []


def _any_fuel(transform: Transform, case: Case) -> list[str]:
    stoppable = _stoppable(transform)
    expected = case.meaning(case.program)
    found: list[str] = []
    for limit in _amounts(_count(stoppable, case.program), case.seed):
        result = stoppable(case.program, fuel=limit)
        wrong = [str(violation) for violation in verify(result)]
        wrong = wrong or meaning_differences(case.meaning(result), expected, tolerance=case.tolerance)
        found += [f"with fuel {limit}: {line}\n{result}" for line in wrong]
    return found


def _enough_fuel(transform: Transform, case: Case) -> list[str]:
    stoppable, program = _stoppable(transform), case.program
    count = _count(stoppable, program)
    given, expected = stoppable(program, fuel=count), stoppable(program)
    if given != expected or given.facts != expected.facts:
        return [f"with fuel for all of its {count} rewrites it is another program:\n{given}"]
    one_less = stoppable(program, fuel=count - 1) if count else None
    return [f"the last of {count} rewrites changes nothing"] if one_less == expected else []


def _no_fuel(transform: Transform, case: Case) -> list[str]:
    result = _stoppable(transform)(case.program, fuel=0)
    return [] if result is case.program else [f"without fuel it changes the program:\n{result}"]


def _unfinished(transform: Transform, case: Case) -> list[str]:
    stoppable, program = _stoppable(transform), case.program
    expected = case.meaning(program)
    found: list[str] = []
    for limit in _amounts(_count(stoppable, program), case.seed):
        part = stoppable(program, fuel=limit)
        claimed = sorted((part.facts - program.facts) & stoppable.establishes)
        found += [f"with fuel {limit} it claims to be {fact!r}" for fact in claimed]
        whole = stoppable(part)
        wrong = [str(violation) for violation in verify(whole)] or meaning_differences(
            case.meaning(whole), expected, tolerance=case.tolerance
        )
        found += [f"finished after fuel {limit}: {line}\n{whole}" for line in wrong]
    return found


ANY_FUEL = Law("any fuel", "stopped after any rewrite, the result is valid and means the same", _any_fuel)
ENOUGH_FUEL = Law("enough fuel", "fuel for all rewrites is as good as no limit, and one less is not", _enough_fuel)
NO_FUEL = Law("no fuel", "without fuel it gives the same object", _no_fuel)
UNFINISHED = Law("unfinished", "stopped early it claims nothing that it establishes, and can be finished later", _unfinished)

FUEL: tuple[Law, ...] = (ANY_FUEL, ENOUGH_FUEL, NO_FUEL, UNFINISHED)
"""What holds for every transformation that takes fuel."""
