"""``check_question``: what can be wrong with the arguments of ``check_transformation``, told before anything is drawn.

One idea: a question that checks nothing must not pass, so an empty list of laws is as wrong as a name that is none.
It asks no law.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.errors import PipelineError, PurefxError
from .asking import name_of, refuses
from .law import Case, Law, Transform
from .strategies import Stage
from .tiers import TIERS, Tier, drawn_cases, stages_of
from .watching import watched

__all__ = ["WrongQuestion", "check_fits", "check_question"]


class WrongQuestion(PurefxError, TypeError, ValueError):
    """``check_transformation`` was called with something that no law can be asked with.

    >>> issubclass(WrongQuestion, TypeError), issubclass(WrongQuestion, ValueError)
    (True, True)
    """


def check_question(transform: Any, laws: Any, stage: Any, tier: Any, examples: Any) -> tuple[Law, ...]:
    """Return the laws that are to be asked.

    Args:
        transform: should be a function from programs to programs.
        laws: should be laws.
        stage: should be a stage of the tier.
        tier: should be a tier.
        examples: should be a number of programs, or None.

    Raises:
        WrongQuestion: one of them is not.

    >>> check_question(lambda program: program, [], "flat", "toy", 5)
    Traceback (most recent call last):
    ...
    purefx.laws.arguments.WrongQuestion: laws is empty, so nothing would be checked; leave it out for the generic laws
    """
    if not callable(transform):
        raise WrongQuestion(f"check_transformation takes a function from programs to programs, not {_shown(transform)}")
    if isinstance(transform, type):
        raise WrongQuestion(f"{transform.__name__} is a class; give check_transformation an instance that can be called")
    _check_choice("tier", tier, TIERS)
    _check_choice("stage", stage, stages_of(tier), f" of the tier {tier!r}")
    if examples is not None and (type(examples) is not int or examples < 1):
        raise WrongQuestion(f"examples is how many programs each law is asked of, a whole number above 0, not {examples!r}")
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


def check_fits(transform: Transform, stage: Stage, tier: Tier, cases: Sequence[Case]) -> list[Case]:
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
    >>> len(check_fits(px.outline, "flat", "toy", drawn_cases("toy", "flat", 5)))
    5
    """
    refusal = _refusal(transform, cases)
    if refusal is None:
        return _not_refused(transform, cases)
    taken = [other for other in stages_of(tier) if _refusal(transform, drawn_cases(tier, other, len(cases))) is None]
    advice = f"it takes stage={' or '.join(map(repr, taken))}" if taken else "it takes programs of no stage"
    raise PipelineError(f"{refusal}. Programs of stage={stage!r} are what it was asked on; {advice}") from refusal


def _not_refused(transform: Transform, cases: Sequence[Case]) -> list[Case]:
    left = [case for case in cases if not refuses(transform, case)]
    if 2 * len(left) < len(cases):
        count = len(cases) - len(left)
        raise WrongQuestion(
            f"{name_of(transform)} refuses {count} of {len(cases)} programs as unsupported; little would be checked"
        )
    return left


def _refusal(transform: Transform, cases: Sequence[Case]) -> PipelineError | None:
    for case in cases:
        try:
            watched(transform)(case.program)
        except PipelineError as error:
            return error
        except Exception:  # noqa: BLE001, S112  the laws will tell
            continue
    return None
