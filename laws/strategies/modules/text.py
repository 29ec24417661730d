"""``BodyText``: one class while it is written, and the table of lines that an operation can be.

Numbers become lines of Python over the values and the state at hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from .library import SLOTS, Library, Made, Place, Result
from .recipe import SlotRecipe, Step

__all__ = ["BodyText", "Scope", "Written", "is_held", "write_step"]

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


def is_held(text: str) -> bool:
    """Return whether something hangs on the module, and is not a local of ``forward``.

    >>> is_held("self.m0.b1"), is_held("v1")
    (True, False)
    """
    return text.startswith("self.")


_NAME = re.compile(r"\bv\d+\b")

_BINDS = re.compile(r"\s*(v\d+(?:, v\d+)*) = (.*)")

_WRITES = re.compile(r"\s*v\d+[.\[]")


def _uses(line: str) -> set[str]:
    # To write to a value is no use of it.
    if (binds := _BINDS.match(line)) is not None:
        return set(_NAME.findall(binds[2])) - set(binds[1].split(", "))
    return set(_NAME.findall(line)[1:] if _WRITES.match(line) else _NAME.findall(line))


class BodyText:
    """What exists so far in one class.

    Args:
        library: what exists elsewhere.
        name: of the class.
        where: the module as the root writes it; None if it is one of several, so that no line of the root can tie it.

    >>> body = BodyText(Library(writes=True), "M1", None)
    >>> body.bind("x + 1")
    >>> print(body.text("def forward(self, x):"))
    class M1(nn.Module):
        def forward(self, x):
            v1 = x + 1
    """

    def __init__(self, library: Library, name: str, where: str | None) -> None:
        self.library, self.name, self.where = library, name, where
        self.init: list[str] = []
        self.lines: list[str] = []
        self.indent = 2
        self.values: list[str] = ["x"]
        self.state: list[Place] = []
        self.modules: list[tuple[str, Made]] = []
        self.flags: set[str] = set()
        self.is_pure = False
        """Whether what is written is a branch of a ``cond``."""
        self.is_wired = False
        self.count = 0

    def text(self, head: str) -> str:
        """Return the class as text, with the line that its ``forward`` begins with."""
        init = [f"        {line}" for line in self.init]
        start = ["    def __init__(self):", "        super().__init__()", *init] if init else []
        return "\n".join([f"class {self.name}(nn.Module):", *start, f"    {head}", *self.lines])

    def line(self, text: str) -> None:
        """Write a line of ``forward``."""
        self.lines.append("    " * self.indent + text)

    def fresh(self) -> str:
        """Return a new name of a local."""
        self.count += 1
        return f"v{self.count}"

    def bind(self, expression: str) -> None:
        """Write a line that gives an expression a name, and keep it as the latest value."""
        name = self.fresh()
        self.line(f"{name} = {expression}")
        self.values.append(name)

    def value(self, number: int) -> str:
        """Return one of the latest values."""
        return self.values[-1 - number % len(self.values)]

    def slot(self, drawn: SlotRecipe) -> None:
        """Write a piece of state, and what it is tied to."""
        kind = SLOTS[drawn.kind]
        name = f"{kind.kind[0]}{len(self.init)}"
        self.init.append(kind.new.format(name))
        place = Place(name + kind.key, kind.kind, kind.shape, kind.alone, kind.tied)
        if drawn.sharing == 5:
            return
        self.state.append(place.below("self"))
        if self.where is not None and not place.alone:
            self.is_wired |= self.library.share(place.below(self.where), drawn)

    def step(self, step: Step) -> None:
        """Write one operation."""
        written = write_step(step, Scope(self.values, self.state, self.is_pure, self.library.writes))
        for line in written.lines:
            self.line(line)
        if written.value is not None:
            self.bind(written.value)

    def last(self, since: int = 0) -> str:
        """Return the latest value, with what would have been computed for nothing added to it.

        Args:
            since: the number of the first value that may be added.
        """
        return " + ".join([self.values[-1], *[value for value in self._unused(since) if value != self.values[-1]]])

    def lost(self, results: list[str]) -> list[str]:
        """Return a further result, made of all that would have been computed for nothing; none if there is nothing.

        Args:
            results: what is returned anyway.
        """
        given = {name for result in results for name in _NAME.findall(result)}
        lost = [value for value in self._unused() if value not in given]
        return [" + ".join(lost)] if lost else []

    def _unused(self, since: int = 0) -> list[str]:
        if self.library.keeps_dead:
            return []
        used = {name for line in self.lines for name in _uses(line)}
        return [value for value in dict.fromkeys(self.values[since:]) if _NAME.fullmatch(value) and value not in used]

    def give(self, wanted: Result) -> Result:
        """Write what the body returns; what is wanted, or a value if there is no such thing."""
        buffers = [place.text for place in self.state if place.kind == "buffer" and place.shape == "3"]
        if wanted == "buffer" and not buffers:
            wanted = "value"
        if wanted in ("none", "buffer", "input") and (unused := self._unused()):
            if buffers:
                self.line(f"{buffers[-1]}.copy_(({' + '.join(unused)}).detach().mean(0))")
            else:
                wanted = "value"
        last, older = self.last(), self.values[len(self.values) // 2]
        match wanted:
            case "value":
                self.line(f"return {last}")
            case "pair":
                self.line(f"return {last}, {older}")
            case "dict":
                self.line(f'return {{"a": {last}, "none": None, "k": 1.5}}')
            case "none":
                self.line("return None")
            case "buffer":
                self.line(f"return {buffers[-1]}")
            case "input":
                self.line("return x")
        return wanted
