"""All errors that purefx raises on purpose.

Each class also derives from the builtin that a caller would catch.  Each message describes the problem,
where (``layers.3.attn / linear_7`` and the user's source line) and what to do.  Nothing here formats a
program: the callers pass finished text.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from .names import escaped
from .persistent import Displayed

__all__ = [
    "ArgumentError", "CallError", "CaptureError", "CaptureWarning", "FlatCallWarning", "FxPassError", "InputError",
    "InputValueError", "InvalidProgram", "MinimizeError", "MissingDependency", "ModeWarning", "NamingError",
    "ParseError", "PartitionError", "PipelineError", "PurefxError", "RuleError", "StageError", "StoreError",
    "SwapError", "SwapWarning", "UnsupportedProgram", "Violation",
]  # fmt: skip


@frozen
class Violation(Displayed):
    """One broken invariant.

    >>> print(Violation("unique-names", "the name 'y' is already used by input 0", graph="enc", node="y", path="enc"))
    unique-names: the name 'y' is already used by input 0
      at enc / y
    """

    _form = "finding"
    rule: str
    """The name of the rule, as ``RULES`` lists it."""
    message: str
    """The violation in one sentence."""
    graph: str | None = None
    """The id of the graph; None for state, signature and the other parts of the program itself."""
    node: str | None = None
    """The name of the node or input; None for the whole graph."""
    path: str = ""
    """The module path to show: the innermost module call that the node is in."""
    context: tuple[str, ...] = ()
    """The printed lines around it; the line itself begins with ``>``."""
    source: str | None = None
    """The user's source line."""
    advice: str = ""
    """The advice."""
    count: int = 1
    """How many places have the same violation; the other fields describe the first."""
    also: tuple[str, ...] = ()
    """The next few of those places."""

    @property
    def where(self) -> str:
        """The place in readable form: ``layers.3.attn / linear_7``.

        >>> Violation("r", "m", graph="", node="y").where, Violation("r", "m").where
        ('the root graph / y', 'the program')
        """
        if self.graph is None:
            return self.node or "the program"
        place = self.path or self.graph or "the root graph"
        return f"{place} / {self.node}" if self.node else place

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.message}", f"  at {self.where}"]
        if self.count > 1:
            more = self.count - 1 - len(self.also)
            lines.append(f"  and at {', '.join(self.also)}{f' and {more:,} more' if more else ''}")
        lines.extend(f"    {line}" for line in self.context)
        if self.source:
            lines.append(f"  from {self.source}")
        if self.advice:
            lines.append(f"  to do: {self.advice}")
        return escaped("\n".join(lines))


def first_line(error: BaseException) -> str:
    r"""Return the first line of the message of an error; its class if it has none.

    >>> first_line(ValueError("wrong\nmore")), first_line(KeyboardInterrupt())
    ('wrong', 'KeyboardInterrupt')
    """
    return (str(error) or type(error).__name__).splitlines()[0]


class PurefxError(Exception):
    r"""Base class of all errors of purefx; unprintable characters in messages are escaped.

    >>> issubclass(UnsupportedProgram, PurefxError), str(UnsupportedProgram("\x1b[2J"))
    (True, '\\x1b[2J')
    """

    def __str__(self) -> str:
        return escaped(super().__str__())


SHOWN = 12
"""The number of violations in the text of an error; an untrusted program can break any number of invariants."""

LONGEST = 3000
"""The number of characters of each."""


class InvalidProgram(PurefxError, ValueError, Displayed):
    """A program breaks invariants; ``violations`` holds all of them.

    Args:
        violations: the result of ``verify``, in program order; never empty.

    >>> issubclass(InvalidProgram, ValueError)
    True
    """

    _form = "finding"

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        count = len(self.violations)
        head = f"the program breaks {count} invariant{'' if count == 1 else 's'}:"
        texts = [str(violation) for violation in self.violations[:SHOWN]]
        shown = [
            text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"
            for text in texts
        ]
        rest = [f"and {count - SHOWN:,} more; `violations` lists all"] if count > SHOWN else []
        super().__init__("\n\n".join([head, *shown, *rest]))

    def __reduce__(self) -> tuple[type[InvalidProgram], tuple[tuple[Violation, ...]]]:
        return InvalidProgram, (self.violations,)


class ArgumentError(PurefxError, TypeError):
    """An argument of a function of purefx has a wrong type or name; the message shows how to convert it.

    >>> issubclass(ArgumentError, TypeError)
    True
    """


class UnsupportedProgram(PurefxError, NotImplementedError):
    """A program uses a feature that purefx cannot represent or run faithfully.

    >>> issubclass(UnsupportedProgram, NotImplementedError)
    True
    """


class MissingDependency(PurefxError, ImportError):
    """An optional package is not installed; the message names the extra of purefx that installs it.

    >>> issubclass(MissingDependency, ImportError)
    True
    """


class EffectsError(PurefxError, ValueError):
    """Declared effects omit known effects of an operator.

    >>> issubclass(EffectsError, ValueError)
    True
    """


class PipelineError(PurefxError, ValueError):
    """A pipeline is ordered so that the requirements of a transformation cannot hold.

    >>> issubclass(PipelineError, ValueError)
    True
    """


class PartitionError(PurefxError, ValueError):
    """A program cannot be split as requested: the message names the nodes or modules and their connections.

    >>> issubclass(PartitionError, ValueError)
    True
    """


class SwapError(PurefxError, ValueError):
    """A module cannot be swapped for the replacement: the message names it, with the reason and a remedy.

    >>> issubclass(SwapError, ValueError)
    True
    """


class NamingError(PurefxError, ValueError):
    """Names do not fit a program: of inputs, of state, or of the module that the program is supposed to be a trace of.

    >>> issubclass(NamingError, ValueError)
    True
    """


class RuleError(PurefxError, ValueError):
    """A rewrite rule is invalid or cannot be applied: the message names the part and a replacement.

    >>> issubclass(RuleError, ValueError)
    True
    """


class FuelError(PurefxError, TypeError, ValueError):
    """A transformation cannot be limited by fuel as requested, or a search with fuel has nothing to find.

    >>> issubclass(FuelError, TypeError), issubclass(FuelError, ValueError)
    (True, True)
    """


class FxPassError(PurefxError, TypeError, ValueError):
    """A callable is not a pass over fx graphs, or its result is not a graph of the same program.

    >>> issubclass(FxPassError, TypeError)
    True
    """


class MinimizeError(PurefxError, ValueError):
    """A program cannot be reduced, because it does not have the fault that the smaller ones should have.

    >>> issubclass(MinimizeError, ValueError)
    True
    """


class ParseError(PurefxError, ValueError):
    """A text is not a valid program; the message has the line and the column.

    >>> issubclass(ParseError, ValueError)
    True
    """


class StoreError(PurefxError, ValueError):
    """A file is not a saved program (foreign, damaged, crafted, or of a later version), or the state does not fit it.

    >>> issubclass(StoreError, ValueError)
    True
    """


class CallError(PurefxError, TypeError, RuntimeError):
    """A module inside a lowered program was called, or returned, in a way that differs from its preserved signature.

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

    It derives from the errors of the alternatives: ``ep.module()`` raises ``AssertionError``, ``unflatten`` ``RuntimeError``.

    >>> issubclass(InputValueError, AssertionError), issubclass(InputValueError, RuntimeError)
    (True, True)
    """


class CaptureError(PurefxError, RuntimeError):
    """The exporter cannot trace a module; the message names the line, and the exporter's error is the cause.

    >>> issubclass(CaptureError, RuntimeError)
    True
    """


class CaptureWarning(UserWarning):
    """A module does something that its exported program does not: a custom backward, a hook, a seed.

    >>> issubclass(CaptureWarning, UserWarning)
    True
    """


class SwapWarning(CaptureWarning):
    """A replacement of a module may change more calls than in eager mode: a strict export lost under which name each was made.

    >>> issubclass(SwapWarning, CaptureWarning)
    True
    """


class FlatCallWarning(UserWarning):
    """``outline`` left a module call flat, because its nodes cannot be made contiguous.

    >>> issubclass(FlatCallWarning, UserWarning)
    True
    """


class ModeWarning(UserWarning):
    """A lowered module was switched to a mode other than the one baked into its program.

    >>> issubclass(ModeWarning, UserWarning)
    True
    """


class StageError(PurefxError, ValueError):
    """The parts of a program cannot be stages of ``torch.distributed.pipelining``; ``faults`` lists all reasons.

    Args:
        head: the first line of the message.
        faults: a line for each place.

    >>> print(StageError("no stages:", ["stage1 takes n"]))
    no stages:
    - stage1 takes n
    """

    def __init__(self, head: str, faults: Sequence[str] = ()) -> None:
        self.head = head
        self.faults = tuple(faults)
        super().__init__("\n".join([head, *(f"- {fault}" for fault in self.faults)]))

    def __reduce__(self) -> tuple[type[StageError], tuple[str, tuple[str, ...]]]:
        return StageError, (self.head, self.faults)
