"""What counts as data in the arguments of a call: values that nothing but torch and Python have methods for.

Objects of other classes are checked by class where a module is called; data is checked by content.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from ...ir.analysis.numbers import SYMBOLIC

__all__ = ["foreign_class"]

SCALARS = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip

SEQUENCES = frozenset({tuple, list, torch.Size, immutable_list, set, frozenset})

MAPPINGS = frozenset({dict, OrderedDict, immutable_dict})

TORCHS = (torch.Tensor, torch.Generator, torch.ScriptObject, torch.fx.Proxy, *SYMBOLIC)

CALLED = (
    "getitem", "iter", "len", "contains", "add", "radd", "sub", "rsub", "mul", "rmul", "matmul", "rmatmul", "mod", "rmod", "pow",
    "rpow", "truediv", "rtruediv", "floordiv", "rfloordiv", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift",
    "rshift", "rrshift", "neg", "pos", "abs", "invert", "index", "int", "float", "complex", "bool", "round", "trunc", "floor",
    "ceil", "eq", "ne", "lt", "le", "gt", "ge", "getattribute", "getattr", "format", "str", "hash", "torch_function",
)  # fmt: skip
"""Methods, without their underscores, that functions on data call."""


def foreign_class(value: Any, also: tuple[type, ...]) -> type | None:
    """Return the class of the first object in a value that is not data, or None.

    Args:
        value: what a caller passes.
        also: classes that are accepted besides.

    >>> foreign_class(([1, torch.ones(2)], {"a": None}), ()), foreign_class([object()], ()), foreign_class(object(), (object,))
    (None, <class 'object'>, None)
    """
    todo = [value]
    while todo:
        part = todo.pop()
        kind: Any = type(part)
        if kind in SCALARS or isinstance(part, TORCHS) or kind.__module__ == "numpy":
            continue
        if kind in MAPPINGS:
            todo += [*part.keys(), *part.values()]
        elif kind in SEQUENCES or (isinstance(part, tuple) and _is_plain(kind)):
            todo.extend(part)
        elif not isinstance(part, also):
            return kind
    return None


@functools.lru_cache(maxsize=256)
def _is_plain(kind: type) -> bool:
    # Named tuples, which torch's operators give and callers pass: a tuple with names and no methods of its own.
    above = kind.__mro__[: -len(tuple.__mro__)]
    return not any(f"__{name}__" in vars(part) for part in above for name in CALLED)
