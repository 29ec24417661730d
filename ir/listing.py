"""Which modules a program lists: all that it has, or none but the parts that it was split into.

One idea: a module that is new is listed with all that hold it, where modules are listed at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from .parts import is_part
from .paths import way_to
from .program import Module

__all__ = ["first_paths", "with_listed"]


def with_listed(
    modules: tuple[Module, ...], paths: Iterable[str], types: Mapping[str, str | None] = MappingProxyType({})
) -> tuple[Module, ...]:
    """Return the modules of a program with others, each behind those that hold it; the same object where all are there.

    Args:
        modules: those that are listed; where they are none, or parts alone, nothing is added.
        paths: of modules that must be there.
        types: class names of modules, by path, as far as they are known.

    >>> [module.path for module in with_listed((Module(""), Module("a")), ["b.c", "a"])]
    ['', 'a', 'b', 'b.c']
    >>> with_listed((), ["a"])
    ()
    """
    if all(is_part(module) for module in modules):
        return modules
    found = {module.path: module for module in modules}
    for path in paths:
        for above in way_to(path) if path not in found else ():
            found.setdefault(above, Module(above, types.get(above) or None))
    return tuple(found.values()) if len(found) > len(modules) else modules


def first_paths(modules: Sequence[Module]) -> dict[str, str]:
    """Return the first path of each module that has several, by each of them.

    In a program that was split, only paths of one part are paths of one object.

    >>> first_paths([Module("a", cell=0), Module("b"), Module("c", cell=0)])
    {'a': 'a', 'c': 'a'}
    """
    paths: dict[tuple[str, int], list[str]] = {}
    parts = {module.path for module in modules if is_part(module)}
    for module in modules:
        if module.cell is not None:
            name = module.path.partition(".")[0]
            paths.setdefault((name if name in parts else "", module.cell), []).append(module.path)
    return {path: found[0] for found in paths.values() if len(found) > 1 for path in found}
