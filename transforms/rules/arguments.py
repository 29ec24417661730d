"""The arguments of an operator as its schema orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir.torch_private import Parameter, parameters_of

__all__ = ["arranged", "as_taken", "takes_sizes"]


def takes_sizes(overload: Any) -> bool:
    """Return whether a list of integers of any length stands behind the tensor, which torch's methods take one by one as well.

    >>> takes_sizes(torch.ops.aten.reshape.default), takes_sizes(torch.ops.aten.relu.default)
    (True, False)
    """
    return any(one.kind == "List[int]" and one.size is None for one in parameters_of(overload)[1:2])


def arranged(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the argument of each parameter, defaults included; None if there are too few, too many or unknown ones.

    >>> arranged(torch.ops.aten.relu.default, ("anything",), {}), arranged(torch.ops.aten.relu.default, (), {})
    ({'self': 'anything'}, None)
    """
    parameters = parameters_of(overload)
    plain = [one.name for one in parameters if not one.kwarg_only]
    given = dict(zip(plain, args, strict=False))
    if len(args) > len(plain) or not given.keys().isdisjoint(kwargs):
        return None
    given.update(kwargs)
    found: dict[str, Any] = {}
    for one in parameters:
        if one.name not in given and not one.has_default:
            return None
        default = list(one.default) if type(one.default) is list else one.default
        found[one.name] = as_taken(given.pop(one.name, default), one)
    return None if given else found


def as_taken(value: Any, parameter: Parameter) -> Any:
    """Return what a parameter takes an argument for: a list where one number stands for it, a float where an integer stands.

    >>> as_taken(2, parameters_of(torch.ops.aten.conv2d.default)[3])
    [2, 2]
    """
    if type(value) is str and "Device" in parameter.kind:
        return torch.device(value)
    if type(value) is not int:
        return value
    if parameter.kind in ("float", "Optional[float]"):
        return float(value)
    return [value] * (parameter.size or 1) if "List[int]" in parameter.kind else value
