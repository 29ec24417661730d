"""Laws of some programs only: a law with a premise, and with an aim that makes programs that satisfy it.

A law with an aim is checked on two cases of three, by their seeds, after the aim (``tests/laws/aims.py`` has them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from attrs import evolve, field, frozen

from purefx.ir.errors import UnsupportedProgram
from purefx.ir.program import Program
from purefx.laws.law import Case, Law, Transform
from purefx.transforms import Transformation

__all__ = ["Aim", "AimedLaw", "Check", "Listening", "aimed", "aimed_case", "as_aimed", "law"]

Aim = Callable[[Program], Program]

Check = Callable[[Transform, Case], list[str]]


def _always(transform: Transform, case: Case) -> bool:
    return True


@frozen
class AimedLaw(Law):
    """A law with a premise; it also says when the transformation does something."""

    premise: Callable[[Transform, Case], bool] = _always
    """Whether the law says anything of a case."""
    acts: Callable[[Transform, Case], bool] | None = None
    """Whether the transformation does something; None if it does when the result is another program."""


def as_aimed(one: Law) -> AimedLaw:
    """Return a law with a premise that always holds, or the law itself if it has a premise."""
    return one if isinstance(one, AimedLaw) else AimedLaw(one.name, one.statement, one.check)


def law(
    statement: str,
    *,
    name: str = "",
    where: Callable[[Transform, Case], bool] | None = None,
    aim: Aim | None = None,
    acts: Callable[[Transform, Case], bool] | None = None,
) -> Callable[[Check], AimedLaw]:
    """Return the decorator ``purefx.laws.law.law``, with a premise (``where``) and an aim."""

    def made(check: Check) -> AimedLaw:
        def checked(transform: Transform, case: Case) -> list[str]:
            given = aimed_case(case, aim)
            found = check(transform, given) if where is None or where(transform, given) else []
            return [*found, f"(of this program, which was made of it)\n{given.program}"] if found and given is not case else found

        def premise(transform: Transform, case: Case) -> bool:
            return where is None or where(transform, aimed_case(case, aim))

        def does(transform: Transform, case: Case) -> bool:
            return acts is not None and acts(transform, aimed_case(case, aim))

        named = name or check.__name__.strip("_").replace("_", " ")
        return AimedLaw(named, statement, checked, premise, does if acts else None)

    return made


def aimed(one: Law, aim: Aim | None) -> Law:
    """Return a law that is checked after an aim; the law itself without one."""
    if aim is None:
        return one
    was = as_aimed(one)
    return law(was.statement, name=was.name, where=was.premise, aim=aim, acts=was.acts)(was.check)


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


# -- telling ---------------------------------------------------------------------------------------------------------------------


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
