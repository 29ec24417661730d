"""Persistent maps: ``PMap`` and ``pmap``, the only door to pyrsistent.

One idea: most maps are made once and read often, so a map begins as a dict that nobody can reach; the first edit makes
pyrsistent's tree of it, and edits share all but a few nodes of that from then on (a look-up in a tree is 30 times slower).

Whatever was imported before and however the environment is set, trees live in the pure-Python classes.  The C vector that
``pyrsistent.pmap`` is normally built on tells the garbage collector about the elements of tree nodes that several versions
share once per version, so a dead cycle that holds two versions makes the collector clear objects that are still alive
(tests/security/test_persistent.py has the lines).  So a private copy of pyrsistent's map module is loaded here, bound to the
pure-Python vector; nothing global is changed.

A map has no order that means anything, so never iterate one for anything that can be seen.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar, cast, final

import pyrsistent._pmap
import pyrsistent._pvector

__all__ = ["PMap", "pmap"]

K = TypeVar("K")
V = TypeVar("V")


def _load_pure_python_map() -> Any:
    # pyrsistent 0.20 keeps `pvector` (C when it can) beside `python_pvector`; its map module looks the name up in
    # its own globals, so a second copy of that module with another binding is all that is needed.  The copy is named
    # inside the package because it imports its neighbours relatively; it is not put in sys.modules.
    spec = importlib.util.spec_from_file_location("pyrsistent._pmap_of_purefx", pyrsistent._pmap.__file__)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pvector = cast(Any, pyrsistent._pvector).python_pvector
    module._EMPTY_PMAP = module._turbo_mapping({}, 0)
    return module


_module = _load_pure_python_map()

MANY = 4
"""Where every fourth entry changes, a new dict is made: it takes less time than the tree, and there is little to share."""


@final
class PMap(Mapping[K, V], Generic[K, V]):
    """An immutable map; every edit gives a new one that shares all the rest.  ``pmap`` makes the first.

    >>> first = pmap({"a": 1})
    >>> second = first.set("b", 2)
    >>> sorted(first), sorted(second)
    (['a'], ['a', 'b'])
    """

    __slots__ = ("_read", "_tree")

    def __init__(self, read: Mapping[K, V], tree: Any = None) -> None:
        self._read = read
        self._tree = tree

    def __getitem__(self, key: K) -> V:
        return self._read[key]

    def __contains__(self, key: object) -> bool:
        return key in self._read

    def __iter__(self) -> Iterator[K]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    def set(self, key: K, val: V) -> PMap[K, V]:
        """Return a map with one more entry, or another value in it."""
        return _of_tree(self._as_tree().set(key, val))

    def remove(self, key: K) -> PMap[K, V]:
        """Return a map without one entry; ``KeyError`` where it has none."""
        return _of_tree(self._as_tree().remove(key))

    def discard(self, key: K) -> PMap[K, V]:
        """Return a map without one entry; the same where it has none."""
        return self.remove(key) if key in self else self

    def update(self, *maps: Mapping[K, V]) -> PMap[K, V]:
        """Return a map with the entries of others too, later ones before earlier ones."""
        if MANY * sum(map(len, maps)) >= len(self):
            changed = dict(self._read)
            for other in maps:
                changed.update(other)
            return PMap(changed)
        return _of_tree(self._as_tree().update(*maps))

    def _as_tree(self) -> Any:
        if self._tree is None:
            self._tree = _module.pmap(self._read)  # a memo; two threads that make it make equal ones
        return self._tree

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(key in other and _same(value, other[key]) for key, value in self.items())

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"pmap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return pmap, (dict(self),)


def _same(left: Any, right: Any) -> bool:
    return left is right or bool(left == right)


def _of_tree(tree: Any) -> PMap[Any, Any]:
    return PMap(tree, tree)


def pmap(mapping: Mapping[K, V] | None = None) -> PMap[K, V]:
    """Return a persistent copy of a mapping.

    Args:
        mapping: what it starts with; None gives the empty map.

    Returns:
        A map that later changes of ``mapping`` do not show in; a ``PMap`` itself.

    >>> pmap({"x": 1})["x"]
    1
    """
    return mapping if type(mapping) is PMap else PMap(dict(mapping or {}))
