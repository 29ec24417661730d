"""Finds the numbers of a graph (sizes, shapes, strides, results computed from them) and bounds their cost.

The fake value decides where there is one, otherwise the schema of the operator; plain functions of numbers return numbers.  A
value of unknown type counts as a tensor.  A function whose work grows with the value of a number is called under a bound.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..graph import Graph, Node, Op
from ..meta import Meta
from ..persistent import closure
from ..torch_private import OpOverload, schema_of


def computed_of(names: Iterable[str], nodes: Mapping[str, Node]) -> dict[str, None]:
    """Return values and their ancestors in the order of discovery, as a dict for quick lookup.

    Args:
        names: the values.
        nodes: the nodes to follow, by their values; other values, such as inputs, are returned and not followed.

    >>> from purefx.ir import Op, Ref
    >>> y, z = Node("y", Op("toy.neg"), (Ref("x"),)), Node("z", Op("toy.add"), (Ref("y"), Ref("w")))
    >>> list(computed_of(["z"], {"y": y, "z": z})), list(computed_of(["z"], {"z": z}))
    (['z', 'w', 'y', 'x'], ['z', 'w', 'y'])
    """
    return closure(names, lambda name: nodes[name].refs() if name in nodes else ())


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Numbers that are known only as symbols."""

NUMBERS = (bool, int, float, *SYMBOLIC)

SCHEMA_KINDS = frozenset(
    {"IntType", "SymIntType", "FloatType", "SymFloatType", "BoolType", "SymBoolType", "NumberType"}
)

OF_NUMBERS = ("operator.", "math.", "torch.sym_", "torch._sym_", "builtins.")
"""Prefixes of the names of plain functions that map numbers to numbers."""


def is_number(meta: Meta) -> bool | None:
    """Return whether a value is a number or several according to its meta, or None if unknown.

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
        given: inputs that are numbers.

    >>> from purefx.ir import Input, Node, Op, Ref
    >>> from purefx.ir.operators import op_of
    >>> size = Node("n", op_of(torch.ops.aten.sym_size.int), (Ref("x"), 0))
    >>> twice = Node("m", Op("operator.mul"), (Ref("n"), 2))
    >>> sorted(numbers_in(Graph((Input("x"),), (size, twice), Ref("m"))))
    ['m', 'n']
    """
    found = {
        formal.name for formal in graph.inputs if formal.name in given or is_number(formal.meta)
    }
    for node in graph.nodes:
        known = is_number(node.meta)
        if known or (known is None and _by_operator(node, found)):
            found.add(node.name)
    return frozenset(found)


def _by_operator(node: Node, known: Collection[str]) -> bool:
    if type(node.do) is not Op:
        return False
    if isinstance(node.target, OpOverload):
        returns = schema_of(node.target).returns
        return bool(returns) and all(_kind(part.type) in SCHEMA_KINDS for part in returns)
    refs = node.refs()
    return (
        bool(refs) and node.op_name.startswith(OF_NUMBERS) and all(name in known for name in refs)
    )


def _kind(kind: Any) -> str:
    return _kind(kind.getElementType()) if kind.kind() == "ListType" else str(kind.kind())


MOST_BITS = 2**16
"""Longer integers are not computed for a program: sizes have 64 bits."""

MOST_ITEMS = 10**6
"""Longer strings and lists are not built from sizes."""


def too_much_work(target: object, args: Sequence[Any]) -> str | None:
    """Return why a plain function on numbers is too expensive to call, or None.

    Args:
        target: any callable.
        args: its arguments; a reference is an unknown number.

    >>> too_much_work(operator.pow, (10, 10**9)), too_much_work(operator.mul, ("a", 10**9)), too_much_work(operator.mul, (2, 3))
    ('a result of more than 65536 bits', 'a result of more than 1000000 items', None)
    """
    bits = WORK.get(target) if isinstance(target, Hashable) else None
    if bits is None or len(args) not in (1, 2):
        return None
    left, right = args[0], args[-1]
    if isinstance(left, SEQUENCES) or isinstance(right, SEQUENCES):
        if target is operator.mod:
            is_long = isinstance(left, str | bytes) and WIDE.search(str(left)) is not None
        else:
            left, right = [len(arg) if isinstance(arg, SEQUENCES) else arg for arg in (left, right)]
            known = type(left) is int and type(right) is int
            is_long = (
                known and (left * right if target is operator.mul else left + right) > MOST_ITEMS
            )
        return f"a result of more than {MOST_ITEMS} items" if is_long else None
    is_large = (
        type(left) in (int, bool) and type(right) in (int, bool) and bits(left, right) > MOST_BITS
    )
    return f"a result of more than {MOST_BITS} bits" if is_large else None


SEQUENCES = (str, bytes, list, tuple)

WIDE = re.compile(r"[0-9]{6}|\*")
"""Format widths that turn a short string into a long one."""


def _of_power(base: int, exponent: int) -> int:
    return base.bit_length() * exponent if abs(base) > 1 and exponent > 0 else 0


def _longer(left: int, right: int) -> int:
    return max(left.bit_length(), right.bit_length())


WORK: Mapping[object, Callable[[int, int], int]] = {
    operator.pow: _of_power,
    pow: _of_power,
    operator.lshift: lambda left, right: left.bit_length() + right,
    operator.mul: lambda left, right: left.bit_length() + right.bit_length(),
    operator.add: _longer,
    operator.mod: _longer,
    round: lambda _, digits: 4 * abs(digits),
    math.factorial: lambda number, _: number,
    math.comb: lambda total, chosen: total * (chosen > 0),
    math.perm: lambda total, chosen: total * (chosen > 0),
}
"""Functions whose cost grows with their arguments, and the number of bits of their results."""
