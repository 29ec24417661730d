"""Arguments of a swapped module: leaves put together as the original took them, without taking apart what is whole.

One idea: plain tuples, lists and dicts are arguments of a node; other pytrees are packed.  Where all leaves of a container come,
in order, from one container that a swapped module gave, that one is passed on: what eager passes, and no pytree work between
adjacent calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from ...ir.arguments import Arg, Items, Record, Ref
from ...ir.node import Op
from ...ir.trees import PACK

__all__ = ["Origin", "Packing"]

PLAIN_KEYS = (str, int, bool, type(None))

Emit = Callable[[str, Op, tuple[Arg, ...]], Ref]
"""Adds a node, whose name it is told a wish for, and returns its value."""


@define(frozen=True)
class Origin:
    """Where a leaf comes from: which leaf of what a swapped module gave."""

    whole: str
    spec: Any
    leaf: int


@define
class Packing:
    """Makes arguments in one graph."""

    emit: Emit
    getitem: Op
    origins: dict[str, Origin] = field(factory=dict)
    """What is known of leaves, by the name of the value."""

    def arguments(self, in_spec: Any, leaves: Sequence[Arg]) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
        """Return the positional and the keyword arguments that leaves make up."""
        args_spec, kwargs_spec = in_spec.children()
        parts: list[Arg] = []
        start = 0
        for spec in (*args_spec.children(), *kwargs_spec.children()):
            parts.append(self.argument(spec, leaves[start : start + spec.num_leaves]))
            start += spec.num_leaves
        count = len(args_spec.children())
        return tuple(parts[:count]), tuple(zip(kwargs_spec.context or (), parts[count:], strict=True))

    def argument(self, spec: Any, leaves: Sequence[Arg]) -> Arg:
        """Return one argument.  Nesting is what a caller of the original wrote, so it is shallow."""
        if spec.is_leaf():
            return leaves[0]
        whole = self._whole(spec, leaves)
        if whole is not None:
            return whole
        if spec.type not in (tuple, list, dict) or not all(type(key) in PLAIN_KEYS for key in spec.context or ()):
            return self.emit("packed", PACK, (Items(leaves), spec))
        parts: list[Arg] = []
        start = 0
        for child in spec.children():
            parts.append(self.argument(child, leaves[start : start + child.num_leaves]))
            start += child.num_leaves
        if spec.type is dict:
            return Record(tuple(zip(spec.context, parts, strict=True)))
        return Items(parts) if spec.type is list else tuple(parts)

    def _whole(self, spec: Any, leaves: Sequence[Arg]) -> Arg | None:
        first = self.origins.get(leaves[0].name) if leaves and type(leaves[0]) is Ref else None
        if first is None:
            return None
        for number, leaf in enumerate(leaves):
            origin = self.origins.get(leaf.name) if type(leaf) is Ref else None
            if origin is None or origin.whole != first.whole or origin.leaf != first.leaf + number:
                return None
        keys = _way(first.spec, first.leaf, spec)
        if keys is None:
            return None
        found = Ref(first.whole)
        for key in keys:
            found = self.emit("part", self.getitem, (found, key))
        return found


def _way(outer: Any, leaf: int, wanted: Any) -> list[Any] | None:
    """Return the keys that lead to an equal pytree in another one, that begins at a leaf; None where there is none.

    >>> from purefx.ir.torch_private import pytree
    >>> _way(pytree.tree_structure((0, {"a": [1, 2]})), 1, pytree.tree_structure([1, 2]))
    [1, 'a']
    """
    keys: list[Any] = []
    start = 0
    while outer != wanted or start != leaf:
        if outer.is_leaf() or outer.type not in (tuple, list, dict):
            return None
        children = outer.children()
        names = list(outer.context) if outer.type is dict else list(range(len(children)))
        place = 0
        while start + children[place].num_leaves <= leaf:
            start += children[place].num_leaves
            place += 1
        if type(names[place]) not in PLAIN_KEYS:
            return None
        keys.append(names[place])
        outer = children[place]
    return keys
