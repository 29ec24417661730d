"""Pytrees in graphs: leaves are put together into what a module takes, and what a module gives is taken apart.

One idea: two operators whose pytree is a literal among their arguments.  They copy no tensor, so what they give shares memory
with what they were given.  Plain tuples, lists and dicts among arguments need neither: they are arguments themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .effects.declared import ArgAt, Effects
from .errors import CallError
from .node import Op
from .torch_private import pytree

__all__ = ["PACK", "UNPACK", "pack", "unpack"]


def pack(leaves: Sequence[Any], spec: Any) -> Any:
    """Return leaves put together as a pytree.

    Raises:
        CallError: a registered type refuses them, or what the pytree keeps of it.

    >>> pack([1, 2], pytree.tree_structure({"a": 0, "b": 0}))
    {'a': 1, 'b': 2}
    """
    try:
        return pytree.tree_unflatten(list(leaves), spec)
    except Exception as error:
        raise CallError(f"the leaves can not be put together as {short(spec)}: {type(error).__name__}: {error}") from error


def short(spec: Any) -> str:
    """Return the types that a pytree is made of, on one short line.

    >>> short(pytree.tree_structure(([1], {"a": 2})))
    'a pytree of dict, list, tuple'
    """
    names: set[str] = set()
    todo = [spec]
    while todo:
        part = todo.pop()
        if not part.is_leaf():
            names.add(getattr(part.context if isinstance(part.context, type) else part.type, "__name__", "?"))
            todo.extend(part.children())
    return f"a pytree of {', '.join(sorted(names)) or 'one leaf'}"[:200]


def unpack(value: Any, spec: Any) -> tuple[Any, ...]:
    """Return the leaves of a value.

    Raises:
        CallError: the value is structured differently.

    >>> unpack({"b": 2, "a": 1}, pytree.tree_structure({"a": 0, "b": 0}))
    (1, 2)
    """
    try:
        return tuple(spec.flatten_up_to(value))
    except ValueError as error:
        raise CallError(f"a module gave back something else than the exported one did: {error}") from error


for function in (pack, unpack):
    function.__module__ = "purefx"  # the text says purefx.pack, wherever this file is

PACK = Op("purefx.pack", Effects(aliases=(ArgAt(0, "leaves"),)), pack)
"""``purefx.pack([leaf, ...], spec)``."""
UNPACK = Op("purefx.unpack", Effects(aliases=(ArgAt(0, "value"),)), unpack)
"""``purefx.unpack(value, spec)``: a tuple of leaves."""
