"""``check_question``: what can be wrong with the arguments of ``check_transformation``, told before anything is drawn.

One idea: a question that checks nothing must not pass, so an empty list of laws is as wrong as a name that is none.
It asks no law.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from ..ir.errors import PipelineError, UnsupportedProgram
from .asking import name_of
from .law import Case, Law, Transform, differs
from .live import changes_what_is_live
from .strategies import Stage
from .tiers import TIERS, Tier, drawn_cases, stages_of
from .watching import watched
from .yours import WrongQuestion

__all__ = ["Fitting", "WrongQuestion", "check_fits", "check_question", "fitting"]


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
    purefx.laws.yours.WrongQuestion: laws is empty, so nothing would be checked; leave it out for the generic laws
    """
    if not callable(transform):
        raise WrongQuestion(f"check_transformation takes a function from programs to programs, not {_shown(transform)}")
    if isinstance(transform, type):
        raise WrongQuestion(f"{transform.__name__} is a class; give check_transformation an instance that can be called")
    _check_choice("tier", tier, TIERS)
    _check_choice("stage", stage, stages_of(tier), f" of the tier {tier!r}")
    if examples is not None and (type(examples) is not int or examples < (0 if given else 1)):
        least = "a whole number, 0 for none but your own" if given else "a whole number above 0"
        raise WrongQuestion(f"examples is how many programs are drawn that each law is asked of, {least}, not {examples!r}")
    for number in tolerances:
        if type(number) not in (int, float) or not 0 <= number < float("inf"):
            raise WrongQuestion(f"rtol and atol are numbers from 0 on, not {number!r}")
    return _laws(laws)


def _laws(laws: Any) -> tuple[Law, ...]:
    how = "laws are values of purefx.laws.law, like laws=[law for law in GENERIC if law.name == 'meaning']"
    if isinstance(laws, Law):
        raise WrongQuestion(f"laws is one law and should be several; write laws=[...] around {laws.name!r}")
    if isinstance(laws, str) or not isinstance(laws, Iterable):
        raise WrongQuestion(f"laws is {_shown(laws)}; {how}")
    found: tuple[Any, ...] = tuple(laws)
    for law in found:
        if not isinstance(law, Law):
            raise WrongQuestion(f"laws has {_shown(law)} in it; {how}")
    if not found:
        raise WrongQuestion("laws is empty, so nothing would be checked; leave it out for the generic laws")
    return found


def _shown(value: Any) -> str:
    return f"the {type(value).__name__} {value!r}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _check_choice(what: str, value: Any, choices: Sequence[str], of: str = "") -> None:
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise WrongQuestion(f"{value!r} is no {what}{of}; there are {', '.join(map(repr, choices))}{hint}")


@frozen
class Fitting:
    """The cases that a transformation does not refuse, and what it did to them.

    >>> Fitting((), changed=0, refused=0).cases
    ()
    """

    cases: tuple[Case, ...]
    changed: int
    """How many of their programs it makes another of, in more than dead code."""
    refused: int
    """How many other cases there are, which it says that it can not treat."""
    dead: int = 0
    """How many more of their programs it changes, in dead code only: whatever it does there, nothing can differ."""


def check_fits(transform: Transform, stage: Stage, tier: Tier, cases: Sequence[Case]) -> Fitting:
    """Return the cases that a transformation does not refuse; raise if it can not be asked at a stage at all.

    Args:
        transform: a function from programs to programs.
        stage: of the programs.
        tier: where they come from.
        cases: some of them.

    Raises:
        PipelineError: it requires a fact that programs of the stage do not have; the message names stages that do.
        WrongQuestion: it refuses most of the programs.

    >>> import purefx as px
    >>> found = check_fits(px.outline, "flat", "toy", drawn_cases("toy", "flat", 5))
    >>> len(found.cases), found.refused
    (5, 0)
    """
    try:
        return fitting(transform, cases, "programs")
    except PipelineError as refusal:
        taken = [other for other in stages_of(tier) if _takes(transform, drawn_cases(tier, other, len(cases)))]
        advice = f"it takes stage={' or '.join(map(repr, taken))}" if taken else "it takes programs of no stage"
        raise PipelineError(f"{refusal}. Programs of stage={stage!r} are what it was asked on; {advice}") from refusal


def fitting(transform: Transform, cases: Sequence[Case], what: str) -> Fitting:
    """Return the cases that a transformation does not refuse, and how many programs it changes.

    Args:
        transform: a function from programs to programs.
        cases: what it is asked on.
        what: how messages call them.

    Raises:
        PipelineError: it requires a fact that one of the programs does not have.
        WrongQuestion: it refuses most of the programs.

    >>> fitting(lambda program: program, drawn_cases("toy", "flat", 5), "programs").changed
    0
    """
    look = watched(transform)
    left: list[Case] = []
    changed = dead = 0
    for case in cases:
        try:
            result = look(case.program)
            if differs(result, case.program):
                is_live = changes_what_is_live(result, case.program)
                changed, dead = changed + is_live, dead + (not is_live)
        except UnsupportedProgram:
            continue
        except PipelineError:
            raise
        except Exception:  # noqa: BLE001, S110  the laws will tell
            pass
        left.append(case)
    refused = len(cases) - len(left)
    if 2 * len(left) < len(cases):
        told = f"refuses {refused} of {len(cases)} {what} as unsupported; little would be checked"
        raise WrongQuestion(f"{name_of(transform)} {told}")
    return Fitting(tuple(left), changed, refused, dead)


def _takes(transform: Transform, cases: Sequence[Case]) -> bool:
    try:
        fitting(transform, cases, "programs")
    except PipelineError:
        return False
    except WrongQuestion:
        return True
    return True
