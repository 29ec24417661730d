"""``BodyText``: one class while it is written: its state, the lines of its ``forward``, and the values in them.

One idea: values and state are lists, the latest last; a drawn number counts from the end.  Calls and regions are
written by the classes that derive from this one.
"""

from __future__ import annotations

import re

from .library import SLOTS, Library
from .made import Made, Place, Result
from .recipe import SlotRecipe, Step
from .steps import Scope, write_step

__all__ = ["BodyText", "is_held"]


def is_held(text: str) -> bool:
    """Say whether something hangs on the module, and is no local of ``forward``.

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
            results: what is given back anyway.
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
        """Write what the body gives back; what is wanted, or a value if there is no such thing."""
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
