"""Every error that purefx raises on purpose, in one small tree.

Each class also derives from the builtin that a caller would catch, and each message says what is wrong,
where (``layers.3.attn / linear_7`` and the user's source line) and what to do.  Nothing here formats a
program: the callers pass finished text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verify.violation import Violation

__all__ = [
    "CallError",
    "DiffError",
    "InputError",
    "InputValueError",
    "InvalidProgram",
    "ModeWarning",
    "ParseError",
    "PipelineError",
    "PurefxError",
    "SwapError",
    "UnsupportedProgram",
]


class PurefxError(Exception):
    """The root of everything that purefx raises on purpose.

    >>> issubclass(UnsupportedProgram, PurefxError)
    True
    """


class InvalidProgram(PurefxError, ValueError):
    """A program breaks invariants; ``violations`` holds all of them.

    Args:
        violations: what ``verify`` found, in program order; never empty.

    >>> issubclass(InvalidProgram, ValueError)
    True
    """

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        count = len(self.violations)
        head = f"the program breaks {count} invariant{'' if count == 1 else 's'}:"
        super().__init__("\n\n".join([head, *(str(violation) for violation in self.violations)]))

    def __reduce__(self) -> tuple[type[InvalidProgram], tuple[tuple[Violation, ...]]]:
        return InvalidProgram, (self.violations,)


class UnsupportedProgram(PurefxError, NotImplementedError):
    """A program uses something that purefx cannot represent or run faithfully.

    >>> issubclass(UnsupportedProgram, NotImplementedError)
    True
    """


class PipelineError(PurefxError, ValueError):
    """A pipeline is ordered so that a transformation can not get what it requires.

    >>> issubclass(PipelineError, ValueError)
    True
    """


class SwapError(PurefxError, ValueError):
    """A module can not be swapped for what was given: the message says which, why, and what to do.

    >>> issubclass(SwapError, ValueError)
    True
    """


class FuelError(PurefxError, TypeError, ValueError):
    """A transformation can not be stopped as asked, or there is nothing that a search with fuel could find.

    >>> issubclass(FuelError, TypeError), issubclass(FuelError, ValueError)
    (True, True)
    """


class ParseError(PurefxError, ValueError):
    """A text is not a program; the message has the line and the column.

    >>> issubclass(ParseError, ValueError)
    True
    """


class CallError(PurefxError, TypeError, RuntimeError):
    """A module inside a lowered program was called, or answers a call, otherwise than its preserved signature says.

    >>> issubclass(CallError, TypeError), issubclass(CallError, RuntimeError)
    (True, True)
    """


class InputError(PurefxError, TypeError, ValueError):
    """A lowered module was called with arguments of the wrong structure.

    >>> issubclass(InputError, TypeError)
    True
    """


class InputValueError(PurefxError, RuntimeError, ValueError, AssertionError):
    """An argument of a lowered module has a wrong type, shape, dtype or value.

    It is what the peers raise: ``ep.module()`` an ``AssertionError``, unflatten a ``RuntimeError``.

    >>> issubclass(InputValueError, AssertionError), issubclass(InputValueError, RuntimeError)
    (True, True)
    """


class DiffError(PurefxError, ValueError):
    """A diff was applied to a program that it does not fit.

    >>> issubclass(DiffError, ValueError)
    True
    """


class ModeWarning(UserWarning):
    """A lowered module was switched to a mode that is not the one that was written into its program.

    >>> issubclass(ModeWarning, UserWarning)
    True
    """
