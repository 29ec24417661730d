"""What becomes of equal bodies: what the one that stays is called, and what it says.

Which bodies are equal is told by ``deduplicate.py``, and by ``outline/merged.py`` before there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import TypeVar

from attrs import evolve

from ..ir.graph import Call, Get, Graph, Input, Node
from ..ir.meta import Meta
from ..ir.names import Names
from .shared_bodies import (
    Standing,
    User,
    common_id,
    common_meta,
    common_values,
    names_agree,
    with_common_names,
    with_names,
    word_of_read,
)

__all__ = ["for_all", "ids_of"]

Item = TypeVar("Item", Node, Input)


def ids_of(
    members: Mapping[Hashable, Mapping[str, Sequence[str]]], types: Mapping[str, str | None], called: Container[str]
) -> dict[Hashable, str]:
    """Return what the bodies are called that stay.

    A body that others become, which other modules have, is named after none of them; the others keep their names.

    Args:
        members: for each body that stays those that become it, in calling order, and the paths that each of them stands at.
        types: the classes of the modules by path.
        called: the bodies that module calls run; the rest are given to operators.

    >>> ids_of({0: {"": [""]}, 1: {"a": ["a"], "b": ["b"]}}, {"a": "m.Block", "b": "m.Block"}, ["a", "b"])
    {0: '', 1: 'Block'}
    """
    names, ids, shared = Names(()), dict[Hashable, str](), dict[Hashable, str]()
    for key, found in members.items():
        first = next(iter(found))
        paths = {path for standing in found.values() for path in standing} if len(found) > 1 else ()
        common = common_id(paths, types) if len(paths) > 1 and first in called else None
        if common is not None:
            shared[key] = common
        ids[key] = names.fresh(first) if common is None else ""
    names = Names([*types, *ids.values()])
    ids.update({key: names.fresh(wanted) for key, wanted in shared.items()})
    return ids


def for_all(graph: Graph, users: Sequence[User], *, is_split: bool = False, raw: bool = False) -> Graph:
    """Return a body as it is right for all that become it.

    Args:
        graph: the body that stays.
        users: all of them, that one first.
        is_split: whether parts have it: inside of those all names stay the original ones.
        raw: whether the others show what they are given, and what their calls give, with the meta that it has outside.

    >>> from purefx.ir import Node, Op
    >>> one, other = (Graph((), (Node("y", Op("toy.one"), meta={"val": val, "custom": 1}),)) for val in (1, 2))
    >>> dict(for_all(one, [(one, ["a"]), (other, ["b"])]).nodes[0].meta)
    {'custom': 1}
    """
    shared = _with_common_meta(graph, [other for other, _ in users[1:]], raw=raw)
    if is_split:
        return shared
    if not names_agree(users):
        return with_common_names(shared, users)
    return with_names(shared, {node.name: word_of_read(node.name, node.do.slot) for node in shared.nodes if type(node.do) is Get})


def _with_common_meta(graph: Graph, others: Sequence[Standing], *, raw: bool) -> Graph:
    # Equal bodies have their values in one order; one that is not the same in every call would be wrong of some.
    given = common_values if raw else common_meta
    inputs = [_said_by_all(given, *column) for column in zip(graph.inputs, *[other.inputs for other in others], strict=True)]
    nodes = [
        _said_by_all(given if type(node.do) is Call else common_meta, node, *column)
        for node, *column in zip(graph.nodes, *[other.nodes for other in others], strict=True)
    ]
    return graph.with_nodes(nodes, inputs=tuple(inputs))


def _said_by_all(common: Callable[[Meta, Sequence[Meta]], Meta], item: Item, *others: Input | Node) -> Item:
    meta = common(item.meta, [other.meta for other in others])
    return item if meta is item.meta else evolve(item, meta=meta)
