"""Persistent maps: ``PMap`` and ``pmap``, the only door to pyrsistent.

One idea: whatever was imported before and however the environment is set, our values live in the pure-Python
classes.  The C vector that ``pyrsistent.pmap`` is normally built on tells the garbage collector about the
elements of tree nodes that several versions share once per version, so a dead cycle that holds two versions makes
the collector clear objects that are still alive (tests/security/test_persistent.py has the lines).  So a private
copy of pyrsistent's map module is loaded here, bound to the pure-Python vector; nothing global is changed.

It does not give maps an order: a ``PMap`` iterates in salted hash order, so never iterate one for anything
that can be seen.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import pyrsistent._pmap
import pyrsistent._pvector

__all__ = ["PMap", "pmap"]

K = TypeVar("K")
V = TypeVar("V")


class PMap(Protocol[K, V]):
    """An immutable map; every edit gives a new one that shares all the rest.

    >>> first = pmap({"a": 1})
    >>> second = first.set("b", 2)
    >>> sorted(first), sorted(second)
    (['a'], ['a', 'b'])
    """

    def __getitem__(self, key: K) -> V: ...
    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...
    def get(self, key: K, default: V | None = None) -> V | None: ...
    def set(self, key: K, val: V) -> PMap[K, V]: ...
    def remove(self, key: K) -> PMap[K, V]: ...
    def discard(self, key: K) -> PMap[K, V]: ...
    def update(self, *maps: Mapping[K, V]) -> PMap[K, V]: ...


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
    module.PMap.__reduce__ = _reduce
    return module


def _reduce(self: PMap[Any, Any]) -> tuple[Any, ...]:
    return pmap, ({key: self[key] for key in self},)


_module = _load_pure_python_map()


def pmap(mapping: Mapping[K, V] | None = None) -> PMap[K, V]:
    """Return a persistent copy of a mapping.

    Args:
        mapping: what it starts with; None gives the empty map.

    Returns:
        A map of pure-Python nodes; later changes of ``mapping`` do not show in it.

    >>> pmap({"x": 1})["x"]
    1
    """
    return cast("PMap[K, V]", _module.pmap(mapping or {}))
