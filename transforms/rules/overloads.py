"""Overloads: which operator a name means, and what each of its parameters gets from the arguments of a call.

Arguments are arranged as the schema orders them, defaults included.  A literal fits the types of parameters that take it; a term
can be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ...ir.arguments import Ref
from ...ir.errors import RuleError
from ...ir.names import did_you_mean
from ...ir.taking import kind_of
from ...ir.torch_private import OpOverload, OpOverloadPacket, Parameter, overload_of, overloads_of, parameters_of, schema_of
from .amounts import Made, fits
from .spelling import EQUIVALENT

__all__ = [
    "INSTEAD", "arranged", "as_taken", "bound", "converted", "is_factory", "numbers_as_tensors", "operator_named",
    "takes_sizes", "values_as_numbers",
]  # fmt: skip

INSTEAD = "compute a new one (x + 1 for x.add_(1), torch.where or index_put for x[i] = y), and use that"
"""What to write in place of an operator that writes."""


def operator_named(function: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of an operator, and its overloads that compute a new value.

    >>> operator_named(torch.relu)
    ('relu', [<OpOverload(op='aten.relu', overload='default')>])

    Raises:
        RuleError: there is none.
    """
    function = overload_of(function)
    if isinstance(function, OpOverload):
        name, overloads = schema_of(function).name.partition("::")[2], [function]
    elif isinstance(function, OpOverloadPacket):
        name, overloads = function.__name__, [getattr(function, overload) for overload in function.overloads()]
    else:
        name = function if isinstance(function, str) else getattr(function, "__name__", str(function))
        overloads = [*_of_tensors(name), *(_of_tensors(EQUIVALENT[name]) if name in EQUIVALENT else ())]
    if not overloads:
        near = did_you_mean(name, dir(torch.ops.aten))
        if isinstance(function, torch.nn.Module) or (isinstance(function, type) and issubclass(function, torch.nn.Module)):
            raise RuleError(f"{kind_of(function)} is no operator; px.module(its path or its class) stands for calls of a module")
        raise RuleError(f"{name!r} is not an operator of aten{near}; write torch.ops.<library>.<operator>")
    found = [one for one in overloads if not _writes(one)]
    if not found:
        raise RuleError(f"{name} writes into its arguments, and a rule looks for values and builds such: {INSTEAD}")
    return name, found


def _of_tensors(name: str) -> Sequence[Any]:
    # None is not for good: a library may be loaded.
    found = _known_of_tensors(name)
    if not found:
        _known_of_tensors.cache_clear()
    return found


@lru_cache(maxsize=1024)
def _known_of_tensors(name: str) -> tuple[Any, ...]:
    # Those that neither take nor make a tensor compute on Python's numbers.
    overloads = overloads_of(name)
    return tuple([one for one in overloads if is_factory(one) or any("Tensor" in each.kind for each in parameters_of(one))])


def is_factory(overload: Any) -> bool:
    """Return whether an overload makes a tensor of no other one.

    >>> is_factory(torch.ops.aten.zeros.default), is_factory(torch.ops.aten.zeros_like.default)
    (True, False)
    """
    returns = [str(one.type) for one in schema_of(overload).returns]
    return returns == ["Tensor"] and not any("Tensor" in each.kind for each in parameters_of(overload))


@lru_cache(maxsize=4096)
def _writes(overload: Any) -> bool:
    return any(one.is_written for one in parameters_of(overload))


def takes_sizes(overload: Any) -> bool:
    """Return whether a list of integers of any length stands behind the tensor, which torch's methods take one by one as well.

    >>> takes_sizes(torch.ops.aten.reshape.default), takes_sizes(torch.ops.aten.relu.default)
    (True, False)
    """
    return any(one.kind == "List[int]" and one.size is None for one in parameters_of(overload)[1:2])


def arranged(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what each parameter of an overload gets, whatever it is; None if there are too few, too many or unknown ones.

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
        if one.name in given:
            found[one.name] = as_taken(given.pop(one.name), one)
        elif one.has_default:
            found[one.name] = as_taken(list(one.default) if type(one.default) is list else one.default, one)
        else:
            return None
    return None if given else found


def converted(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments as the dispatcher takes them: a list where one number stands for it, a float where an integer stands.

    >>> converted(torch.ops.aten.conv2d.default, ("x", "w", None, 1), {"padding": 2})
    (['x', 'w', None, [1, 1]], {'padding': [2, 2]})
    """
    of = {one.name: one for one in parameters_of(overload)}
    plain = [one for one in of.values() if not one.kwarg_only]
    by_position = [_as_listed(value, one) for value, one in zip(args, plain, strict=False)]
    return by_position, {key: _as_listed(value, of[key]) for key, value in kwargs.items()}


def _as_listed(value: Any, parameter: Parameter) -> Any:
    # Sizes are a tuple where they are asked for (or a torch.Size), and a list among the arguments of an operator.
    return list(value) if isinstance(value, tuple) and "List[" in parameter.kind else as_taken(value, parameter)


def as_taken(value: Any, parameter: Parameter) -> Any:
    """Return what a parameter takes an argument for: a list where one number stands for it, a float where an integer stands.

    >>> as_taken(2, parameters_of(torch.ops.aten.conv2d.default)[3])
    [2, 2]
    """
    if type(value) is str and "Device" in parameter.kind:
        return torch.device(value)
    if type(value) is not int:
        return value
    kind = parameter.kind
    if kind in ("float", "Optional[float]"):
        return float(value)
    return [value] * (parameter.size or 1) if "List[int]" in kind else value


def numbers_as_tensors(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return how many numbers an overload would get where it takes tensors: the best one gets the fewest.

    >>> numbers_as_tensors(torch.ops.aten.pow.Tensor_Tensor, ("x", 2), {})
    1
    """
    found = arranged(overload, args, kwargs) or {}
    numbers = {name for name, value in found.items() if isinstance(value, int | float | complex)}
    return sum([one.kind == "Tensor" and one.name in numbers for one in parameters_of(overload)]) if numbers else 0


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
    if isinstance(value, torch.SymInt):
        return "List[" not in kind and any(word in kind for word in ("number", "int", "Tensor"))
    if isinstance(value, bool):
        return "bool" in kind or "number" in kind or "Tensor" in kind
    if isinstance(value, int | float | complex):
        is_number = any(word in kind for word in ("number", "float", "complex" if isinstance(value, complex) else "int"))
        return is_number or "Tensor" in kind or ("int" in kind and isinstance(value, int))
    if isinstance(value, str | torch.device):
        return "Device" in kind or (isinstance(value, str) and "str" in kind)
    return "int" in kind and "List[" not in kind  # a type, a layout
