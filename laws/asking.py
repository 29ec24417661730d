"""``assert_law``: one law, asked of one transformation on one case, and the smallest case on which it is broken.

``watched`` guards the function that is asked: it may change nothing that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any

import torch
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import Phase, given, seed
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from ..ir.analysis.diff import diff
from ..ir.errors import PurefxError, UnsupportedProgram
from ..ir.program import Program
from ..ir.state import same_contents
from ..transforms import Transformation
from .evaluate import EXACT, Tolerance, contents_of
from .law import GENERIC, Case, Law, Transform
from .purity import tensors_in
from .tiers import RUN, draw_settings, runs_of, same_everywhere

__all__ = ["LawBroken", "NoTransformation", "assert_law", "name_of", "refuses", "size_of", "smallest", "watched"]


class NoTransformation(PurefxError, TypeError):
    """A function gives no program, or changes the one that it was given.

    Args:
        message: what it does, and what to do about it.
        writes: whether it changes the program; else it gives none.

    >>> issubclass(NoTransformation, TypeError)
    True
    """

    def __init__(self, message: str, *, writes: bool = False) -> None:
        super().__init__(message)
        self.writes = writes


def watched(transform: Transform) -> Transform:
    """Return a function that does the same and is looked at whenever it is called; a Transformation stays one.

    Args:
        transform: the function from programs to programs.

    Raises:
        NoTransformation: when called: it gave no program, or wrote into the one it got.

    >>> from purefx.ir import Graph
    >>> watched(lambda program: None)(Program.of({"": Graph((), (), ())}))
    Traceback (most recent call last):
    ...
    purefx.laws.asking.NoTransformation: it gave None; return a program, and the same object when there is nothing to do
    """
    if isinstance(transform, Transformation):
        return evolve(transform, apply=_watched(transform.apply))
    return _watched(transform)


def _watched(transform: Callable[..., Any]) -> Callable[..., Program]:
    @wraps(transform)
    def looked_at(program: Program, **options: Any) -> Program:
        tensors = tensors_in({name: slot.value for name, slot in program.state.pairs}).items()
        before = [(name, tensor, tensor.detach().clone()) for name, tensor in tensors if not tensor.is_meta]
        try:
            result = transform(program, **options)
        except (FrozenInstanceError, TypeError) as error:
            if isinstance(error, TypeError) and "item assignment" not in str(error):
                raise
            raise NoTransformation(
                f"it assigns to a part of a value ({error}); make a changed copy, with attrs.evolve(node, ...), "
                "program.with_main(graph) or program.evolve(...)",
                writes=True,
            ) from error
        finally:
            written = _put_back(before)
        if written:
            raise NoTransformation(
                f"it writes into the tensors of {', '.join(map(repr, written))}, which all versions of the program share; "
                "clone a tensor before you write, and give the result a state of its own",
                writes=True,
            )
        if not isinstance(result, Program):
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoTransformation(f"it gave {what}; return a program, and the same object when there is nothing to do")
        return result

    return looked_at


def _put_back(before: Iterable[tuple[str, torch.Tensor, torch.Tensor]]) -> list[str]:
    written: list[str] = []
    for name, tensor, contents in before:
        if not same_contents(tensor.detach(), contents):
            written.append(name)
            with torch.no_grad():
                tensor.copy_(contents)
    return written


PURE = next(law for law in GENERIC if law.name == "pure")


class LawBroken(PurefxError, AssertionError):
    """A transformation does not do what a law says.

    Args:
        message: all of it as text.
        law: the law.
        case: the program, and the seed of its variants.
        wrong: what the law's check found.

    >>> issubclass(LawBroken, AssertionError)
    True
    """

    def __init__(self, message: str, law: Law | None = None, case: Case | None = None, wrong: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.law = law
        self.case = case
        self.wrong = wrong


def name_of(transform: Transform) -> str:
    """Return what messages call a function.

    Args:
        transform: a function or a ``Transformation``.

    >>> name_of(lambda program: program)
    '<lambda>'
    """
    named = transform.name if isinstance(transform, Transformation) else getattr(transform, "__name__", None)
    return named or getattr(transform, "name", None) or repr(transform)


def assert_law(transform: Transform, law: Law, case: Case) -> None:
    """Raise unless a law holds on one case.

    Args:
        transform: the function from programs to programs.
        law: what should hold.
        case: the program, and how to vary and to run it.

    Raises:
        LawBroken: it does not, or the transformation raises; the message has the sentence, what is wrong, what was
            done to the program, and the program.

    >>> from purefx.ir import Graph
    >>> assert_law(lambda program: program, GENERIC[0], Case(Program.of({"": Graph((), (), ())})))
    """
    __tracebackhide__ = True
    try:
        wrong = law.check(watched(transform), case)
    except NoTransformation as error:
        raise _broken(transform, PURE if error.writes else law, case, [str(error)]) from error
    except Exception as error:
        raise _broken(transform, law, case, [f"{type(error).__name__}: {error}"]) from error
    if wrong:
        raise _broken(transform, law, case, wrong)


def refuses(transform: Transform, case: Case) -> bool:
    """Return whether a transformation says that it cannot treat the program of a case faithfully; then no law is asked.

    Args:
        transform: the function from programs to programs.
        case: the program.

    >>> from purefx.ir import Graph
    >>> refuses(lambda program: program, Case(Program.of({"": Graph((), (), ())})))
    False
    """
    try:
        watched(transform)(case.program)
    except UnsupportedProgram:
        return True
    except Exception:  # noqa: BLE001  the laws will tell
        return False
    return False


def _broken(transform: Transform, law: Law, case: Case, wrong: list[str]) -> LawBroken:
    head = f"{name_of(transform)} breaks the law {law.name!r}: {law.statement}"
    lines = [head, *wrong, *_done(transform, case.program), *_given(case), "on the program", case.program.text()]
    return LawBroken("\n".join(lines), law, case, tuple(wrong))


def _done(transform: Transform, program: Program) -> list[str]:
    try:
        result = watched(transform)(program)
    except Exception:  # noqa: BLE001  what it raises is reported already; there is no result to compare with
        return []
    if result is program:
        return ["it returns the program itself"]
    changes = diff(program, result)
    return ["what it does to it:", str(changes)] if changes else ["it returns an equal program, another object"]


def _given(case: Case) -> list[str]:
    # The numbers that it runs with, where they are not those of every program.
    if not case.calls:
        return []
    state = [f"  {name} = {_shown(slot.value)}" for name, slot in case.program.state.pairs]
    calls = [f"  ({', '.join(map(_shown, leaves))})" for leaves in case.calls]
    return [*(["with the state:", *state] if state else []), "called with:", *calls]


def _shown(value: Any) -> str:
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta
    return (
        repr(contents_of(value)) if plain else f"a {type(value).__name__}" if isinstance(value, torch.nn.Module) else repr(value)
    )


SECONDS = 30.0
"""For real programs, each of which is exported anew while it gets smaller; programs of integers take one or two."""


class _TimeIsUp(KeyboardInterrupt):
    """Passes through hypothesis, which keeps other errors for later."""


def smallest(
    transform: Transform,
    law: Law,
    made: SearchStrategy[Case | None],
    *,
    examples: int,
    number: int,
    seconds: float = SECONDS,
    tolerance: Tolerance = EXACT,
    longest: int = RUN,
) -> LawBroken | None:
    """Return what is said about the smallest case found; None if none of the drawn ones breaks the law.

    Args:
        transform: the function from programs to programs.
        law: what does not hold.
        made: where the cases come from; None where nothing came of what was drawn.
        examples: how many are drawn to find a first one.
        number: draws the same cases again as ``drawn_cases`` did.
        seconds: how long to look for smaller ones after the first.
        tolerance: how far floating point numbers may be apart.
        longest: how many one run of hypothesis draws, as where the cases were drawn.

    >>> from .law import GENERIC
    >>> from .tiers import cases
    >>> smallest(lambda program: program, GENERIC[0], cases(), examples=5, number=0) is None
    True
    """
    broken: list[LawBroken] = []
    until: list[float] = []

    def holds(case: Case | None) -> None:
        if until and time.monotonic() > until[0]:
            raise _TimeIsUp
        if case is None or refuses(transform, case):
            return
        try:
            assert_law(transform, law, evolve(case, tolerance=tolerance))
        except LawBroken as error:
            until.append(time.monotonic() + seconds)
            broken.append(error)
            raise

    # The errors of hypothesis say where a test failed, or that it did not fail again; ours say what the program is.
    with suppress(LawBroken, Flaky, _TimeIsUp), same_everywhere():
        for start, size in runs_of(examples, number, longest=longest):
            seed(start)(draw_settings(size, Phase.generate, Phase.shrink)(given(made)(holds)))()
    return min(broken, key=size_of, default=None)


def size_of(error: LawBroken) -> tuple[int, int]:
    """Return how large the program of an error is: its nodes, and its text.

    >>> size_of(LawBroken("nothing is shown"))
    (0, 0)
    """
    program = error.case.program if error.case else None
    return (sum(1 for _ in program.nodes()), len(program.text())) if program else (0, 0)
