"""``Kind``: what the exporter knows of a value without computing it: a fake tensor or a symbolic size.

One idea: there are few kinds, so each is made once, and what an operator makes of given kinds is asked of torch once and
remembered; programs share the fake values, which nobody writes to.  No real tensor is computed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from attrs import frozen
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ....ir.torch_private import FakeTensor, FakeTensorMode

__all__ = ["REFUSED", "Kind", "combine", "fake_mode", "infer", "number_kind", "size", "tensor_kind"]


@frozen(eq=False)
class Kind:
    """The fake value of a node, and what the menu asks of it.

    >>> tensor_kind(torch.float32, 3, 4).dims
    ('3', '4')
    """

    text: str
    val: Any
    dims: tuple[str, ...] = ()
    """The sizes as text: comparing symbolic ones would install guards."""
    dtype: torch.dtype | None = None
    """None for a number."""
    is_plain: bool = True
    """No two elements share memory, so that it can be written."""
    is_contiguous: bool = True


REFUSED = Kind("refused", None)
"""What an operator makes of kinds that it does not take."""


@cache
def fake_mode() -> Any:
    """Return the mode that all fake values live in."""
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)


@cache
def size() -> torch.SymInt:
    """Return the one dynamic size, which is called as the exporter calls it."""
    return fake_mode().from_tensor(torch.empty(7), static_shapes=False).shape[0]


_KINDS: dict[str, Kind] = {}


def tensor_kind(dtype: torch.dtype, *sizes: Any, requires_grad: bool = False) -> Kind:
    """Return the kind of a contiguous tensor.

    >>> tensor_kind(torch.float32, 4) is tensor_kind(torch.float32, 4)
    True
    """
    text = f"{dtype}{[*map(str, sizes)]}{'!' if requires_grad else ''}"
    found = _KINDS.get(text)
    if found is None:
        with fake_mode():
            found = _KINDS[text] = _kind(torch.empty(sizes, dtype=dtype, requires_grad=requires_grad))
    return found


def number_kind(value: Any) -> Kind:
    """Return the kind of a number, symbolic or not."""
    text = f"{type(value).__name__} {value}"
    return _KINDS.setdefault(text, Kind(text, value))


def _kind(value: Any) -> Kind:
    if not isinstance(value, FakeTensor):
        return number_kind(value)
    dims, strides = tuple(map(str, value.shape)), [*map(str, value.stride())]
    text = f"{value.dtype}{dims}{strides}{value.requires_grad}"
    is_plain = all(stride != "0" or dim == "1" for dim, stride in zip(dims, strides, strict=True))
    made = Kind(text, value, dims, value.dtype, is_plain, bool(value.is_contiguous()))
    return _KINDS.setdefault(text, made)


_INFERRED: dict[object, Any] = {}


def infer(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the kind of an operator's result, a tuple of kinds for several, None for nothing, ``REFUSED`` for an error.

    Args:
        target: the operator.
        args: kinds in the place of values; literals.
        kwargs: the same by name.

    >>> infer(torch.ops.aten.add.Tensor, (tensor_kind(torch.float32, 3, 4), tensor_kind(torch.int64, 4)), {}).dims
    ('3', '4')
    """
    key = (target, _key(args), _key(tuple(kwargs.items())))
    try:
        return _INFERRED[key]
    except KeyError:
        found = _INFERRED[key] = _asked(target, args, kwargs)
        return found


def _asked(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # First on meta tensors of plain sizes: torch logs what fake tensors refuse, and guards what it asks of symbolic sizes.
    try:
        with torch.no_grad():
            target(*map(_sample, args), **{key: _sample(value) for key, value in kwargs.items()})
        # A guard would hold for all programs, which share the one dynamic size.
        with fake_mode() as mode, mode.shape_env.error_on_new_guards(), torch.no_grad():
            result = target(*map(_val, args), **{key: _val(value) for key, value in kwargs.items()})
    except (RuntimeError, TypeError, ValueError, IndexError):
        return REFUSED
    if result is None:
        return None
    return tuple(map(_kind, result)) if isinstance(result, tuple | list) else _kind(result)


def _key(arg: Any) -> object:
    if isinstance(arg, tuple | list):
        return tuple([_key(part) for part in arg])
    return arg.text if type(arg) is Kind else (type(arg), str(arg))


def _val(arg: Any) -> Any:
    if isinstance(arg, tuple | list):
        return [_val(part) for part in arg]
    return arg.val if type(arg) is Kind else arg


def _sample(arg: Any) -> Any:
    if isinstance(arg, tuple | list):
        return [_sample(part) for part in arg]
    if type(arg) is not Kind:
        return arg
    if isinstance(arg.val, FakeTensor):
        sizes, strides = [*map(_plain, arg.val.shape)], [*map(_plain, arg.val.stride())]
        return torch.empty_strided(sizes, strides, dtype=arg.dtype, device="meta")
    return _plain(arg.val)


def _plain(value: Any) -> Any:
    return int(value.node.expr.subs(size().node.expr, 7)) if isinstance(value, torch.SymInt) else value


def combine(left: Kind, right: Kind) -> bool:
    """Say whether two kinds can be broadcast together without asking about a symbolic size.

    >>> combine(tensor_kind(torch.float32, 3, 4), tensor_kind(torch.float32, 4))
    True
    >>> combine(tensor_kind(torch.float32, 3), tensor_kind(torch.float32, 4))
    False
    """
    pairs = zip(reversed(left.dims), reversed(right.dims), strict=False)
    return all(a == b or "1" in (a, b) for a, b in pairs)
