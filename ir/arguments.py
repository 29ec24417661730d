"""The arguments of a node: references, literals and immutable containers.

An argument is plain immutable data with strict equality.  ``1``, ``True`` and ``1.0`` differ, ``0.0`` and ``-0.0`` differ, NaN
equals itself, a tuple is not a list (fx distinguishes them), and a symbolic size equals only itself (comparing one installs
a guard).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import Any

import torch
from attrs import define, frozen

from .torch_private import pytree

Arg = Any
"""``Ref | Body | Items | Record | tuple | slice`` or a literal: None, bool, int, float, complex, str, a dtype, ..."""

Args = tuple[Arg, ...]
"""Positional arguments."""

Kwargs = tuple[tuple[str, Arg], ...]
"""Keyword arguments, in the order in which they were written."""


@frozen
class Ref:
    """The use of a value: ``Ref("x")`` is the value ``x``, the literal ``"x"`` is a string.

    >>> Ref("x") == Ref("x"), Ref("x") == "x"
    (True, False)
    """

    name: str


@frozen
class Body:
    """A graph as an operand of a higher-order operator: the id of a graph in the program's table.

    >>> Body("$true_graph_0").graph
    '$true_graph_0'
    """

    graph: str


class Items(tuple[Arg, ...]):
    """An immutable list among the arguments; distinct from a tuple, as operators require.

    >>> same_arg(Items([1, 2]), (1, 2))
    False
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


@frozen
class Record:
    """An immutable dict among the arguments; its order is kept.

    >>> Record((("a", 1), ("b", Ref("x")))).items[0]
    ('a', 1)
    """

    items: tuple[tuple[Arg, Arg], ...]


COMPARABLE = frozenset(
    {
        int, bool, str, bytes, range, type(None), type(Ellipsis), Ref, Body,
        torch.dtype, torch.device, torch.layout, torch.memory_format,
    }
)  # fmt: skip
"""Leaf types whose ``==`` is exact for equal types and runs no code of a program."""


TREES: type[Any] = pytree.TreeSpec
"""Pytree specs: immutable, and equal where they describe the same structure."""


DEEPEST = 128
"""The maximum nesting depth of arguments and pytrees of a valid program: torch walks them recursively."""


def is_deep(value: Any) -> bool:
    """Return whether an argument or a pytree nests more than ``DEEPEST`` levels; types that a pytree stores count.

    >>> is_deep(((1, 2), Items([3]))), is_deep(pytree.tree_structure([[1]]))
    (False, False)
    """
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [part for whole in level for part in _nested_in(whole)]
        if not level:
            return False
    return True


def _nested_in(value: Any) -> list[Any]:
    kind: Any = type(value)
    if isinstance(value, TREES):
        return [value.context, *value.children()]
    if kind is dict:
        return [
            part
            for pair in value.items()
            for part in pair
            if type(part) in NESTED or isinstance(part, TREES)
        ]
    if kind is Record:
        parts = (
            [part for pair in value.items if type(pair) is tuple for part in pair]
            if type(value.items) is tuple
            else []
        )
    else:
        parts = children_of(value) if kind in CONTAINERS else value if kind is list else ()
    return [part for part in parts if type(part) in NESTED or isinstance(part, TREES)]


def refs_in(args: Args, kwargs: Kwargs = ()) -> list[str]:
    """Return the names of the values that arguments use, in order, repeats kept.

    >>> refs_in((Ref("x"), Items([Ref("y"), 1])), (("k", Ref("x")),))
    ['x', 'y', 'x']
    """
    names: list[str] = []
    for arg in (*args, *[value for _, value in kwargs]) if kwargs else args:
        kind = type(arg)
        if kind is Ref:
            names.append(arg.name)
        elif kind in CONTAINERS and not (
            (kind is tuple or kind is Items) and MAPPED.isdisjoint(map(type, arg))
        ):
            names.extend(
                [leaf.name for leaf in arg_leaves((arg,)) if type(leaf) is Ref]
            )  # most containers are sizes
    return names


def bodies_in(args: Args, kwargs: Kwargs = ()) -> list[str]:
    """Return the ids of the graphs that arguments name, in order.

    >>> bodies_in((Ref("p"), Body("$then"), Body("$else")))
    ['$then', '$else']
    """
    return [
        leaf.graph
        for leaf in arg_leaves((*args, *(value for _, value in kwargs)))
        if type(leaf) is Body
    ]


CONTAINERS = frozenset({tuple, Items, Record, slice})

NESTED = CONTAINERS | {list, dict}
"""The containers in arguments and in contexts of pytrees."""

MAPPED = CONTAINERS | {Ref, Body}
"""References, and the containers that can hold one."""


def children_of(arg: Arg) -> tuple[Arg, ...]:
    """Return the parts of a container argument, or () for a leaf.

    >>> children_of(slice(1, 2)), children_of(7)
    ((1, 2, None), ())
    """
    kind = type(arg)
    if kind is tuple or kind is Items:
        return arg
    if kind is Record:
        return tuple(part for pair in arg.items for part in pair)
    if kind is slice:
        return (arg.start, arg.stop, arg.step)
    return ()


def arg_leaves(args: Args) -> Iterator[Arg]:
    """Iterate over the references, bodies and literals of arguments, in order.

    >>> list(arg_leaves((1, Items([Ref("x"), (2,)]))))
    [1, Ref(name='x'), 2]
    """
    todo = list(reversed(args))
    while todo:
        arg = todo.pop()
        if type(arg) in CONTAINERS:
            todo.extend(reversed(children_of(arg)))
        else:
            yield arg


def map_refs(arg: Arg, rename: Callable[[Ref | Body], Arg]) -> Arg:
    """Return an argument with every ``Ref`` and ``Body`` in it replaced; the same object if none changed.

    Args:
        arg: any argument.
        rename: returns the replacement of a reference, or the reference itself.

    >>> map_refs((Ref("x"), 2), lambda ref: Ref("y"))
    (Ref(name='y'), 2)
    """
    return map_leaves(
        arg, lambda leaf: rename(leaf) if type(leaf) is Ref or type(leaf) is Body else leaf
    )


def map_leaves(arg: Arg, leaf: Callable[[Any], Any]) -> Any:
    """Return an argument with a function applied to all its leaves; the same object if none changed.

    >>> map_leaves((1, slice(2, None)), lambda part: part and part + 1)
    (2, slice(3, None, None))
    """
    return (
        with_children(arg, [map_leaves(part, leaf) for part in children_of(arg)])
        if type(arg) in CONTAINERS
        else leaf(arg)
    )


def replace_refs(arg: Arg, known: Mapping[str, Arg]) -> Arg:
    """Return an argument with some values substituted; the same object if it uses none of them.

    Args:
        arg: any argument.
        known: the substitutes of values, by name.

    >>> replace_refs((Ref("x"), Ref("y")), {"y": 7})
    (Ref(name='x'), 7)
    """
    return map_leaves(arg, lambda leaf: known.get(leaf.name, leaf) if type(leaf) is Ref else leaf)


def thawed(arg: Arg, leaf: Callable[[Arg], Any] = lambda part: part) -> Any:
    """Return an argument with lists and dicts in place of ``Items`` and ``Record``.

    Args:
        arg: any argument.
        leaf: returns the replacement of a leaf.

    >>> thawed(Items([1, Record((("a", Ref("x")),))]), lambda part: part if type(part) is int else str(part.name))
    [1, {'a': 'x'}]
    """
    kind = type(arg)
    if kind not in CONTAINERS:
        return leaf(arg)
    if kind is Items:
        return [thawed(part, leaf) for part in arg]
    if kind is tuple:
        return tuple([thawed(part, leaf) for part in arg])
    if kind is Record:
        return {thawed(key): thawed(value, leaf) for key, value in arg.items}
    return slice(thawed(arg.start, leaf), thawed(arg.stop, leaf), thawed(arg.step, leaf))


def with_children(arg: Arg, parts: list[Arg]) -> Arg:
    """Return a container of the same kind with other parts; the same object if none differs.

    Args:
        arg: a container argument.
        parts: the new parts, in the order of ``children_of``.

    >>> with_children(Items([1, 2]), [1, 3])
    [1, 3]
    """
    if all(map(is_, children_of(arg), parts)):
        return arg
    kind = type(arg)
    if kind is tuple:
        return tuple(parts)  # nearly all are
    if kind is slice:
        return slice(*parts)
    return (
        Record(tuple(zip(parts[::2], parts[1::2], strict=True))) if kind is Record else Items(parts)
    )


def same_arg(left: Arg, right: Arg) -> bool:
    """Return whether two arguments are equal, strictly: by type, by sign of zero, NaN equal to itself.

    Args:
        left: an argument of a node, however nested.
        right: another one.

    >>> same_arg(1, True), same_arg(0.0, -0.0), same_arg(float("nan"), float("nan"))
    (False, False, True)
    """
    todo = [(left, right)]
    while todo:
        a, b = todo.pop()
        if a is b:
            continue
        kind = type(a)
        if kind is not type(b):
            return False
        if kind in CONTAINERS:
            inner, other = children_of(a), children_of(b)
            if len(inner) != len(other):
                return False
            todo.extend(zip(inner, other, strict=True))
        elif not _same_leaf(kind, a, b):
            return False
    return True


def _same_leaf(kind: type, a: Any, b: Any) -> bool:
    if kind is float or kind is complex:
        return repr(a) == repr(b)  # equal for two NaN, different for 0.0 and -0.0
    return (kind in COMPARABLE or issubclass(kind, TREES)) and bool(a == b)


@define(eq=False)
class Strict:
    """An argument as a key: ``attrs`` compares and hashes the fields with ``eq=Strict`` by ``same_arg``.

    >>> Strict(float("nan")) == Strict(float("nan")), Strict(1) == Strict(True)
    (True, False)
    """

    arg: Arg

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strict) and same_arg(self.arg, other.arg)

    def __hash__(self) -> int:
        parts: list[object] = []
        for leaf in arg_leaves((self.arg,)):
            kind = type(leaf)
            parts.append(
                repr(leaf)
                if kind is float or kind is complex
                else leaf
                if kind in COMPARABLE
                else kind
            )
        return hash(tuple(parts))
