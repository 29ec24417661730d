"""Example inputs: those of the caller, or made up ones of the sizes that were exported.

One idea: ``ep.module()`` enforces guards, and AOTInductor compiles, only where an exported program has example inputs.  A
program does not keep those of the export, so zeros stand for them: of the right structure, sizes, dtypes and devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...ir.errors import InputError
from ...ir.numbers import SYMBOLIC
from ...ir.program import Program
from ...ir.signature import UserInput
from ...ir.torch_private import pytree, size_number
from .graphs import Made

__all__ = ["Inputs", "checked_inputs", "made_up_inputs"]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


class Unknown(Exception):
    """No example can be made up."""


def checked_inputs(given: Any, in_spec: Any) -> Inputs:
    """Return the caller's example inputs.

    Args:
        given: ``(args, kwargs)``.
        in_spec: the pytree that they must have.

    Raises:
        InputError: they are something else.
    """
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict)):
        raise InputError(f"example_inputs is a pair (args, kwargs) of a tuple and a dict, not {type(given).__name__}")
    args, kwargs = given
    wanted = in_spec.children()[1].context or []
    kwargs = {key: kwargs[key] for key in wanted if key in kwargs} | kwargs
    found = pytree.tree_structure((args, kwargs))
    if found != in_spec:
        raise InputError(f"example_inputs are structured as {found}, and the program takes {in_spec}")
    return args, kwargs


def made_up_inputs(program: Program, root: Made, in_spec: Any) -> Inputs | None:
    """Return zeros of the sizes that were exported; None where a size, an object or a device is not at hand.

    Args:
        program: the program.
        root: its graph, with fake values.
        in_spec: the pytree of the arguments.
    """
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    users: Iterable[Any] = [root.nodes[formal.name].meta["val"] for formal, spec in pairs if type(spec) is UserInput]
    try:
        leaves = [_example(value) for value in users]
        args, kwargs = pytree.tree_unflatten(leaves, in_spec)
    except (Unknown, RuntimeError, AssertionError, TypeError, ValueError):
        return None  # a device that this machine lacks, a class that does not take zeros
    return args, kwargs


def _example(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise Unknown
        sizes = [_number(size) for size in value.shape]
        strides = [_number(size) for size in value.stride()]
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).zero_()
    if value is None or isinstance(value, (bool, int, float, str, *SYMBOLIC)):
        return _number(value)
    raise Unknown


def _number(value: Any) -> Any:
    if not isinstance(value, SYMBOLIC):
        return value
    number = size_number(value)
    if number is None:
        raise Unknown
    return number
