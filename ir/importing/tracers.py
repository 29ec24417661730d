"""Module stacks of any tracer, read by a small grammar.

Each tracer spells the path of a module in its own way; what cannot be read leaves the node at the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graph import Frame, Stack
from .reading import class_name

ROOTS = ("L__self__", "self")

TABLES = frozenset({"_modules"})
"""Attributes in which a module keeps its children."""

FORBIDDEN = frozenset("'\"\\")


def is_name(text: object) -> bool:
    r"""Say whether a text can name a module or an attribute in a graph: no quotes, no dot, nothing that cannot be seen.

    >>> is_name("layer 0"), is_name("a.b"), is_name("x'"), is_name("a\nb"), is_name("")
    (True, False, False, False, False)
    """
    return (
        type(text) is str
        and bool(text)
        and text.isprintable()
        and "." not in text
        and FORBIDDEN.isdisjoint(text)
        and text[0] != "/"
    )


def is_path(text: object) -> bool:
    """Return whether a text is a path of names with dots between them.

    >>> is_path("layers.0.weight"), is_path("a..b"), is_path("a.b'); import os")
    (True, False, False)
    """
    return type(text) is str and all(map(is_name, text.split(".")))


def read_place(text: object) -> str | None:
    """Return the path that a tracer spelled; "" for the root, None if the text is not a place.

    >>> read_place("L['self'].layers[0].up"), read_place("layers.0"), read_place("L__self__")
    ('layers.0.up', 'layers.0', '')
    >>> read_place("L['self']._modules['a']")
    'a'
    >>> read_place("L['self'].layers[i]"), read_place("__import__('os')")
    (None, None)
    """
    if type(text) is not str:
        return None
    roots = (text[: text.find("]") + 1], *ROOTS) if text.startswith(("L['", 'L["')) else ROOTS
    root = next((root for root in roots if text == root or text.startswith((f"{root}.", f"{root}["))), "")
    names = _steps(text[len(root) :] if root else f".{text}" if text else "")
    return None if names is None else ".".join(names)


def _steps(text: str) -> list[str] | None:
    names: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        end = _end_of_name(text, at + 1) if sign == "." else text.find("]", at) if sign == "[" else -1
        if end < 0:
            return None
        name = text[at + 1 : end] if sign == "." else _in_brackets(text[at + 1 : end])
        if name is None or not is_name(name) or (sign == "." and not name.replace("_", "a").isalnum()):
            return None
        at = end + (sign == "[")
        if not (name in TABLES and text[at : at + 1] == "["):
            names.append(name)
    return names


def _end_of_name(text: str, start: int) -> int:
    ends = [end for end in (text.find(".", start), text.find("[", start)) if end >= 0]
    return min(ends, default=len(text))


def _in_brackets(text: str) -> str | None:
    if text.isdecimal():
        return text
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "'\"" else None


class TracedStacks:
    """Reads the stacks of one graph, each distinct one once, and remembers the classes that they mention.

    >>> stacks = TracedStacks()
    >>> stacks.read({"": ("", "M"), "L__self___up": ("L['self'].up[0]", "Linear"), "x@1": ("up.0.act", "ReLU")})
    (Frame(path='up.0', call=0), Frame(path='up.0.act', call=1))
    """

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.last: dict[str, int] = {}
        """The highest number of a call of each module."""
        self._known: dict[Any, Stack] = {}
        self._around: dict[Frame, Stack] = {}

    def read(self, raw: object, *, below: str | None = None) -> Stack:
        """Return the stack below the root; () where there is none, or where it cannot be read.

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
            self.types.setdefault(place, class_name(value[1]) if isinstance(value[1], type | str) else "")
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
