"""Spelling: the operators that Python code of torch is in exported programs.

Tables name the operators of Python's operators, attributes and methods; ``steps`` gives those of an index; ``follow`` runs
torch's functions that are written in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import product
from types import CellType, FunctionType
from typing import Any

import torch

from ...ir.errors import RuleError
from ...ir.torch_private import builtin_functions, overloads_of
from .amounts import Amount, Unanswered

__all__ = ["ATTRIBUTES", "CASTS", "DEVICES", "EQUIVALENT", "NEVER_WRITTEN", "OF_PYTHON", "TURNED", "follow", "steps", "typical"]

OF_PYTHON: Mapping[str, str] = {
    "truediv": "div", "mod": "remainder", "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "invert": "bitwise_not", "pos": "positive", "lshift": "__lshift__", "rshift": "__rshift__",
    "radd": "add", "rmul": "mul", "rsub": "rsub", "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor",
    **{name: name for name in ("add", "sub", "mul", "matmul", "pow", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
"""The operator that each operator of Python is; ``x - 2`` and ``2 - x`` are two."""

TURNED: Mapping[str, str] = {
    "rpow": "pow", "rmod": "remainder", "rfloordiv": "floor_divide", "rlshift": "bitwise_left_shift",
    "rrshift": "bitwise_right_shift", "rmatmul": "matmul",
}  # fmt: skip
"""Operators of Python whose left operand is no value, and which torch computes with it in front: ``2 ** x``."""

EQUIVALENT: Mapping[str, str] = {f"bitwise_{name}": f"__{name}__" for name in ("and", "or", "xor")}
"""Other names for the same computation: ``x & y`` is exported as ``aten.__and__``, ``torch.bitwise_and(x, y)`` under its name."""

CASTS: Mapping[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "int": torch.int32,
    "long": torch.int64, "bool": torch.bool, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "cfloat": torch.complex64, "cdouble": torch.complex128,
}  # fmt: skip
"""Methods that are ``to``, with the type."""

DEVICES = frozenset({"cpu", "cuda"})
"""Methods that are ``to``, with the device of their name."""

ATTRIBUTES: Mapping[str, str] = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "real": "real", "imag": "imag"}
"""The operators that attributes of tensors are."""

NEVER_WRITTEN = frozenset({
    "dim", "ndim", "ndimension", "stride", "storage_offset", "element_size", "is_contiguous", "is_floating_point", "is_complex",
    "is_signed", "is_nonzero", "is_same_size", "get_device", "layout", "requires_grad", "is_sparse", "is_quantized",
})  # fmt: skip
"""What a tensor is asked for and no exported program computes: the answer was a number, or chose between two ways."""


TO_THE_END = 2**63 - 1


def steps(index: Any, is_tensor: Callable[[Any], bool | None]) -> list[list[tuple[str, tuple[Any, ...]]]]:
    """Return the operators of an index in order, and what each is given beside the value, the dimension first.

    Dimensions behind ``...`` are counted from the last one on, and are negative.  Where a part may be a number or a tensor, there
    are several ways.

    Args:
        index: what stands in the brackets.
        is_tensor: says whether a part of it is a tensor, of positions or of truth values; None if it may be a number as well.

    >>> steps((slice(None), slice(1, None), None, 0), lambda part: False)
    [[('slice', (1, 1, 9223372036854775807)), ('unsqueeze', (2,)), ('select', (3, 0))]]
    >>> steps((..., 0), lambda part: False), steps("i", lambda part: None)
    ([[('select', (-1, 0))]], [[('index', (['i'],))], [('select', (0, 'i'))]])

    Raises:
        RuleError: which operators it is depends on the value, or it is no index.
    """
    parts = index if isinstance(index, tuple) else (index,)
    before = next((number for number, part in enumerate(parts) if part is Ellipsis), len(parts))
    kinds = [_kinds(part, is_tensor, is_behind=number > before) for number, part in enumerate(parts)]
    return [_way(parts, chosen) for chosen in product(*kinds)]


def _kinds(part: Any, is_tensor: Callable[[Any], bool | None], *, is_behind: bool) -> list[str]:
    # What a part may be.
    if part is None or part is Ellipsis or isinstance(part, slice):
        return [""]
    if type(part) is int or isinstance(part, Amount | torch.SymInt):
        return ["number"]
    found = is_tensor(part)
    if found is False or (found and is_behind):
        raise RuleError(
            f"[{part!r}] in a rule: which dimension that is, or what it selects, depends on the value; write an operator:\n"
            "torch.select(x, dim, 0), torch.ops.aten.slice.Tensor(x, dim, 0, end), torch.ops.aten.index.Tensor(x, [index])"
        )
    return ["tensor"] if found else ["number"] if is_behind else ["tensor", "number"]


def _way(parts: Sequence[Any], kinds: Sequence[str]) -> list[tuple[str, tuple[Any, ...]]]:
    found: list[tuple[str, tuple[Any, ...]]] = []
    tensors: dict[int, Any] = {}
    dim, is_behind = 0, False
    for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        if part is Ellipsis:
            dim, is_behind = -sum(each is not None for each in parts[number + 1 :]), True
        elif part is None:
            found.append(("unsqueeze", (dim - is_behind,)))
            dim += not is_behind
        elif kind == "number":
            found.append(("select", (dim, part)))
            dim += is_behind
        else:
            if isinstance(part, slice):
                found += _slice(part, dim)
            else:
                tensors[dim] = part
            dim += 1
    if tensors:
        found.append(("index", ([tensors.get(number) for number in range(max(tensors) + 1)],)))
    return found


def _slice(part: slice, dim: int) -> list[tuple[str, tuple[Any, ...]]]:
    start, end = 0 if part.start is None else part.start, TO_THE_END if part.stop is None else part.stop
    step = () if part.step is None else (part.step,)
    is_all = all(type(each) is int for each in (start, end, *step)) and (start, end, *step) in (
        (0, TO_THE_END),
        (0, TO_THE_END, 1),
    )
    return [] if is_all else [("slice", (dim, start, end, *step))]


class _Device:
    """Where the operands of a function that is followed are: on a device for which it does nothing special."""

    type = "cpu"


class _Rank:
    """How many dimensions an operand has: some."""

    def __eq__(self, other: object) -> bool:
        return False if type(other) is int and other == 0 else _refuse()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    __lt__ = __gt__ = __le__ = __ge__ = __add__ = __sub__ = __mul__ = __rsub__ = __index__ = lambda *_: _refuse()  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _refuse() -> Any:
    raise Unanswered("how many dimensions a value has is known only where the rule matches")


TYPICAL: Mapping[str, Any] = {
    "layout": torch.strided, "device": _Device(), "is_sparse": False, "is_quantized": False, "ndim": _Rank(), "dim": _Rank,
    "requires_grad": False,
}  # fmt: skip
"""What operands are taken to be where torch's functions ask them."""

_FOLLOWED: ContextVar[bool] = ContextVar("followed", default=False)
"""Whether a function of torch is followed: its operands have no other way to know who asks them."""


def typical(name: str) -> Any:
    """Return what an attribute of an operand is while a function is followed; None if none is, or it is not said.

    >>> typical("layout")
    """
    return TYPICAL.get(name) if _FOLLOWED.get() else None


def follow(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function of torch returns for terms.

    Args:
        function: written in Python.
        args: terms, and arguments as they stand.
        kwargs: those that are given by name.

    Raises:
        RuleError: what it computes depends on what only a run knows.
    """
    token = _FOLLOWED.set(True)
    try:
        inspect.signature(function).bind(*args, **kwargs)
        return _plain(function)(*args, **kwargs)
    except TypeError as error:
        known = {name for name, _ in builtin_functions()}
        calls = [f"torch.ops.aten.{name}" for name in function.__code__.co_names if name in known and overloads_of(name)]
        raise RuleError(
            f"what {function.__name__} computes depends on what a rule does not know ({str(error).partition(chr(10))[0]}).\n"
            f"Write the operator that it calls in the program, such as {', '.join(calls[:4]) or 'torch.ops.aten.<name>'}"
        ) from error
    finally:
        _FOLLOWED.reset(token)


def _overriding(function: FunctionType) -> dict[str, Any]:
    # torch's Python functions hand an argument that overrides them to its class; here they run as for a tensor.
    plain = {name: lambda *_: False for name in function.__globals__ if name.startswith("has_torch_function")}
    return {**function.__globals__, **plain}


def _plain(function: FunctionType) -> Callable[..., Any]:
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    closure = tuple([CellType(_plain(one) if isinstance(one, FunctionType) else one) for one in inner]) or None
    same = FunctionType(function.__code__, _overriding(function), function.__name__, function.__defaults__, closure)
    same.__kwdefaults__ = function.__kwdefaults__
    return same
