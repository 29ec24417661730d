"""Module stacks: the exporter's ``nn_module_stack`` dicts become tuples of ``Frame``.

One idea: the text ``"L__self__a@1"`` is parsed once per distinct stack and never matched again.  An entry that is not
below the one before it ends the stack: its nodes belong to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..node import Frame, Stack
from ..torch_private import EMPTY_STACK_KEY

__all__ = ["StackReader"]


class StackReader:
    """Parses stacks, each distinct one once, and collects the class names that they mention."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._known: dict[tuple[tuple[str, object], ...], Stack | None] = {}
        self._frames: dict[tuple[str, int], Frame] = {}

    def read(self, raw: Mapping[str, tuple[str, object]] | None) -> Stack | None:
        """Return the stack below the root module, or None where the node has none.

        >>> StackReader().read({"L__self__": ("", "M"), "L__self__a@1": ("a", "Sub")})
        (Frame(path='a', call=1, part=0),)
        """
        if not raw:
            return None
        key = tuple(raw.items())
        try:
            return self._known[key]
        except KeyError:
            stack = self._known[key] = self._parse(key)
            return stack

    def _parse(self, entries: tuple[tuple[str, object], ...]) -> Stack | None:
        if len(entries) == 1 and entries[0][0] == EMPTY_STACK_KEY:
            return None
        frames: list[Frame] = []
        above = ""
        broken = False
        for key, (path, kind) in entries:  # type: ignore[misc]
            path, _, inner = str(path).partition("@")
            if kind is not None:
                self.types.setdefault(path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
            if path == "" and not frames:
                continue
            broken = broken or not _below(path, above)
            if not broken:
                frames.append(self._frame(path, key.rpartition("@")[2] if "@" in key else inner))
                above = path
        return tuple(frames)

    def _frame(self, path: str, number: str) -> Frame:
        place = (path, int(number) if number.isdigit() else 0)
        frame = self._frames.get(place)
        if frame is None:
            frame = self._frames[place] = Frame(*place)
        return frame


def _below(path: str, above: str) -> bool:
    return path != "" and (above == "" or path.startswith(above + "."))
