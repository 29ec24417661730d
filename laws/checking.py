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

import torch
from attrs import define, evolve, field, frozen

from ..ir.calls.compatibility import spelled
from ..ir.errors import PipelineError, PurefxError, UnsupportedProgram
from ..ir.importing import import_ep
from ..ir.names import did_you_mean, escaped
from ..ir.program import Program
from ..ir.signature import UserInput
from ..ir.taking import is_function, kind_of
from ..ir.torch_private import pytree
from ..ir.verify import check
from ..transforms.pipeline import as_step
from .asking import LawBroken, assert_law, name_of, smallest, watched
from .evaluate import Tolerance
from .law import GENERIC, Case, Law, Transform, changes_what_is_live, differs
from .strategies import STAGES, Stage
from .tiers import EXAMPLES, TIERS, Tier, active, at_stage, attempts, case_with_calls, drawn_cases, share, stages_of

__all__ = [
    "Asked",
    "FewChanges",
    "LawBroken",
    "NothingChecked",
    "Report",
    "WrongQuestion",
    "ask",
    "ask_laws",
    "assert_law",
    "cases_of",
    "check_examples",
    "check_question",
    "check_transformation",
    "seed_of",
]

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
    outline keeps 15 laws: it changed ... of 5 programs that were drawn
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
    checked = check_question(transform, laws, stage, tier, examples, given=bool(own), tolerances=(rtol, atol))
    tolerance = Tolerance(rtol, atol)
    count = share(EXAMPLES[tier]) if examples is None else examples
    number = seed_of(seed)
    yours = ask(transform, checked, [evolve(case, tolerance=tolerance) for case in own])
    if (error := _plainest(yours.broken, checked)) is not None:
        raise error.with_traceback(None) from None
    try:
        theirs = ask(transform, checked, [evolve(case, tolerance=tolerance) for case in drawn_cases(tier, stage, count, number)])
    except PipelineError as refusal:
        taken = [other for other in stages_of(tier) if _takes(transform, drawn_cases(tier, other, count))]
        advice = f"it takes stage={' or '.join(map(repr, taken))}" if taken else "it takes programs of no stage"
        raise PipelineError(f"{refusal}. Programs of stage={stage!r} are what it was asked on; {advice}") from refusal
    if (error := _plainest(theirs.broken, checked)) is not None:
        assert error.law is not None
        made = attempts(tier, stage)
        shown = smallest(transform, error.law, made, examples=count, number=number, tolerance=tolerance) or error
        shown.add_note(f"The programs: tier={tier!r}, stage={stage!r}, examples={count}, seed={number}.")
        raise shown.with_traceback(None) from None
    name = name_of(transform)
    for asked, what in ((yours, "given programs"), (theirs, "programs")):
        if asked.refused > asked.right:
            told = f"refuses {asked.refused} of {asked.refused + asked.right} {what} as unsupported; little would be checked"
            raise WrongQuestion(f"{name} {told}")
    return Report(
        name, len(checked), theirs.right, theirs.changed, theirs.refused, yours.right, yours.changed, yours.dead + theirs.dead
    )


def _plainest(broken: Sequence[LawBroken], laws: Sequence[Law]) -> LawBroken | None:
    # The first of the laws that are broken: the plainest ones come first.
    places = {law.name: number for number, law in enumerate(laws)}
    return min(broken, key=lambda error: places.get(error.law.name, 0) if error.law else 0, default=None)


def seed_of(seed: int | None) -> int:
    """Return the seed of the programs: always the same one by default, or another each time where the profile says so."""
    if seed is not None:
        return seed
    return 0 if active().always_the_same else secrets.randbits(32)


@define
class Asked:
    """What came of asking laws."""

    right: int = 0
    """How many programs all laws hold on."""
    changed: int = 0
    """How many of all programs were changed, in more than dead code."""
    dead: int = 0
    """How many more were changed, in dead code only: whatever is done there, nothing can differ."""
    refused: int = 0
    """How many other programs were refused; no law was asked there."""
    broken: list[LawBroken] = field(factory=list)
    """For each other program the first law that does not hold."""


def ask(transform: Transform, laws: Iterable[Law], cases: Iterable[Case], *, first_only: bool = False) -> Asked:
    """Ask laws of a transformation on cases, of each case until one law does not hold.

    Args:
        transform: a function from programs to programs.
        laws: what should hold.
        cases: the programs.
        first_only: whether to stop at the first case on which a law does not hold.

    Raises:
        PipelineError: it requires a fact that one of the programs does not have.

    >>> ask(lambda program: program, GENERIC[:1], drawn_cases("toy", "flat", 5))
    Asked(right=5, changed=0, dead=0, refused=0, broken=[])
    """
    found, look = Asked(), watched(transform)
    for case in cases:
        try:
            result = look(case.program)
            if differs(result, case.program):
                is_live = changes_what_is_live(result, case.program)
                found.changed, found.dead = found.changed + is_live, found.dead + (not is_live)
        except UnsupportedProgram:
            found.refused += 1
            continue
        except PipelineError:
            raise
        except Exception:  # noqa: BLE001, S110  the laws will tell
            pass
        try:
            for law in laws:
                assert_law(transform, law, case)
            found.right += 1
        except LawBroken as error:
            found.broken.append(error)
            if first_only:
                break
    return found


def _takes(transform: Transform, cases: Sequence[Case]) -> bool:
    try:
        ask(transform, (), cases)
    except PipelineError:
        return False
    return True


# -- arguments -------------------------------------------------------------------------------------------------------------------


CALLS = 2
"""How often in a row each is run, so that what is left in its state is seen."""

LONG = 300
"""Characters of arguments that a message shows."""

HOW = "write programs=[(program, args)] or [(model, args, kwargs)], where args is the tuple of positional arguments"


class WrongQuestion(PurefxError, TypeError, ValueError):
    """``check_transformation`` was called with something that no law can be asked with.

    >>> issubclass(WrongQuestion, TypeError), issubclass(WrongQuestion, ValueError)
    (True, True)
    """


def cases_of(programs: Iterable[Any], *, stage: Stage = "flat") -> list[Case]:
    """Return the cases of what a user gives.

    Args:
        programs: pairs of a program, an exported program or a module and the tuple of its arguments, or these and a dict
            of its keyword arguments.
        stage: where modules and exported programs are taken to; programs are left as they are.

    Raises:
        WrongQuestion: something in it is none of that, or cannot be run.

    >>> [case.program.main.nodes[0].do.name for case in cases_of([(torch.nn.ReLU(), (torch.ones(2),))])]
    ['aten.relu.default']
    """
    if isinstance(programs, str | Program | torch.nn.Module) or not isinstance(programs, Iterable):
        raise WrongQuestion(f"programs is a {type(programs).__name__}; {HOW}")
    return [_case(number, given, stage) for number, given in enumerate(programs)]


def _case(number: int, given: Any, stage: Stage) -> Case:
    what = f"programs[{number}]"
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WrongQuestion(f"{what} is a {type(given).__name__}; {HOW}")
    source, args, kwargs = (*given, {})[:3]
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        raise WrongQuestion(f"the arguments of {what} are a {type(args).__name__} and a {type(kwargs).__name__}; {HOW}")
    args = tuple(args)
    if isinstance(source, torch.nn.Module):
        try:
            source = torch.export.export(source, args, kwargs)
        except Exception as error:  # the exporter raises whatever its parts do
            raise WrongQuestion(f"{what} cannot be exported: {type(error).__name__}: {error}") from error
    if isinstance(source, torch.export.ExportedProgram):
        source = at_stage(import_ep(source), "aten", stage)
    if not isinstance(source, Program):
        raise WrongQuestion(f"{what} begins with a {type(source).__name__}, which is not a program, exported program or module")
    case = case_with_calls(check(source), [_leaves(what, source, args, kwargs)] * CALLS, seed=number)
    lacking = [name for name, slot in source.state.pairs if isinstance(slot.value, torch.Tensor) and slot.value.is_meta]
    if lacking:
        raise WrongQuestion(f"{what} has no contents for {lacking[0]!r}, so it cannot be run; parse or load it with state=...")
    try:
        case.meaning(source)
    except Exception as error:  # whatever its operators raise
        raise WrongQuestion(f"{what} cannot be run with its arguments: {type(error).__name__}: {error}") from error
    return case


def _leaves(what: str, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    spec = program.signature.in_spec
    if spec is not None and kwargs:
        wanted = spec.children()[1].context if len(spec.children()) == 2 else []
        kwargs = {name: kwargs[name] for name in wanted if name in kwargs} | kwargs
    leaves, found = pytree.tree_flatten((args, kwargs))
    count = sum(type(inner) is UserInput for inner in program.signature.inputs)
    if len(leaves) != count or (spec is not None and found != spec):
        takes = f"{count} values" if spec is None else f"the arguments {spelled(spec)[:LONG]}"
        raise WrongQuestion(f"{what} takes {takes}, and is given {spelled(found)[:LONG]}")
    return leaves


def check_question(
    transform: Any, laws: Any, stage: Any, tier: Any, examples: Any, *, given: bool = False, tolerances: Sequence[Any] = ()
) -> tuple[Law, ...]:
    """Return the laws that are to be asked.

    Args:
        transform: should be a function from programs to programs.
        laws: should be laws.
        stage: should be a stage of the tier.
        tier: should be a tier.
        examples: should be a number of programs, or None.
        given: whether there are programs that need not be drawn, so that it may be 0.
        tolerances: should be numbers from 0 on.

    Raises:
        WrongQuestion: one of them is not.

    >>> check_question(lambda program: program, [], "flat", "toy", 5)
    Traceback (most recent call last):
    ...
    purefx.laws.checking.WrongQuestion: laws is empty, so nothing would be checked; leave it out for the generic laws
    """
    if not is_function(transform) or isinstance(transform, type):
        raise WrongQuestion(f"check_transformation takes a function from programs to programs, not {kind_of(transform)}")
    for what, value, choices in (("tier", tier, TIERS), ("stage", stage, STAGES if tier not in TIERS else stages_of(tier))):
        if value not in choices:
            raise WrongQuestion(
                f"{value!r} is not a {what}; there are {', '.join(map(repr, choices))}{did_you_mean(value, choices)}"
            )
    check_examples(examples, given=given)
    for number in tolerances:
        if type(number) not in (int, float) or not 0 <= number < float("inf"):
            raise WrongQuestion(f"rtol and atol are numbers from 0 on, not {number!r}")
    found: tuple[Any, ...] = tuple(laws) if isinstance(laws, Iterable) else (laws,)
    if not isinstance(laws, Iterable) or not all(isinstance(law, Law) for law in found):
        how = "laws=[law for law in purefx.laws.law.GENERIC if law.name == 'meaning']"
        raise WrongQuestion(f"laws is a list of purefx.laws.law.Law, not {laws!r}; write {how}")
    if not found:
        raise WrongQuestion("laws is empty, so nothing would be checked; leave it out for the generic laws")
    return found


def check_examples(examples: Any, *, given: bool) -> None:
    """Raise unless a number of programs can be drawn; with programs of the user's it may be 0."""
    if examples is not None and (type(examples) is not int or examples < (0 if given else 1)):
        least = "a whole number, 0 for none but your own" if given else "a whole number above 0"
        raise WrongQuestion(f"examples is how many programs are drawn, {least}, not {examples!r}")
