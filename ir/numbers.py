"""``numbers_in``: which values of a graph are numbers (sizes, shapes, strides and what is computed from them), not tensors.

One idea: the fake value says it where there is one; else the schema of the operator does, and plain functions of numbers give
numbers.  What nobody knows counts as a tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from .graph import Graph
from .meta import Meta
from .node import Node, Op
from .torch_private import OpOverload, schema_of

__all__ = ["SYMBOLIC", "is_number", "numbers_in"]

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Numbers that are only known by symbols."""

NUMBERS = (bool, int, float, *SYMBOLIC)

SCHEMA_KINDS = frozenset({"IntType", "SymIntType", "FloatType", "SymFloatType", "BoolType", "SymBoolType", "NumberType"})

OF_NUMBERS = ("operator.", "math.", "torch.sym_", "torch._sym_", "builtins.")
"""How the names of the plain functions begin that give numbers for numbers."""


def is_number(meta: Meta) -> bool | None:
    """Say whether a value is a number or several, going by its meta; None where that does not say.

    >>> is_number({"val": 3}), is_number({"val": torch.ones(2)}), is_number({})
    (True, False, None)
    """
    value: Any = meta.get("val")
    parts: tuple[Any, ...] = tuple(value) if isinstance(value, tuple | list) and value else (value,)
    if all(isinstance(part, NUMBERS) for part in parts):
        return True
    return None if value is None or any(part is None for part in parts) else False


def numbers_in(graph: Graph, given: Collection[str] = ()) -> frozenset[str]:
    """Return the names of the values of a graph that are numbers.

    Args:
        graph: any graph.
        given: inputs that are known to be numbers.

    >>> from purefx.ir import Input, Node, Op, Ref
    >>> from purefx.ir.operators import op_of
    >>> size = Node("n", op_of(torch.ops.aten.sym_size.int), (Ref("x"), 0))
    >>> twice = Node("m", Op("operator.mul"), (Ref("n"), 2))
    >>> sorted(numbers_in(Graph((Input("x"),), (size, twice), Ref("m"))))
    ['m', 'n']
    """
    found = {formal.name for formal in graph.inputs if formal.name in given or is_number(formal.meta)}
    for node in graph.nodes:
        told = is_number(node.meta)
        if told or (told is None and _by_operator(node, found)):
            found.add(node.name)
    return frozenset(found)


def _by_operator(node: Node, known: Collection[str]) -> bool:
    if type(node.do) is not Op:
        return False
    if isinstance(node.do.target, OpOverload):
        returns = schema_of(node.do.target).returns
        return bool(returns) and all(_kind(part.type) in SCHEMA_KINDS for part in returns)
    refs = node.refs()
    return bool(refs) and node.do.name.startswith(OF_NUMBERS) and all(name in known for name in refs)


def _kind(kind: Any) -> str:
    return _kind(kind.getElementType()) if kind.kind() == "ListType" else str(kind.kind())
