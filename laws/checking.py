"""``check_transformation``: the laws for your own ``Program -> Program``, in one line of your test file.

Every law is asked on generated programs and on yours; when one is broken the smallest program that shows it is in
the message, as text that parses back, below the sentence that does not hold and what the function did to it.  A law that was
asked only where nothing was rewritten says nothing, and that is reported too.  Requires the extra ``laws`` (hypothesis).
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve, frozen

from ..ir.errors import PurefxError
from ..ir.names import escaped
from ..transforms.pipeline import as_step
from .arguments import Fitting, WrongQuestion, cases_of, check_fits, check_question, fitting
from .asking import LawBroken, assert_law, name_of, smallest
from .evaluate import Tolerance
from .law import GENERIC, Case, Law, Transform
from .strategies import Stage
from .tiers import EXAMPLES, Tier, active, attempts, drawn_cases, share

__all__ = [
    "FewChanges", "LawBroken", "NothingChecked", "Report", "WrongQuestion", "ask_laws", "assert_law", "check_transformation",
]  # fmt: skip

FEW = 0.1
"""The share of programs that are changed below which little is checked."""


class NothingChecked(PurefxError, AssertionError):
    """No program was changed but in dead code, so the laws hold of any function that rewrites what is not in these programs.

    >>> issubclass(NothingChecked, AssertionError)
    True
    """


class FewChanges(UserWarning):
    """Less than a tenth of the programs were changed, so little was checked.

    >>> issubclass(FewChanges, UserWarning)
    True
    """


@frozen
class Report:
    """What laws were asked on, where all of them hold.

    >>> print(Report("soften", 14, drawn=50, changed=12, refused=3, given=1, given_changed=1))
    soften keeps 14 laws: it changed 12 of 50 programs that were drawn (3 more refused) and 1 of 1 given
    >>> print(Report("soften", 14, drawn=0, changed=0, refused=0, given=2, given_changed=1))
    soften keeps 14 laws: it changed 1 of 2 given
    >>> print(Report("soften", 14, drawn=50, changed=12, refused=0, dead=4))
    soften keeps 14 laws: it changed 12 of 50 programs that were drawn; changed in dead code only: 4
    """

    name: str
    """Of the function."""
    laws: int
    drawn: int
    """How many generated programs they were asked on."""
    changed: int
    """How many of those the function made another program of, in more than dead code."""
    refused: int
    """How many more it refused with ``UnsupportedProgram``; no law was asked there."""
    given: int = 0
    """How many programs of the user's they were asked on."""
    given_changed: int = 0
    dead: int = 0
    """How many more programs, drawn and given, it changed in dead code only: what no output, effect or state depends on, so that
    nothing can differ whatever it does there."""

    @property
    def share(self) -> float:
        """The share of programs that were changed, among the drawn ones or among those given, where it is larger."""
        return max(self.changed / max(self.drawn, 1), self.given_changed / max(self.given, 1))

    def __str__(self) -> str:
        refused = f" ({self.refused} more refused)" if self.refused else ""
        given = f"{self.given_changed} of {self.given} given" if self.given else ""
        drawn = f"{self.changed} of {self.drawn} programs that were drawn{refused}" if self.drawn or refused or not given else ""
        asked = " and ".join(filter(None, (drawn, given)))
        dead = f"; changed in dead code only: {self.dead}" if self.dead else ""
        return escaped(f"{self.name} keeps {self.laws} laws: it changed {asked}{dead}")


def check_transformation(
    transform: Transform,
    *,
    laws: Iterable[Law] = GENERIC,
    stage: Stage = "flat",
    tier: Tier = "toy",
    examples: int | None = None,
    seed: int | None = None,
    programs: Iterable[Any] = (),
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Report:
    """Raise unless laws hold for a transformation, on generated programs of which it changes some, and on those given.

    Args:
        transform: the function from programs to programs.
        laws: what should hold; the generic laws hold for every transformation that keeps the meaning.
        stage: the stage of the programs that it is given; see ``purefx.laws.strategies.programs``.
        tier: ``"toy"`` are programs of integer operators, ``"aten"`` exported programs of real operators, ``"modules"``
            generated modules that ``torch.export`` exported; see ``purefx.laws.tiers.cases``.
        examples: how many programs are drawn; by default 200 of integers, 50 of operators, 10 of modules, times the factor
            of the hypothesis profile.  With ``programs`` it may be 0.
        seed: draws other programs; by default always the same ones, or others each time where the profile says so.
        programs: your own, asked first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a ``Program`` as
            it is, or an ``ExportedProgram`` or a ``torch.nn.Module``, which are taken to the stage.
        rtol: how far floating point numbers may be from those before, relative to them; by default they are equal to the
            last bit.
        atol: how far they may be apart in any case.

    Returns:
        On how many programs the laws were asked, and how many of them were changed.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.
        NothingChecked: no program was changed, or in dead code only; give ``programs`` that are, or ask another tier or stage.
        WrongQuestion: an argument is none that a law can be asked with; it is a ``TypeError`` and a ``ValueError``.
        PipelineError: the transformation requires a fact that programs of the stage do not have.

    Warns ``FewChanges`` where less than a tenth of the programs was changed.  A transformation may refuse programs with
    ``UnsupportedProgram``; it is not asked on those.  One that refuses most of them is a ``WrongQuestion``.

    >>> import purefx as px
    >>> print(check_transformation(px.outline, examples=5))  # doctest: +ELLIPSIS
    outline keeps 14 laws: it changed ... of 5 programs that were drawn
    >>> check_transformation(lambda program: program, examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.checking.NothingChecked: <lambda> changed none of 5 programs (tier='toy', stage='flat'), so this says nothing ...
    >>> check_transformation(lambda program: program.evolve(), laws=GENERIC[4:5], examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.asking.LawBroken: <lambda> breaks the law 'idempotent': doing it twice is doing it once
    ...
    """
    __tracebackhide__ = True  # pytest shows the line of the user's
    report = ask_laws(
        transform, laws=laws, stage=stage, tier=tier, examples=examples, seed=seed, programs=programs, rtol=rtol, atol=atol
    )
    asked, changed = report.drawn + report.given, report.changed + report.given_changed
    if not changed:
        raise NothingChecked(
            f"{report.name} changed none of {asked} programs (tier={tier!r}, stage={stage!r}){_dead(report)}, so this says "
            f"nothing about what it does; {_advice(tier)}"
        )
    if report.share < FEW:
        told = f"{report.name} changed {changed} of {asked} programs (tier={tier!r}, stage={stage!r}){_dead(report)}"
        warnings.warn(f"{told}, so little was checked; {_advice(tier)}", FewChanges, stacklevel=2)
    return report


def _dead(report: Report) -> str:
    return f" and {report.dead} more in dead code only" if report.dead else ""


def _advice(tier: Tier) -> str:
    real = "" if tier != "toy" else ", or ask tier='aten' or 'modules', whose programs have the operators of torch"
    return f"give programs that it rewrites, as programs=[(program, args)]{real}"


def ask_laws(
    transform: Transform,
    *,
    laws: Iterable[Law] = GENERIC,
    stage: Stage = "flat",
    tier: Tier = "toy",
    examples: int | None = None,
    seed: int | None = None,
    programs: Iterable[Any] = (),
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Report:
    """Do what ``check_transformation`` does, and leave it to the caller how many programs should have been changed.

    Args:
        transform: see ``check_transformation``, as for the others.
        laws: what should hold.
        stage: of the programs.
        tier: where they come from.
        examples: how many are drawn.
        seed: draws others.
        programs: the user's own.
        rtol: relative tolerance.
        atol: absolute tolerance.

    >>> ask_laws(lambda program: program, examples=5).changed
    0
    """
    __tracebackhide__ = True
    transform = as_step(transform)
    own = cases_of(programs, stage=stage)
    asked = check_question(transform, laws, stage, tier, examples, given=bool(own), tolerances=(rtol, atol))
    tolerance = Tolerance(rtol, atol)
    count = share(EXAMPLES[tier]) if examples is None else examples
    number = (0 if active().always_the_same else secrets.randbits(32)) if seed is None else seed
    yours = fitting(transform, [evolve(case, tolerance=tolerance) for case in own], "given programs")
    cases = [evolve(case, tolerance=tolerance) for case in drawn_cases(tier, stage, count, number)] if count else []
    theirs = check_fits(transform, stage, tier, cases)
    for law in asked:
        error = _first(transform, law, yours.cases)
        if error is not None:
            raise error.with_traceback(None) from None
        error = _first(transform, law, theirs.cases)
        if error is not None:
            made = attempts(tier, stage)
            found = smallest(transform, law, made, examples=count, number=number, tolerance=tolerance)
            shown = found or error
            shown.add_note(f"The programs: tier={tier!r}, stage={stage!r}, examples={count}, seed={number}.")
            raise shown.with_traceback(None) from None
    return _report(transform, asked, theirs, yours)


def _report(transform: Transform, laws: Sequence[Law], drawn: Fitting, given: Fitting) -> Report:
    refused, dead = drawn.refused, drawn.dead + given.dead
    return Report(name_of(transform), len(laws), len(drawn.cases), drawn.changed, refused, len(given.cases), given.changed, dead)


def _first(transform: Transform, law: Law, cases: Sequence[Case]) -> LawBroken | None:
    for case in cases:
        try:
            assert_law(transform, law, case)
        except LawBroken as error:
            return error
    return None
