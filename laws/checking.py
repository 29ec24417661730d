"""``check_transformation``: the laws for your own ``Program -> Program``, in one line of your test file.

One idea: every law is asked on generated programs; when one is broken the smallest program that shows it is in the
message, as text that parses back, below the sentence that does not hold.  Needs the extra ``laws`` (hypothesis).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..ir.program import Program
from .law import GENERIC, Case, Law, Transform
from .strategies import Stage, programs

__all__ = ["LawBroken", "assert_law", "check_transformation", "drawn"]


SEEDS = st.integers(0, 1 << 16)


class LawBroken(AssertionError):
    """A transformation does not do what a law says.

    >>> issubclass(LawBroken, AssertionError)
    True
    """


def assert_law(transform: Transform, law: Law, case: Case) -> None:
    """Raise unless a law holds on one case.

    Args:
        transform: the function from programs to programs.
        law: what should hold.
        case: the program, and how to vary and to run it.

    Raises:
        LawBroken: it does not, or the transformation raises; the message has the sentence, what is wrong, and the program.

    >>> from purefx.ir import Graph
    >>> assert_law(lambda program: program, GENERIC[0], Case(Program.of({"": Graph((), (), ())})))
    """
    try:
        wrong = law.check(transform, case)
    except Exception as error:
        raise LawBroken(_message(transform, law, [f"{type(error).__name__}: {error}"], case.program)) from error
    if wrong:
        raise LawBroken(_message(transform, law, wrong, case.program))


def _message(transform: Transform, law: Law, wrong: list[str], program: Program) -> str:
    name = getattr(transform, "__name__", None) or getattr(transform, "name", None) or repr(transform)
    return "\n".join([f"{name} breaks the law {law.name!r}: {law.statement}", *wrong, "on the program", str(program)])


def check_transformation(
    transform: Transform, *, laws: Iterable[Law] = GENERIC, stage: Stage = "flat", examples: int = 200
) -> None:
    """Raise unless laws hold for a transformation on generated programs.

    Args:
        transform: the function from programs to programs.
        laws: what should hold; the generic laws hold for every transformation that keeps the meaning.
        stage: the stage of the programs that it is given; see ``purefx.laws.strategies.programs``.
        examples: how many programs each law is checked on; always the same ones.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.

    >>> check_transformation(lambda program: program, examples=5)
    >>> check_transformation(lambda program: program.evolve(), laws=GENERIC[4:5], examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.checking.LawBroken: <lambda> breaks the law 'idempotent': doing it twice is doing it once
    ...
    """
    for law in laws:
        _check(transform, law, stage, examples)


def _check(transform: Transform, law: Law, stage: Stage, examples: int) -> None:
    for program, seed in drawn(stage, examples):
        try:
            assert_law(transform, law, Case(program, seed))
        except LawBroken as error:
            raise _smallest(transform, law, stage, examples) or error from None


def _settings(examples: int, *phases: Phase) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=phases,
        report_multiple_bugs=False,
    )


@cache
def drawn(stage: Stage, examples: int) -> tuple[tuple[Program, int], ...]:
    """Return programs with seeds for their variants, the same ones whenever it is asked.

    Drawing a program takes longer than asking a law of it, and programs are values: all laws are asked of the same.

    Args:
        stage: the stage of the programs.
        examples: how many.

    >>> len(drawn("flat", 3))
    3
    """
    found: list[tuple[Program, int]] = []

    @_settings(examples, Phase.generate)
    @given(programs(stage), SEEDS)
    def keep(program: Program, seed: int) -> None:
        found.append((program, seed))

    keep()
    return tuple(found)


def _smallest(transform: Transform, law: Law, stage: Stage, examples: int) -> LawBroken | None:
    broken: list[LawBroken] = []

    @_settings(examples, Phase.generate, Phase.shrink)
    @given(programs(stage), SEEDS)
    def holds(program: Program, seed: int) -> None:
        try:
            assert_law(transform, law, Case(program, seed))
        except LawBroken as error:
            broken.append(error)
            raise

    # Hypothesis runs the smallest case last; its own error says where, ours says what.
    with suppress(LawBroken):
        holds()
    return broken[-1] if broken else None
