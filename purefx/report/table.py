"""Tables of the data: every text and every row is in it once, under a number.

Steps of one program have most of their nodes in common, so a report of many steps is about as large as one of the first.  A text
is made harmless to look at here: what is not printable becomes an escape, and what is very long is cut.
"""

from __future__ import annotations

from typing import Any

from purefx.ir.show.values import shown

__all__ = ["NOTHING", "Rows", "Texts", "number"]

NOTHING = -1
"""What stands where a row has no text."""

EXACT = 2**53
"""The page counts in doubles."""


class Rows:
    """Numbers equal rows alike.

    >>> rows = Rows()
    >>> rows.add((1, (2,))), rows.add((3,)), rows.add((1, (2,))), rows.items
    (0, 1, 0, [(1, (2,)), (3,)])
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.items: list[Any] = []

    def add(self, row: Any) -> int:
        """Return the number of a row."""
        found = self._numbers.get(row)
        if found is None:
            found = self._numbers[row] = len(self.items)
            self.items.append(row)
        return found


class Texts(Rows):
    r"""Numbers texts.

    >>> texts = Texts()
    >>> texts.text("a\x1b[2J\n\u202e"), texts.text(None), texts.items
    (0, -1, ['a\\x1b[2J\\n\\u202e'])
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, int] = {}

    def text(self, text: Any) -> int:
        """Return the number of a text as it is shown; -1 for None."""
        if text is None:
            return NOTHING
        text = str(text)
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self.add(shown(text))
        return found


def number(value: int | None) -> int | float | None:
    """Return a count as the page can read it.

    >>> number(3), number(2**60), number(10**400), number(None)
    (3, 1.152921504606847e+18, 1e+300, None)
    """
    if value is None or abs(value) < EXACT:
        return value
    return float(min(value, 10**300))
