"""The module stacks of tracers become stacks of ``Frame``: of exporters, and of tracers that spell paths as Dynamo does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..callables import class_name
from ..graph import Frame, Stack
from ..names import is_name
from ..torch_private import EMPTY_STACK_KEY

ROOTS = ("L__self__", "self")

TABLE = "_modules"
"""The attribute in which a module keeps its children."""

EXPORT_ROOT = "_export_root"
"""How the exporter calls the root in the bodies of operators."""

Entries = tuple[tuple[str, tuple[str, Any]], ...]
"""A module stack as tracers write it: pairs of a key and (path, class)."""

UNREAD: Any = object()

STEP = re.compile(r"""\.(?P<name>\w+)|\[(?:(?P<index>\d+)|(['"])(?P<text>[^\]]+)\3)\]""")
"""A step of a path as Dynamo spells it: ``.name``, ``[0]`` or ``['name']``."""


class StackReader:
    """Parses stacks, each distinct one once, and collects the class names that they mention."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._known: dict[Any, Stack | None] = {}
        self._frames: dict[tuple[str, str], Frame] = {}

    def read(self, raw: Mapping[str, tuple[str, Any]] | None, *, below: str | None = None) -> Stack | None:
        """Return the stack below the root module, or None if the tracer wrote none.

        Args:
            raw: what the tracer wrote.
            below: a module whose own call is left out, with all that is inside it.

        Raises:
            AttributeError, TypeError, ValueError: it is not a dict of key to (path, class).
        """
        if not raw:
            return None
        entries = tuple(raw.items())
        key = (entries, below) if below is not None else entries
        stack = self._known.get(key, UNREAD)
        if stack is UNREAD:
            stack = self._known[key] = self._parse(entries, below)
        return stack

    def _parse(self, entries: Entries, below: str | None) -> Stack | None:
        raise NotImplementedError

    def _frame(self, path: str, number: str) -> Frame:
        frame = self._frames.get((path, number))
        if frame is None:
            call = int(number) if number.isdecimal() and len(number) < 10 else 0
            frame = self._frames[path, number] = Frame(path, call)
        return frame

    def _note(self, place: str, kind: Any) -> None:
        if kind:  # "" where a program that was made again does not know the class
            self.types.setdefault(place, class_name(kind))


class ExportedStacks(StackReader):
    """Reads the stacks of an exported program.

    A strict export names a module by its identity and by the way on which it was reached.  Ways that are not in the hierarchy
    are replaced by the first path of the module, if there is one.

    Args:
        places: the paths of the hierarchy, in order.
        nodes: of all fx graphs.

    >>> ExportedStacks().read({"L__self__": ("", "M"), "L__self__a@1": ("a", "Sub")})
    (Frame(path='a', call=1),)
    """

    def __init__(self, places: Iterable[str] = (), nodes: Iterable[Any] = ()) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, None]] = {}
        """The paths under which calls of each module were made, by what the exporter calls the module."""
        self.where: dict[str, str] = {}
        """The place of each way that is not a path of the hierarchy."""
        self.numbers: dict[tuple[str, str], str] = {}
        """The number of each call that was reached on such a way, by way and key."""
        self._learn(dict.fromkeys(places), nodes)

    def _learn(self, places: Mapping[str, None], nodes: Iterable[Any]) -> None:
        ways: dict[str, dict[str, None]] = {}
        calls: dict[tuple[str, str], None] = {}
        for node in nodes:
            stack = node.meta.get("nn_module_stack")
            items = stack.items() if isinstance(stack, Mapping) else ()
            inner = [(value[0], key) for key, value in items if type(value) is tuple and value[0]]
            if inner and not inner[0][1].partition("@")[0].isdigit():
                return  # the exporter named places
            for way, key in inner:
                ways.setdefault(key.partition("@")[0], {})[way] = None
                calls[way, key] = None
        for found in ways.values():
            near = {way.removeprefix(EXPORT_ROOT).removeprefix(".") for way in found}
            place = next((path for path in places if path in near), None)
            if place is not None:
                self.where.update({way: place for way in found if way not in places})
        counts: dict[str, int] = {}
        for way, key in sorted(calls, key=lambda call: call[0] in self.where):
            place, number = self.where.get(way, way), key.rpartition("@")[2] if "@" in key else "0"
            if way in self.where:  # they come behind calls that are named by their place
                self.numbers[way, key] = str(counts.get(place, 0))
                counts[place] = counts.get(place, 0) + 1
            else:
                counts[place] = max(counts.get(place, 0), int(number) + 1)

    def _parse(self, entries: Entries, below: str | None) -> Stack | None:  # noqa: ARG002
        if len(entries) == 1 and entries[0][0] == EMPTY_STACK_KEY:
            return None
        frames: list[Frame] = []
        for key, (way, kind) in entries:
            name, _, number = key.partition("@")
            path = self.where.get(way, str(way))
            self._note(path, kind)
            self.objects.setdefault(name, {})[path] = None
            if path:
                frames.append(self._frame(path, self.numbers.get((way, key), number.rpartition("@")[2])))
        return tuple(frames)

    def cells(self, paths: Iterable[str]) -> dict[str, int]:
        """Return which modules are one object, as numbers by path.

        Args:
            paths: of the hierarchy, in order.

        >>> reader = ExportedStacks()
        >>> for path in ("a", "b"):
        ...     _ = reader.read({"L__self__": ("", "M"), "1234": (path, "Sub")})
        >>> reader.cells(["", "a", "b", "c"])
        {'a': 0, 'b': 0}
        """
        keys: dict[str, str] = {}
        for key, found in self.objects.items():
            if len(found) > 1 and len({self.types.get(path) for path in found}) == 1:
                keys.update(dict.fromkeys(found, key))
        numbers: dict[str, int] = {}
        shared = [path for path in paths if path and path in keys]
        return {path: numbers.setdefault(keys[path], len(numbers)) for path in shared}


class TracedStacks(StackReader):
    """Reads the stacks that any tracer wrote; those that cannot be read end where they cannot.

    >>> stacks = TracedStacks()
    >>> stacks.read({"": ("", "M"), "L__self___up": ("L['self'].up[0]", "Linear"), "x@1": ("up.0.act", "ReLU")})
    (Frame(path='up.0', call=0), Frame(path='up.0.act', call=1))
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}
        """The highest number of a call of each module."""
        self._around: dict[Frame, Stack] = {}

    def _parse(self, entries: Entries, below: str | None) -> Stack:
        stack: Stack = ()
        for key, (spelled, kind) in entries:
            spelled, _, inner = spelled.partition("@")
            place = read_place(spelled)
            if place is None:
                return ()
            self._note(place, kind)
            if place == below:
                break
            if place:
                frame = self._frame(place, key.rpartition("@")[2] if "@" in key else inner)
                if frame in stack or self._around.setdefault(frame, stack) != stack:
                    break
                stack = (*stack, frame)
                self.last[place] = max(self.last.get(place, 0), frame.call)
        return stack


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
    rest = text[len(root) :] if root else f".{text}" if text else ""
    names: list[str] = []
    while rest:
        step = STEP.match(rest)
        name: str = (step["name"] or step["index"] or step["text"]) if step else ""
        if step is None or not is_name(name):
            return None
        rest = rest[step.end() :]
        if not (name == TABLE and rest.startswith("[")):
            names.append(name)
    return ".".join(names)
