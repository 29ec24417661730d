"""``Member``: a collective that can be joined with others, and ``joined``, the one operator that stands for several.

An all-reduce, an all-gather or a reduce-scatter of torch's functional collectives, or the coalesced form of one, which takes a
list, gives a list, and means one collective after another.  What may be joined is read off the node and the types in its meta, so
every process that has the program finds the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Arg, Items, Ref
from ...ir.effects.aliases import item_of
from ...ir.graph import Graph, Node, Op, common_prefix
from ...ir.meta import Meta
from ...ir.operators import GETITEM, op_of
from ...ir.origins import made_of
from ...ir.torch_private import device_of, resolve_operator, schema_of

__all__ = ["Member", "joined", "member_of"]

SPACE = "_c10d_functional"

COALESCED = {name: f"{name}_coalesced" for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")}


@frozen
class Member:
    """A collective that can be joined with those of an equal key.

    >>> one = Member("a", "all_reduce_coalesced", ("sum", "0"), (torch.float32, "cpu"), (Ref("x"),), 4, is_list=False)
    >>> one.key[:2]
    ('all_reduce_coalesced', ('sum', '0'))
    """

    name: str
    operator: str
    """The coalesced form of what it does."""
    others: tuple[int | str, ...]
    """The arguments besides the tensors: the reduction, the size of the group, its name."""
    type: tuple[object, ...]
    """The dtype and the device of the tensors."""
    operands: tuple[Ref, ...]
    size: int
    """How many bytes the whole group reduces or gathers."""
    is_list: bool
    """Whether it is coalesced already: then each use takes one of its results."""

    @property
    def key(self) -> tuple[object, ...]:
        """What members of one bucket have in common."""
        return self.operator, self.others, self.type


def member_of(graph: Graph, node: Node) -> Member | None:
    """Return a node as what can be joined; None if it is anything else, or if too little is known of it.

    Args:
        graph: where the node is; the meta of its operands is asked too.
        node: the node.

    >>> member_of(Graph((), (), ()), Node("y", Op("toy.neg"), (Ref("x"),))) is None
    True
    """
    space, _, rest = node.do.name.partition(".") if type(node.do) is Op else ("", "", "")
    name = rest.removesuffix(".default")
    if space != SPACE or not (name in COALESCED or name in COALESCED.values()):
        return None
    first, *others = _arguments(node)
    is_list = name not in COALESCED
    operands = tuple(first) if is_list and isinstance(first, Items | tuple | list) else (first,)
    if not all(type(one) is Ref for one in operands) or not all(type(one) in (int, str) for one in others):
        return None
    if is_list and not _is_taken_apart(graph, node.name, len(operands)):
        return None
    values = _values(node.meta, is_list=is_list)
    types = [_type(value) for value in values]
    if len(types) != len(operands) or len(set(types)) != 1 or types[0] is None:
        return None
    if not name.startswith("all_reduce") and not all(_can_be_cut(graph, one) for one in operands):
        return None
    whole = others[1] if name.startswith("reduce_scatter") else 1  # what is given is as often as much as what comes
    size = sum(value.numel() * value.element_size() for value in values)
    return Member(node.name, COALESCED.get(name, name), tuple(others), types[0], operands, size * whole, is_list)


def joined(graph: Graph, members: Sequence[Member], name: str) -> tuple[list[Node], dict[str, Arg]]:
    """Return the nodes that stand for several collectives, and which result of a list is which one now.

    Args:
        graph: where they are.
        members: two or more of one key, in order.
        name: the name of the operator that stands for them.

    Returns:
        The operator and a node for each of its results that was a value, under the name that this had; and for each coalesced
        member the number of its first result among those of all.
    """
    nodes = [graph.by_name[member.name] for member in members]
    metas = [node.meta for node in nodes]
    values = tuple([value for one, meta in zip(members, metas, strict=True) for value in _values(meta, is_list=one.is_list)])
    meta: Meta = MappingProxyType({**_common(metas), **made_of(metas), "val": values})
    operands = Items([one for member in members for one in member.operands])
    args = (operands, *members[0].others)
    whole = Node(name, _coalesced(members[0].operator), args, (), common_prefix([node.stack for node in nodes]), meta)
    made, starts, number = [whole], dict[str, Arg](), 0
    for member, node in zip(members, nodes, strict=True):
        if member.is_list:
            starts[member.name] = number
        else:
            made.append(Node(node.name, GETITEM, (Ref(name), number), (), node.stack, node.meta))
        number += len(member.operands)
    return made, starts


@functools.cache
def _coalesced(name: str) -> Op:
    return op_of(resolve_operator(SPACE, name, "default"))


def _arguments(node: Node) -> list[Any]:
    assert type(node.do) is Op
    named = dict(node.kwargs)
    names = [argument.name for argument in schema_of(node.do.target).arguments]
    return [*node.args, *[named[name] for name in names[len(node.args) :] if name in named]]


def _is_taken_apart(graph: Graph, name: str, count: int) -> bool:
    items = [item_of(graph.by_name[user]) for user in graph.users.get(name, ())]
    return name not in graph.output_refs() and all(item is not None and item[1] < count for item in items)


def _type(value: Any) -> tuple[object, ...] | None:
    # Of a tensor of known sizes; those that are computed at run time may differ from process to process.
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_complex():
        return None
    return (value.dtype, device_of(value)) if all(type(size) is int for size in value.shape) else None


def _can_be_cut(graph: Graph, operand: Ref) -> bool:
    # What is gathered or scattered along the first dimension has one.
    value = graph.metas.get(operand.name, {}).get("val")
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _values(meta: Meta, *, is_list: bool) -> tuple[Any, ...]:
    # What comes, as far as it is known.
    known = meta.get("val")
    return tuple(known) if is_list and isinstance(known, tuple | list) else (known,)


def _common(metas: Sequence[Meta]) -> Meta:
    # What all of them say, such as the phase; where they say something else, or one says nothing, nothing is said.
    first, *others = metas
    words = (str, bool, int)
    return MappingProxyType({
        key: value
        for key, value in first.items()
        if type(value) in words and all(type(meta.get(key)) is type(value) and meta[key] == value for meta in others)
    })  # fmt: skip
