"""Fitting: whether arguments of a call can be what the parameters of an overload take.

A value as it stands says what it is; a term can be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir.arguments import Ref
from ...ir.torch_private import parameters_of
from .overloads import arranged
from .writing import Made, Number, fits

__all__ = ["bound", "values_as_numbers"]


def bound(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what each parameter of an overload gets, defaults included; None if the arguments do not fit.

    >>> from .terms import Var
    >>> bound(torch.ops.aten.add.Tensor, (Var("x"), 2), {})
    {'self': x, 'other': 2, 'alpha': 1}
    """
    found = arranged(overload, args, kwargs)
    if found is None or not all(_fits(found[one.name], one.kind) for one in parameters_of(overload)):
        return None
    return found


def values_as_numbers(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return how many computed values an overload would get where it takes numbers: they are tensors as a rule.

    >>> from .terms import Var
    >>> values_as_numbers(torch.ops.aten.pow.Tensor_Scalar, (Var("x"), Var("y")), {})
    1
    """
    found = arranged(overload, args, kwargs) or {}
    return sum(["Tensor" not in one.kind and isinstance(found.get(one.name), Made) for one in parameters_of(overload)])


def _fits(value: Any, kind: str) -> bool:
    # Whether a value as it stands can be what a parameter of a type takes; a term can be anything.
    if isinstance(value, torch.Tensor):
        return "Tensor" in kind
    if isinstance(value, Made):
        return fits(value, kind)
    if isinstance(value, Ref) or value is None:
        return value is not None or kind.startswith("Optional")
    if isinstance(value, list | tuple):
        return "List[" in kind
    if isinstance(value, Number):
        return "List[" not in kind and any(word in kind for word in ("number", "float", "int", "Tensor"))
    if isinstance(value, bool):
        return "bool" in kind or "number" in kind or "Tensor" in kind
    if isinstance(value, int | float | complex):
        is_number = any(word in kind for word in ("number", "float", "complex" if isinstance(value, complex) else "int"))
        return is_number or "Tensor" in kind or ("int" in kind and isinstance(value, int))
    if isinstance(value, str | torch.device):
        return "Device" in kind or (isinstance(value, str) and "str" in kind)
    return "int" in kind and "List[" not in kind  # a type, a layout
