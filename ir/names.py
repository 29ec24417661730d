"""Fresh names for values and graphs.

One idea: a name that is wanted and free is taken as it is, else the smallest free number is put behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Names"]


class Names:
    """Hands out names that are not taken yet.

    >>> names = Names(["x"])
    >>> names.fresh("x"), names.fresh("x"), names.fresh("y")
    ('x_1', 'x_2', 'y')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """Return the wanted name, numbered if it is taken, and take it."""
        name = wanted
        while name in self._taken:
            number = self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
