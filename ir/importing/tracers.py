"""Module stacks that any tracer wrote become stacks of ``Frame``.

One idea: a stack says where a node came from and changes nothing of what it does, so a stack that makes no sense is
dropped, and what is left is legal: no call inside itself, and each call made in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..node import Frame, Stack
from .spellings import read_place

__all__ = ["TracedStacks"]


class TracedStacks:
    """Reads the stacks of one graph, each distinct one once, and remembers the classes that they mention.

    >>> stacks = TracedStacks()
    >>> stacks.read({"": ("", "M"), "L__self___up": ("L['self'].up[0]", "Linear"), "x@1": ("up.0.act", "ReLU")})
    (Frame(path='up.0', call=0, part=0), Frame(path='up.0.act', call=1, part=0))
    """

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.last: dict[str, int] = {}
        """The highest number of a call of each module."""
        self._known: dict[Any, Stack] = {}
        self._around: dict[Frame, Stack] = {}

    def read(self, raw: object, *, below: str | None = None) -> Stack:
        """Return the stack below the root; () where there is none, or where it can not be read.

        Args:
            raw: what the tracer wrote: a mapping from a key to (place, class).
            below: a module whose own call is left out, with all that is inside it.
        """
        if not isinstance(raw, Mapping) or not raw:
            return ()
        try:
            key = (tuple(raw.items()), below)
            stack = self._known.get(key)
        except TypeError:
            return ()
        if stack is None:
            stack = self._known[key] = self._legal(self._frames(key[0], below))
        return stack

    def _frames(self, entries: tuple[Any, ...], below: str | None) -> list[Frame]:
        frames: list[Frame] = []
        for key, value in entries:
            if type(key) is not str or type(value) is not tuple or len(value) != 2:
                return []
            spelled, _, inner = value[0].partition("@") if type(value[0]) is str else ("", "", "")
            place = read_place(spelled)
            if place is None:
                return []
            self.types.setdefault(place, _class_name(value[1]))
            if place == below:
                break
            number = key.rpartition("@")[2] if "@" in key else inner
            if place:
                frames.append(Frame(place, int(number) if number.isdecimal() and len(number) < 10 else 0))
        return frames

    def _legal(self, frames: list[Frame]) -> Stack:
        stack: Stack = ()
        for frame in frames:
            if frame in stack or self._around.setdefault(frame, stack) != stack:
                break
            stack = (*stack, frame)
            self.last[frame.path] = max(self.last.get(frame.path, 0), frame.call)
        return stack


def _class_name(kind: Any) -> str:
    if isinstance(kind, type):
        return f"{kind.__module__}.{kind.__qualname__}"
    return kind if type(kind) is str else ""
