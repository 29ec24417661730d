"""``check_transformation``: the laws for your own ``Program -> Program``, in one line of your test file.

One idea: every law is asked on generated programs; when one is broken the smallest program that shows it is in the
message, as text that parses back, below the sentence that does not hold and what the function did to it.  Needs the
extra ``laws`` (hypothesis).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from ..ir.program import Program
from .arguments import WrongQuestion, check_fits, check_question
from .asking import LawBroken, assert_law
from .law import GENERIC, Case, Law, Transform
from .profiles import active, share
from .smallest import smallest
from .strategies import Stage
from .tiers import EXAMPLES, Tier, drawn_cases

__all__ = ["LawBroken", "WrongQuestion", "assert_law", "check_transformation", "drawn"]


def check_transformation(
    transform: Transform,
    *,
    laws: Iterable[Law] = GENERIC,
    stage: Stage = "flat",
    tier: Tier = "toy",
    examples: int | None = None,
    seed: int | None = None,
) -> None:
    """Raise unless laws hold for a transformation on generated programs.

    Args:
        transform: the function from programs to programs.
        laws: what should hold; the generic laws hold for every transformation that keeps the meaning.
        stage: the stage of the programs that it is given; see ``purefx.laws.strategies.programs``.
        tier: ``"toy"`` are programs of integer operators, ``"aten"`` exported programs of real operators, ``"modules"``
            generated modules that ``torch.export`` exported; see ``purefx.laws.tiers.cases``.
        examples: how many programs each law is asked of; by default 200 of integers, 50 of operators, 10 of modules,
            times the factor of the hypothesis profile.
        seed: draws other programs; by default always the same ones, or others each time where the profile says so.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.
        WrongQuestion: an argument is none that a law can be asked with; it is a ``TypeError`` and a ``ValueError``.
        PipelineError: the transformation requires a fact that programs of the stage do not have.

    A transformation may refuse programs with ``UnsupportedProgram``; it is not asked on those.  One that refuses most of them is
    a ``WrongQuestion``.

    >>> check_transformation(lambda program: program, examples=5)
    >>> check_transformation(lambda program: program.evolve(), laws=GENERIC[4:5], examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.asking.LawBroken: <lambda> breaks the law 'idempotent': doing it twice is doing it once
    ...
    """
    asked = check_question(transform, laws, stage, tier, examples)
    count = share(EXAMPLES[tier]) if examples is None else examples
    number = (0 if active().always_the_same else secrets.randbits(32)) if seed is None else seed
    cases = check_fits(transform, stage, tier, drawn_cases(tier, stage, count, number))
    for law in asked:
        error = _first(transform, law, cases)
        if error is not None:
            shown = smallest(transform, law, tier=tier, stage=stage, examples=count, number=number) or error
            shown.add_note(f"The programs: tier={tier!r}, stage={stage!r}, examples={count}, seed={number}.")
            raise shown from None


def _first(transform: Transform, law: Law, cases: Sequence[Case]) -> LawBroken | None:
    for case in cases:
        try:
            assert_law(transform, law, case)
        except LawBroken as error:
            return error
    return None


def drawn(stage: Stage, examples: int) -> tuple[tuple[Program, int], ...]:
    """Return programs of integer operators with seeds for their variants, the same ones whenever it is asked.

    Args:
        stage: the stage of the programs.
        examples: how many.

    >>> len(drawn("flat", 3))
    3
    """
    return tuple((case.program, case.seed) for case in drawn_cases("toy", stage, examples))
