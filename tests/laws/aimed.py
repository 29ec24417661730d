"""Laws of some programs only: a law with a premise, and with an aim that makes programs that satisfy it.

A law with an aim is checked on two cases of three, by their seeds, after the aim (``tests/laws/aims.py`` has them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from attrs import evolve, field, frozen

from purefx.ir.program import Program
from purefx.laws.law import Case, Law, Transform

Aim = Callable[[Program], Program]

Check = Callable[[Transform, Case], list[str]]


def law(
    statement: str,
    *,
    name: str = "",
    where: Callable[[Transform, Case], bool] | None = None,
    aim: Aim | None = None,
) -> Callable[[Check], Law]:
    """Return the decorator ``purefx.laws.law.law``, with a premise (``where``) and an aim."""

    def made(check: Check) -> Law:
        def checked(transform: Transform, case: Case) -> list[str]:
            given = aimed_case(case, aim)
            found = check(transform, given) if where is None or where(transform, given) else []
            return (
                [*found, f"(of this program, which was made of it)\n{given.program}"]
                if found and given is not case
                else found
            )

        return Law(name or check.__name__.strip("_").replace("_", " "), statement, checked)

    return made


def aimed(one: Law, aim: Aim | None) -> Law:
    """Return a law that is checked after an aim; the law itself without one."""
    return one if aim is None else law(one.statement, name=one.name, aim=aim)(one.check)


def aimed_case(case: Case, aim: Aim | None) -> Case:
    """Return a case after an aim, or the case itself: one of three, by its seed."""
    return case if aim is None or case.seed % 3 == 0 else _after(aim, _Itself(case))


@frozen
class _Itself:
    """A case as a key: another one with the same program is another."""

    case: Case = field(eq=id)


@lru_cache(maxsize=64)  # the check, the premise and the next laws use the same few cases
def _after(aim: Aim, of: _Itself) -> Case:
    return evolve(of.case, program=aim(of.case.program))
