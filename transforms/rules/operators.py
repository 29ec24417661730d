"""Operators of torch by name, and their arguments in the order of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir.errors import RuleError
from ...ir.names import did_you_mean
from ...ir.taking import kind_of
from ...ir.torch_private import (
    OpOverload,
    OpOverloadPacket,
    Parameter,
    overload_of,
    overloads_of,
    parameters_of,
    schema_of,
)

__all__ = ["INSTEAD", "arranged", "operator_named", "takes_sizes"]

EQUIVALENT: Mapping[str, str] = {f"bitwise_{name}": f"__{name}__" for name in ("and", "or", "xor")}
"""``x & y`` is exported as ``aten.__and__``, ``torch.bitwise_and(x, y)`` under its own name."""

INSTEAD = "compute a new one (x + 1 for x.add_(1), torch.where or index_put for x[i] = y), and use that"


def operator_named(function: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of an operator, and its overloads that compute a new value.

    >>> operator_named(torch.relu)
    ('relu', [<OpOverload(op='aten.relu', overload='default')>])

    Raises:
        RuleError: no such operator exists.
    """
    function = overload_of(function)
    if isinstance(function, OpOverload):
        name, overloads = schema_of(function).name.partition("::")[2], [function]
    elif isinstance(function, OpOverloadPacket):
        name, overloads = function.__name__, [getattr(function, overload) for overload in function.overloads()]
    else:
        name = function if isinstance(function, str) else getattr(function, "__name__", str(function))
        several = [*overloads_of(name), *overloads_of(EQUIVALENT.get(name, ""))]
        overloads = [one for one in several if _computes_tensors(one)]
    if not overloads:
        if isinstance(function, torch.nn.Module) or (isinstance(function, type) and issubclass(function, torch.nn.Module)):
            raise RuleError(f"{kind_of(function)} is not an operator; px.module(its path or its class) matches calls of a module")
        near = did_you_mean(name, dir(torch.ops.aten))
        raise RuleError(f"{name!r} is not an operator of aten{near}; write torch.ops.<library>.<operator>")
    found = [one for one in overloads if not any(each.is_written for each in parameters_of(one))]
    if not found:
        raise RuleError(f"{name} writes into its arguments, and a rule looks for values and builds such: {INSTEAD}")
    return name, found


def _computes_tensors(overload: Any) -> bool:
    kinds = [each.kind for each in parameters_of(overload)], [str(each.type) for each in schema_of(overload).returns]
    return all(any("Tensor" in kind for kind in several) for several in kinds)


def takes_sizes(overload: Any) -> bool:
    """Return whether the parameter after the tensor is a list of integers, which methods of torch also accept one by one.

    >>> takes_sizes(torch.ops.aten.reshape.default), takes_sizes(torch.ops.aten.relu.default)
    (True, False)
    """
    return any(one.kind == "List[int]" and one.size is None for one in parameters_of(overload)[1:2])


def arranged(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the argument of each parameter, defaults included; None if there are too few, too many or unknown ones.

    >>> arranged(torch.ops.aten.relu.default, ("anything",), {}), arranged(torch.ops.aten.relu.default, (), {})
    ({'self': 'anything'}, None)
    >>> arranged(torch.ops.aten.conv2d.default, ("x", "w", None, 2), {})["stride"]
    [2, 2]
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
        found[one.name] = _converted(given.pop(one.name, one.default), one)
    return None if given else found


def _converted(value: Any, parameter: Parameter) -> Any:
    # A list where one number is short for it, a float where an integer is, a device where its name is.
    if type(value) is list:
        return [*value]
    if type(value) is str and "Device" in parameter.kind:
        return torch.device(value)
    if type(value) is not int:
        return value
    if parameter.kind in ("float", "Optional[float]"):
        return float(value)
    return [value] * (parameter.size or 1) if "List[int]" in parameter.kind else value
