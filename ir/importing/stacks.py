"""Module stacks of an exported program, parsed: each distinct one once, and what it has in common with others once for both.

A stack is one object wherever it is read, and so is each call in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..graph import Frame, Stack
from ..torch_private import EMPTY_STACK_KEY
from .module_calls import Aliases, Entries, call_of
from .reading import class_name


class StackReader:
    """Parses stacks, each distinct one once, and collects the class names that they mention.

    Args:
        places: the paths of the hierarchy.
        slots: the state behind each input of the root graph.
    """

    def __init__(self, places: Iterable[str] = (), slots: Mapping[str, str] | None = None) -> None:
        self.types: dict[str, str] = {}
        self.aliases = Aliases(places, slots or {})
        self.objects: dict[str, dict[str, None]] = {}
        """The paths under which calls of each module were made, by what the exporter calls the module."""
        self._known: dict[Entries, Stack | None] = {}
        self._frames: dict[tuple[str, int], Frame] = {}

    def read(self, raw: Mapping[str, tuple[str, object]] | None) -> Stack | None:
        """Return the stack below the root module, or None if the node has none.

        >>> StackReader().read({"L__self__": ("", "M"), "L__self__a@1": ("a", "Sub")})
        (Frame(path='a', call=1),)
        """
        if not raw:
            return None
        key = tuple(raw.items())
        stack: Any = self._known.get(key, self)  # nothing that is read is the reader
        if stack is self:
            stack = self._known[key] = self._parse(key)
        return stack

    def _parse(self, entries: Entries) -> Stack | None:
        if len(entries) == 1 and entries[0][0] == EMPTY_STACK_KEY:
            return None
        if self.aliases.ways:
            return self._unaliased(entries)
        above = entries[:-1]
        outer = self._known.get(above)
        if outer is None:  # most calls are made in one that has others: what is around them is parsed once
            outer = ()
            for entry in above:
                outer = self._inside(outer, *entry)
            if above and dict(above).keys() != {EMPTY_STACK_KEY}:
                self._known[above] = outer
        return self._inside(outer, *entries[-1])

    def _inside(self, outer: Stack, key: str, module: tuple[object, object]) -> Stack:
        path, kind = module
        path = str(path)  # as modules are named: only the key has the number of the call
        name, _, number = key.partition("@")
        self._note(name, path, kind)
        if not path:
            return outer
        frame = self._frame(path, number.rpartition("@")[2])
        return (*outer, frame)

    def _note(self, key: str, place: str, kind: object) -> None:
        self.objects.setdefault(key, {})[place] = None
        if kind:  # "" where a program that was made again does not know the class
            self.types.setdefault(place, class_name(kind))

    def _unaliased(self, entries: Entries) -> Stack:
        frames: list[Frame] = []
        for key, (path, kind) in entries:
            if not path:
                self._note(key, "", kind)
        entries = self.aliases.unwound(tuple([entry for entry in entries if entry[1][0]]))
        for depth, (key, (path, kind)) in enumerate(entries, 1):
            path = str(path)
            number = key.rpartition("@")[2] if "@" in key else ""
            place = self.aliases.where.get(path, path)
            self._note(key.partition("@")[0], place, kind)
            if place != path:
                number = str(self.aliases.numbers.get(call_of(entries[:depth]), 0))
            if place:
                frames.append(self._frame(place, number))
        return tuple(frames)

    def _frame(self, path: str, number: str) -> Frame:
        place = (path, int(number) if number.isdigit() else 0)
        frame = self._frames.get(place)
        if frame is None:
            frame = self._frames[place] = Frame(*place)
        return frame

    def cells(self, paths: Iterable[str]) -> dict[str, int]:
        """Return which modules are one object, as numbers by path: a strict export names a module by its identity.

        Args:
            paths: of the hierarchy, in order.

        >>> reader = StackReader()
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
        shared = [path for path in paths if path and path in keys] if keys else []
        return {path: numbers.setdefault(keys[path], len(numbers)) for path in shared}
