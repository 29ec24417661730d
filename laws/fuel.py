"""``FUEL``: the laws of transformations that take fuel.

Each rewrite can be the last: after every prefix of them the program is valid and means the same.
"""

from __future__ import annotations

import sys

from ..ir.program import Program
from ..ir.verify import verify
from ..transforms import Fuel, Transformation
from .evaluate import meaning_differences
from .law import Case, Law, Transform, law

__all__ = ["FUEL"]


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


@law("stopped after any rewrite, the result is valid and means the same")
def any_fuel(transform: Transform, case: Case) -> list[str]:
    stoppable = _stoppable(transform)
    expected = case.meaning(case.program)
    found: list[str] = []
    for limit in _amounts(_count(stoppable, case.program), case.seed):
        result = stoppable(case.program, fuel=limit)
        wrong = [str(violation) for violation in verify(result)]
        wrong = wrong or meaning_differences(case.meaning(result), expected, tolerance=case.tolerance)
        found += [f"with fuel {limit}: {line}\n{result.text()}" for line in wrong]
    return found


@law("fuel for all rewrites is as good as no limit, and one less is not")
def enough_fuel(transform: Transform, case: Case) -> list[str]:
    stoppable, program = _stoppable(transform), case.program
    count = _count(stoppable, program)
    given, expected = stoppable(program, fuel=count), stoppable(program)
    if given != expected or given.facts != expected.facts:
        return [f"with fuel for all of its {count} rewrites it is another program:\n{given}"]
    one_less = stoppable(program, fuel=count - 1) if count else None
    return [f"the last of {count} rewrites changes nothing"] if one_less == expected else []


@law("without fuel it gives the same object")
def no_fuel(transform: Transform, case: Case) -> list[str]:
    result = _stoppable(transform)(case.program, fuel=0)
    return [] if result is case.program else [f"without fuel it changes the program:\n{result.text()}"]


@law("stopped early it claims nothing that it establishes, and can be finished later")
def unfinished(transform: Transform, case: Case) -> list[str]:
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


FUEL: tuple[Law, ...] = (any_fuel, enough_fuel, no_fuel, unfinished)
"""What holds for every transformation that takes fuel."""
