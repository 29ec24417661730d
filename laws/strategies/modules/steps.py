"""The text of one operation: a table from numbers to lines of Python over the values and the state at hand.

One idea: each entry gives lines and the expression of its result, and is total: where what it needs is missing it
becomes something that is always there.  Calls and regions are written elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from .made import Place
from .recipe import Step

__all__ = ["Scope", "Written", "write_step"]

PURE = (0, 1, 2, 3, 4, 16, 18, 20, 21)
"""Kinds that a branch of a ``cond`` may have: no writes, no random draws, no literals."""

UNARY = ("{0}.tanh()", "{0}.sin()", "{0} * 0.5", "-{0}", "{0}.sigmoid()", "torch.relu({0})", "{0}.clone()", "{0} + 1")

ALIASES = (
    "{0}.view(-1, 3)", "{0}[:]", "{0}.detach()", "{0}.t().t()", "{0}.unsqueeze(0)[0]", "{0}.contiguous()", "{0}.view_as({0})",
    "{0}.to(torch.float32)",
)  # fmt: skip

SIZES = (
    "{0} * {0}.shape[0]",
    "{0}.reshape({0}.shape[0] * 3).view({0}.shape[0], 3)",
    "{0} + {0}.size(0) // 2",
    "{0}.new_ones({0}.shape) + {0}",
)

MIXED = (
    "torch.cat([{0}, {1}], 1)[:, 1:4]", "torch.stack([{0}, {1}]).sum(0)", "torch.where({0} > {1}, {0}, {1})",
    "torch.addcmul({0}, {0}, {1}, value=0.5)", "({0} @ {1}.t()).tanh() @ {0}", "{0}.softmax(1) + {1}", "{0} - {1}.mean(0)",
    "torch.maximum({0}, {1}).cumsum(1)",
)  # fmt: skip


@frozen
class Scope:
    """What a step may use."""

    values: Sequence[str]
    """Locals of three columns, the latest last."""
    state: Sequence[Place]
    pure: bool
    """Whether only values may be made."""
    writes: bool
    """Whether values may be written in place."""

    def value(self, number: int) -> str:
        """Return one of the latest values."""
        return self.values[-1 - number % len(self.values)]

    def place(self, number: int, *kinds: str) -> Place | None:
        """Return a piece of state of some kind that has three numbers, if there is one."""
        found = [place for place in self.state if place.kind in kinds and place.shape != "3, 3"]
        return found[-1 - number % len(found)] if found else None


@frozen
class Written:
    """Lines to run, then the expression of a new value, if there is one."""

    lines: tuple[str, ...] = ()
    value: str | None = None


def write_step(step: Step, scope: Scope) -> Written:
    """Return the text of one operation.

    Args:
        step: what was drawn.
        scope: what is at hand.

    >>> write_step(Step(0, 0, 0), Scope(["x"], (), pure=False, writes=True))
    Written(lines=(), value='x.tanh()')
    """
    a, b = scope.value(step.first), scope.value(step.second)
    kind = step.kind if not scope.pure or step.kind in PURE else step.kind % 2
    match kind:
        case 0 | 18:
            return Written(value=UNARY[step.second].format(a))
        case 1:
            return Written(value=f"{a} {'+-*'[step.second % 3]} {scope.value(step.second + 1)}")
        case 2:
            return Written(value=(UNARY if scope.pure else ALIASES)[step.second].format(a))
        case 3 | 4 | 20 | 21:
            return _read(a, scope.place(step.second, "parameter", "buffer", "constant"), step)
        case 5 | 6 | 7 | 8 | 9 | 10 | 17 | 22 | 23:
            place = scope.place(step.second, "buffer")
            return Written(value=f"{a} * 2") if place is None else _write(kind, a, place, step, scope)
        case 11:
            return Written(value=f"{a} + torch.tensor([1.0, {float(step.second)}, -0.5])")
        case 12:
            random = ("torch.rand_like({0}) + {0}", "nn.functional.dropout({0}, 0.5)", "torch.randn(3) * {0}")
            return Written(value=random[step.second % 3].format(a))
        case 13 | 14:
            return _in_place(kind, a, b, step, scope)
        case 15:
            return Written(value=SIZES[step.second % 4].format(a))
        case _:
            return Written(value=MIXED[step.second].format(a, scope.value(step.second + 1)))


def _read(value: str, place: Place | None, step: Step) -> Written:
    if place is None:
        return Written(value=f"{value}.abs()")
    return Written(value=f"{value} {'+*'[step.first % 2]} {place.vector(step.first)}")


def _write(kind: int, value: str, place: Place, step: Step, scope: Scope) -> Written:
    text, vector = place.text, place.vector(step.first)
    other = scope.place(step.first + step.second + 1, "buffer") or place
    match kind:
        case 5:
            lines = (f"{text}.add_(1)",)
        case 6:
            lines = (f"{text}.mul_(0.5)",)
        case 7 | 23:
            views = ("{0}[0].add_(1)", "{0}.view(-1)[1:].mul_(0.5)", "{0}[..., 1].fill_({1}.0)", "{0}.t()[0].sub_(1)")
            lines = (views[step.first % 4].format(text, step.second),)
        case 8:
            lines = (f"torch.add({other.vector(step.second)}, 1, out={vector})",)
        # The exporter loses what a parent assigns: `self.m0.b0 = ...` leaves no trace in the exported program.
        case 10 if place.alone and text.count(".") == 1:
            lines = (f"{text} = {text} * 0.5 + 1",)
        case 17 | 22:
            lines = (f"{text}.add_(1)", f"{text}.mul_(0.5)")
        case _:
            lines = (f"{vector}.copy_({value}.detach().mean(0))",)
    return Written(lines)


def _in_place(kind: int, value: str, other: str, step: Step, scope: Scope) -> Written:
    if not scope.writes:
        return Written(value=f"{value}.sin()")
    whole = ("{0}.add_(1)", "{0}.mul_({1}.detach())", "{0}.tanh_()", "{0}.zero_()")
    views = ("{0}[0].add_(1)", "{0}[:, 1].mul_(0.5)", "{0}.t()[0].neg_()", "{0}[:, 0].copy_({1}[:, 2])")
    return Written(((whole if kind == 13 else views)[step.second % 4].format(value, other),))
