"""``check_transformation``: test your own ``Program -> Program`` against laws, in one line of your test file.

Each law is tested on generated programs and on yours.  If one is broken, the error shows the law, the smallest program found
as text for ``px.parse``, and its changes.  If no program was changed, nothing was tested, and the check fails.
Requires the extra ``laws`` (hypothesis).
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import Factory, define, evolve, frozen

from ..ir.errors import InputError, PipelineError, PurefxError
from ..ir.importing import import_ep
from ..ir.names import did_you_mean, escaped
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.validation import is_function, kind_of
from ..ir.verify import check
from ..lowering.calls.arguments import CallPlan
from ..transforms.pipeline import as_step
from .asking import LawBroken, Source, assert_law, is_changed, name_of, size_of, unwarned
from .evaluate import Tolerance
from .law import GENERIC, Case, Law, Transform
from .strategies import STAGES, Stage
from .tiers import EXAMPLES, TIERS, Tier, active, at_stage, attempts, drawn_cases, share, stages_of

FEW = 0.1
"""The share of changed programs below which the checkers warn."""


class NothingChecked(PurefxError, AssertionError):
    """No program was changed, so the laws were not tested.

    Args:
        message: the counts and the remedy.
        report: the outcome of the checker, if it has one.

    >>> issubclass(NothingChecked, AssertionError)
    True
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class FewChanges(UserWarning):
    """Less than a tenth of the programs were changed, so little was tested.

    >>> issubclass(FewChanges, UserWarning)
    True
    """


class WrongQuestion(PurefxError, TypeError, ValueError):
    """An argument of a checker is invalid.

    >>> issubclass(WrongQuestion, TypeError), issubclass(WrongQuestion, ValueError)
    (True, True)
    """


@frozen
class Report:
    """The programs that were tested, if all laws hold.

    >>> print(Report("soften", 14, drawn=50, changed=12, refused=3, given=1, given_changed=1))
    soften keeps 14 laws: it changed 12 of 50 programs that were drawn (3 more refused) and 1 of 1 given
    >>> print(Report("soften", 14, drawn=0, changed=0, refused=0, given=2, given_changed=1))
    soften keeps 14 laws: it changed 1 of 2 given
    """

    name: str
    """The function."""
    laws: int
    drawn: int
    """Generated programs."""
    changed: int
    """Generated programs that the function changed."""
    refused: int
    """Further generated programs, for which it raised ``UnsupportedProgram``; no law was tested there."""
    given: int = 0
    """Programs of the user."""
    given_changed: int = 0

    @property
    def share(self) -> float:
        """The share of changed programs, among the drawn ones or the user's, whichever is larger."""
        return max(self.changed / max(self.drawn, 1), self.given_changed / max(self.given, 1))

    def __str__(self) -> str:
        refused = f" ({self.refused} more refused)" if self.refused else ""
        given = f"{self.given_changed} of {self.given} given" if self.given else ""
        drawn = (
            f"{self.changed} of {self.drawn} programs that were drawn{refused}"
            if self.drawn or refused or not given
            else ""
        )
        return escaped(
            f"{self.name} keeps {self.laws} laws: it changed {' and '.join(filter(None, (drawn, given)))}"
        )


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
    """Raise unless a transformation keeps the laws, on generated programs and on the user's own.

    Args:
        transform: the function from programs to programs.
        laws: the laws to test; the generic laws hold for every transformation that keeps the meaning.
        stage: the stage of the programs; see ``purefx.laws.strategies.programs``.
        tier: ``"toy"`` are programs of integer operators, ``"aten"`` exported programs of real operators, ``"modules"``
            generated modules that ``torch.export`` exported; see ``purefx.laws.tiers.cases``.
        examples: the number of programs to draw; by default 200 of integers, 50 of operators, 10 of modules, times the factor
            of the hypothesis profile.  With ``programs`` it may be 0.
        seed: selects the programs; by default always the same ones, unless the profile draws new ones each time.
        programs: your own, tested first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a ``Program``, or
            an ``ExportedProgram`` or a ``torch.nn.Module``, which are converted to the stage.
        rtol: relative tolerance of floating point numbers; by default they are compared bit by bit.
        atol: absolute tolerance.

    Returns:
        The number of programs that were tested, and how many of them were changed.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.
        NothingChecked: no program was changed; pass ``programs``, or choose another tier or stage.
        WrongQuestion: an argument is invalid, or most programs were refused; it is a ``TypeError`` and a ``ValueError``.
        PipelineError: the transformation requires a fact that programs of the stage do not have.

    Warns ``FewChanges`` if fewer than a tenth of the programs were changed.  Programs for which the transformation raises
    ``UnsupportedProgram`` are skipped.

    >>> import purefx as px
    >>> print(check_transformation(px.outline, examples=5))  # doctest: +ELLIPSIS
    outline keeps 15 laws: it changed ... of 5 programs that were drawn
    >>> check_transformation(lambda program: program, examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.checking.NothingChecked: <lambda> changed none of 5 programs (tier='toy', stage='flat'), so nothing ...
    >>> check_transformation(lambda program: program.evolve(), laws=GENERIC[4:5], examples=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.asking.LawBroken: <lambda> breaks the law 'idempotent': doing it twice is doing it once
    ...
    """
    __tracebackhide__ = True  # pytest shows the user's line
    limits, transform = Tolerance(rtol, atol), as_step(transform)
    own = cases_of(programs, stage=stage)
    checked = check_question(
        transform, laws, stage, tier, examples, given=bool(own), tolerances=(rtol, atol)
    )
    count = share(EXAMPLES[tier]) if examples is None else examples
    origin = f"tier={tier!r}, stage={stage!r}, "
    source = Source(attempts(tier, stage), count, seed_of(seed), limits, origin=origin)
    yours = ask(transform, checked, [evolve(case, tolerance=limits) for case in own])
    if (error := first_broken(yours, transform, checked)) is not None:
        raise error.with_traceback(None) from None
    # All stages of a tier share their drawn programs.
    try:
        with unwarned():
            drawn = drawn_cases(tier, stage, count, source.number)
            theirs = ask(transform, checked, [evolve(case, tolerance=limits) for case in drawn])
    except PipelineError as error:
        raise PipelineError(
            f"{error}. The programs are of stage={stage!r}; pass a stage that it accepts"
        ) from error
    with unwarned():
        error = first_broken(theirs, transform, checked, source)
    if error is not None:
        raise error.with_traceback(None) from None
    name = name_of(transform)
    for asked, what in ((yours, "given programs"), (theirs, "programs")):
        if asked.refused > asked.right:
            counts = f"{asked.refused} of {asked.refused + asked.right} {what}"
            raise WrongQuestion(
                f"{name} refuses {counts} as unsupported, so little would be tested"
            )
    report = Report(
        name, len(checked), theirs.right, theirs.changed, theirs.refused, yours.right, yours.changed
    )
    counts = f"{theirs.changed + yours.changed or 'none'} of {theirs.right + yours.right} programs"
    real = (
        ""
        if tier != "toy"
        else ", or tier='aten' or 'modules', whose programs have the operators of torch"
    )
    advice = f"pass programs that it rewrites, as programs=[(program, args)]{real}"
    require_changes(
        report.share, f"{name} changed {counts} (tier={tier!r}, stage={stage!r})", advice, report
    )
    return report


def require_changes(share: float, counts: str, advice: str, report: Any) -> None:
    """Raise if no program was changed, and warn the user of the checker if few were."""
    if not share:
        raise NothingChecked(f"{counts}, so nothing was tested; {advice}", report)
    if share < FEW:
        warnings.warn(f"{counts}, so little was tested; {advice}", FewChanges, stacklevel=3)


def seed_of(seed: int | None) -> int:
    """Return the seed: the same one by default, or a new one each time, according to the profile."""
    if seed is not None:
        return seed
    return 0 if active() == "ci" else secrets.randbits(32)


# -- the driver ------------------------------------------------------------------------------------------------------------------


@define
class Asked:
    """The outcome of testing laws on cases."""

    right: int = 0
    """Programs on which all laws hold."""
    changed: int = 0
    """Programs that were changed."""
    refused: int = 0
    """Further programs that were refused; no law was tested there."""
    broken: list[LawBroken] = Factory(list)
    """The first broken law of each further program."""


def ask(
    transform: Transform, laws: Iterable[Law], cases: Iterable[Case], *, first_only: bool = False
) -> Asked:
    """Test laws on cases; stop at the first broken law of each case.

    Args:
        transform: a function from programs to programs.
        laws: the laws.
        cases: the programs.
        first_only: whether to stop at the first case on which a law does not hold.

    Raises:
        PipelineError: the function requires a fact that one of the programs does not have.

    >>> ask(lambda program: program, GENERIC[:1], drawn_cases("toy", "flat", 5))
    Asked(right=5, changed=0, refused=0, broken=[])
    """
    found = Asked()
    for case in cases:
        changed = is_changed(transform, case)
        if changed is None:
            found.refused += 1
            continue
        found.changed += changed
        try:
            for law in laws:
                assert_law(transform, law, case)
            found.right += 1
        except LawBroken as error:
            found.broken.append(error)
            if first_only:
                break
    return found


def by_law(broken: Iterable[LawBroken], laws: Sequence[Law]) -> list[list[LawBroken]]:
    """Return the errors of each broken law, in the order of the laws."""
    places = {law.name: number for number, law in enumerate(laws)}
    groups = grouped([(error.law.name, error) for error in broken])
    return [groups[name] for name in sorted(groups, key=lambda name: places.get(name, 0))]


def shrunk(
    errors: Sequence[LawBroken], transform: Transform, source: Source | None = None
) -> LawBroken:
    """Return the error of the smallest case that is found to break a law.

    Args:
        errors: the errors of the law, the first of them on the simplest case.
        transform: the function.
        source: draws smaller cases; None for cases that are not drawn.
    """
    if source is None:
        return errors[0]
    error = min(source.smallest(transform, errors[0].law) or errors[0], *errors, key=size_of)
    error.add_note(str(source))
    return error


def first_broken(
    found: Asked, transform: Transform, laws: Sequence[Law], source: Source | None = None
) -> LawBroken | None:
    """Return the error of the first law that is broken, or None."""
    errors = by_law(found.broken, laws)
    return shrunk(errors[0], transform, source) if errors else None


def broken(
    transform: Transform, laws: Sequence[Law], cases: Sequence[Case], source: Source | None = None
) -> LawBroken | None:
    """Test laws on cases; return the error of the first law that is broken, shrunk if the cases are of a source."""
    return first_broken(ask(transform, laws, cases), transform, laws, source)


# -- arguments -------------------------------------------------------------------------------------------------------------------


CALLS = 2
"""Consecutive calls of the user's programs: the second shows changes of the state by the first."""

HOW = "write programs=[(program, args)] or [(model, args, kwargs)], where args is the tuple of positional arguments"


def cases_of(programs: Iterable[Any], *, stage: Stage = "flat") -> list[Case]:
    """Return the cases of the user's programs.

    Args:
        programs: pairs of a program, an exported program or a module and the tuple of its arguments, or triples with a dict of
            keyword arguments.
        stage: the stage to convert modules and exported programs to; programs stay unchanged.

    Raises:
        WrongQuestion: an element has another form, or cannot be run.

    >>> [case.program.main.nodes[0].do.name for case in cases_of([(torch.nn.ReLU(), (torch.ones(2),))])]
    ['aten.relu.default']
    """
    if isinstance(programs, str | Program | torch.nn.Module) or not isinstance(programs, Iterable):
        raise WrongQuestion(f"programs is a {type(programs).__name__}; {HOW}")
    return [_case(number, given, stage) for number, given in enumerate(programs)]


def example_of(what: str, given: Any, how: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a source, its arguments and keyword arguments; raise ``WrongQuestion`` for another form."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WrongQuestion(f"{what} is a {type(given).__name__}; {how}")
    source, args, kwargs = (*given, {})[:3]
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        raise WrongQuestion(
            f"the arguments of {what} are a {type(args).__name__} and a {type(kwargs).__name__}; {how}"
        )
    return source, tuple(args), kwargs


def _case(number: int, given: Any, stage: Stage) -> Case:
    what = f"programs[{number}]"
    source, args, kwargs = example_of(what, given, HOW)
    if isinstance(source, torch.nn.Module):
        try:
            source = torch.export.export(source, args, kwargs)
        except Exception as error:  # the exporter raises any exceptions
            raise WrongQuestion(
                f"{what} cannot be exported: {type(error).__name__}: {error}"
            ) from error
    if isinstance(source, torch.export.ExportedProgram):
        source = at_stage(import_ep(source), "aten", stage)
    if not isinstance(source, Program):
        raise WrongQuestion(
            f"{what} begins with a {type(source).__name__}, which is not a program, exported program or module"
        )
    try:
        leaves = list(CallPlan(check(source)).bound(args, kwargs))
    except InputError as error:
        raise WrongQuestion(f"the arguments of {what} do not fit: {error}") from error
    case = Case(source, number, [leaves] * CALLS)
    lacking = [
        name
        for name, slot in source.state.pairs
        if isinstance(slot.value, torch.Tensor) and slot.value.is_meta
    ]
    if lacking:
        raise WrongQuestion(
            f"{what} has no contents for {lacking[0]!r}, so it cannot be run; parse or load it with state=..."
        )
    try:
        case.meaning(source)
    except Exception as error:  # operators raise any exceptions
        raise WrongQuestion(
            f"{what} cannot be run with its arguments: {type(error).__name__}: {error}"
        ) from error
    return case


def check_question(
    transform: Any,
    laws: Any,
    stage: Any,
    tier: Any,
    examples: Any,
    *,
    given: bool = False,
    tolerances: Sequence[Any] = (),
) -> tuple[Law, ...]:
    """Check the arguments of a checker, and return the laws.

    Args:
        transform: a function from programs to programs.
        laws: some laws.
        stage: a stage of the tier.
        tier: a tier.
        examples: a number of programs, or None.
        given: whether the user passed programs, so that ``examples`` may be 0.
        tolerances: numbers of at least 0.

    Raises:
        WrongQuestion: one of them is invalid.

    >>> check_question(lambda program: program, [], "flat", "toy", 5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purefx.laws.checking.WrongQuestion: laws is a list of purefx.laws.law.Law, not []; write laws=[law for law in ...
    """
    if not is_function(transform) or isinstance(transform, type):
        raise WrongQuestion(
            f"check_transformation takes a function from programs to programs, not {kind_of(transform)}"
        )
    for what, value, choices in (
        ("tier", tier, TIERS),
        ("stage", stage, STAGES if tier not in TIERS else stages_of(tier)),
    ):
        if value not in choices:
            several = ", ".join(map(repr, choices))
            raise WrongQuestion(
                f"{value!r} is not a {what}; choose from {several}{did_you_mean(value, choices)}"
            )
    check_examples(examples, given=given)
    for number in tolerances:
        if type(number) not in (int, float) or not 0 <= number < float("inf"):
            raise WrongQuestion(f"rtol and atol are numbers of at least 0, not {number!r}")
    found: tuple[Any, ...] = tuple(laws) if isinstance(laws, Iterable) else ()
    if not found or not all(isinstance(law, Law) for law in found):
        how = "laws=[law for law in purefx.laws.law.GENERIC if law.name == 'meaning']"
        raise WrongQuestion(f"laws is a list of purefx.laws.law.Law, not {laws!r}; write {how}")
    return found


def check_examples(examples: Any, *, given: bool) -> None:
    """Raise unless a number of programs can be drawn; with programs of the user it may be 0."""
    if examples is not None and (type(examples) is not int or examples < (0 if given else 1)):
        least = "a whole number, 0 for your own only" if given else "a whole number above 0"
        raise WrongQuestion(
            f"examples is the number of programs to draw, {least}, not {examples!r}"
        )
