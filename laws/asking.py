"""Test one law on one case, and find the smallest case on which it is broken.

``watched`` checks that the transformation does not change its argument.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from typing import Any

import torch
from attrs import evolve, frozen
from attrs.exceptions import FrozenInstanceError
from hypothesis import Phase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from ..ir.analysis.diff import diff
from ..ir.errors import PipelineError, PurefxError, UnsupportedProgram
from ..ir.program import Program
from ..ir.state import same_contents, slot_values
from ..transforms import Transformation
from .evaluate import EXACT, Contents, Tolerance
from .law import GENERIC, Case, Law, Transform, differs
from .purity import tensors_in
from .tiers import RUN, draw, examples_of


class NoTransformation(PurefxError, TypeError):
    """A function does not return a program, or changes its argument.

    Args:
        message: the fault and its remedy.
        writes: whether it changes the program; else its result is wrong.

    >>> issubclass(NoTransformation, TypeError)
    True
    """

    def __init__(self, message: str, *, writes: bool = False) -> None:
        super().__init__(message)
        self.writes = writes


def watched(transform: Callable[..., Any]) -> Callable[..., Program]:
    """Return the function with checks of each call; a Transformation stays one.

    Args:
        transform: the function from programs to programs.

    Raises:
        NoTransformation: from the calls: it did not return a program, or wrote into its argument.

    >>> from purefx.ir import Graph
    >>> watched(lambda program: None)(Program.of({"": Graph((), (), ())}))
    Traceback (most recent call last):
    ...
    purefx.laws.asking.NoTransformation: it returned None; return a program, and the same object when there is nothing to do
    """
    if isinstance(transform, Transformation):
        return evolve(transform, apply=watched(transform.apply))

    @wraps(transform)
    def checked(program: Program, **options: Any) -> Program:
        tensors = tensors_in(slot_values(program.state)).items()
        before = [
            (name, tensor, tensor.detach().clone())
            for name, tensor in tensors
            if not tensor.is_meta
        ]
        written: list[str] = []
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
            for name, tensor, contents in before:
                if not same_contents(tensor.detach(), contents):
                    written.append(repr(name))
                    with torch.no_grad():
                        tensor.copy_(contents)
        if written:
            raise NoTransformation(
                f"it writes into the tensors of {', '.join(written)}, which all versions of the program share; "
                "clone a tensor before you write, and put the clone into the state of the result",
                writes=True,
            )
        if not isinstance(result, Program):
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoTransformation(
                f"it returned {what}; return a program, and the same object when there is nothing to do"
            )
        return result

    return checked


@contextmanager
def unwarned() -> Generator[None]:
    """Ignore warnings about generated programs: the user of a checker did not write these and cannot mend them.

    >>> import warnings
    >>> with warnings.catch_warnings(action="error"), unwarned():
    ...     warnings.warn("about a generated program")
    """
    with warnings.catch_warnings(action="ignore"):
        yield


PURE = next(law for law in GENERIC if law.name == "pure")


class LawBroken(PurefxError, AssertionError):
    """A law does not hold for a transformation.

    Args:
        message: the whole text.
        law: the law.
        case: the program, and the seed of its variants.

    >>> issubclass(LawBroken, AssertionError)
    True
    """

    def __init__(self, message: str, law: Law, case: Case) -> None:
        super().__init__(message)
        self.law = law
        self.case = case


def name_of(transform: Any) -> str:
    """Return the name of a function in messages.

    Args:
        transform: a function, a ``Transformation`` or a rule.

    >>> name_of(lambda program: program)
    '<lambda>'
    """
    return (
        getattr(transform, "name", None) or getattr(transform, "__name__", None) or repr(transform)
    )


def assert_law(transform: Transform, law: Law, case: Case) -> None:
    """Raise unless a law holds on one case.

    Args:
        transform: the function from programs to programs.
        law: the law.
        case: the program, its variants, and how to run it.

    Raises:
        LawBroken: it does not hold, or the transformation raises; the message has the law, the violations, the changes to
            the program, and the program.

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


def is_changed(transform: Transform, case: Case) -> bool | None:
    """Return whether a transformation changes the program of a case; None if it refuses it, so that no law is tested.

    Args:
        transform: the function from programs to programs; it refuses a program if it raises ``UnsupportedProgram``.
        case: the program.

    Raises:
        PipelineError: it requires a fact that the program does not have.

    >>> from purefx.ir import Graph
    >>> is_changed(lambda program: program, Case(Program.of({"": Graph((), (), ())})))
    False
    """
    try:
        return differs(watched(transform)(case.program), case.program)
    except UnsupportedProgram:
        return None
    except PipelineError:
        raise
    except Exception:  # noqa: BLE001  the laws report it
        return False


def _broken(transform: Transform, law: Law, case: Case, wrong: list[str]) -> LawBroken:
    head = f"{name_of(transform)} breaks the law {law.name!r}: {law.statement}"
    lines = [
        head,
        *wrong,
        *_changes(transform, case.program),
        *_arguments(case),
        "on the program",
        case.program.text(),
    ]
    return LawBroken("\n".join(lines), law, case)


def _changes(transform: Transform, program: Program) -> list[str]:
    try:
        result = watched(transform)(program)
    except Exception:  # noqa: BLE001  it is reported already
        return []
    if result is program:
        return ["it returns the program itself"]
    # Facts that the function establishes are noise, unless nothing else differs.
    changes = diff(program, result.evolve(facts=program.facts)) or diff(program, result)
    return (
        ["the changes:", str(changes)]
        if changes
        else ["it returns an equal program that is another object"]
    )


def _arguments(case: Case) -> list[str]:
    if not case.calls:
        return []
    state = [f"  {name} = {_shown(slot.value)}" for name, slot in case.program.state.pairs]
    calls = [f"  ({', '.join(map(_shown, leaves))})" for leaves in case.calls]
    return [*(["with the state:", *state] if state else []), "called with:", *calls]


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor) and not value.is_meta:
        return repr(Contents(value))
    return f"a {type(value).__name__}" if isinstance(value, torch.nn.Module) else repr(value)


# -- sources of programs ---------------------------------------------------------------------------------------------------------


class _TimeIsUp(KeyboardInterrupt):
    """A ``KeyboardInterrupt`` passes through hypothesis at once."""


@frozen
class Source:
    """A strategy of cases, and the number of draws.

    >>> from .tiers import attempts
    >>> len(Source(attempts("toy", "flat"), 3, 0).cases())
    3
    """

    strategy: SearchStrategy[Case | None]
    """None if nothing valid was drawn."""
    count: int
    number: int
    """The seed."""
    tolerance: Tolerance = EXACT
    longest: int = RUN
    """The length of one run of hypothesis."""
    origin: str = ""
    """Where the programs come from, for messages."""
    seconds: float = 30.0
    """The time for shrinking.  Real programs are exported again for each step; toy programs take a second."""

    def cases(self) -> list[Case]:
        """Return the drawn cases, the same ones each time."""
        with unwarned():
            drawn = _drawn(self.strategy, self.count, self.number, self.longest)
        return [evolve(case, tolerance=self.tolerance) for case in drawn if case is not None]

    def smallest(self, transform: Transform, law: Law) -> LawBroken | None:
        """Return the error of the smallest case found; None if none of the drawn cases breaks the law."""
        broken: list[LawBroken] = []
        until: list[float] = []

        def holds(case: Case | None) -> None:
            if until and time.process_time() > until[0]:
                raise _TimeIsUp
            if case is None or is_changed(transform, case) is None:
                return
            try:
                assert_law(transform, law, evolve(case, tolerance=self.tolerance))
            except LawBroken as error:
                until.append(time.process_time() + self.seconds)
                broken.append(error)
                raise

        # hypothesis reports the place or flakiness; our error has the program.
        with unwarned(), suppress(LawBroken, PipelineError, Flaky, _TimeIsUp):
            draw(
                self.strategy,
                holds,
                self.count,
                self.number,
                Phase.generate,
                Phase.shrink,
                longest=self.longest,
            )
        return min(broken, key=size_of, default=None)

    def __str__(self) -> str:
        return f"The programs: {self.origin}examples={self.count}, seed={self.number}."


@lru_cache(maxsize=8)
def _drawn(
    strategy: SearchStrategy[Case | None], count: int, number: int, longest: int
) -> list[Case | None]:
    return examples_of(strategy, count, number, longest=longest)


def size_of(error: LawBroken) -> tuple[int, int]:
    """Return the size of the program of an error: its nodes, and the length of its text."""
    program = error.case.program
    return sum(1 for _ in program.nodes()), len(program.text())
