"""``Unions``: sets that are only ever joined.

One idea: each set has a representative, and two keys are in one set if they have the same.  What a key is, is the caller's
business.
"""

from __future__ import annotations

__all__ = ["Unions"]


class Unions:
    """Which keys belong together; a key that nothing was joined with is alone.

    >>> unions = Unions()
    >>> unions.join("a", "b")
    >>> unions.find("a") == unions.find("b"), unions.find("c")
    (True, 'c')
    """

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def find(self, key: object) -> object:
        """Return the representative of the set that a key is in."""
        parent = self._parent
        root = key
        while root in parent:
            root = parent[root]
        while key != root:
            parent[key], key = root, parent[key]
        return root

    def join(self, left: object, right: object) -> None:
        """Put two keys, and all that is with them, in one set."""
        a, b = self.find(left), self.find(right)
        if a != b:
            self._parent[a] = b
