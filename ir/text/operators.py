"""Operators by name: the dispatcher's registry, the registry of higher-order operators, and one fixed table.

One idea: a name in a text is only ever looked up, never followed through modules; what is not registered and not in
the table stays unknown and runs nothing.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from ..borders import gives, takes
from ..opaque import call_module
from ..operators import op_name
from ..torch_private import resolve_higher_order, resolve_operator
from ..trees import pack, unpack
from .spelling import is_path

__all__ = ["resolve"]

Target = Callable[..., Any]

OPERATOR_NAMES = (
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "index", "invert", "is_", "is_not", "le", "lshift", "lt",
    "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "truth", "xor",
)  # fmt: skip

BUILTIN_NAMES = ("abs", "bool", "float", "int", "max", "min", "pow", "round")


def _plain_functions() -> dict[str, Target]:
    found = [getattr(operator, name) for name in OPERATOR_NAMES]
    found += [getattr(builtins, name) for name in BUILTIN_NAMES]
    found += [value for name, value in vars(math).items() if callable(value) and not name.startswith("_")]
    found += [value for name, value in vars(torch).items() if name.startswith(("sym_", "_sym_")) and callable(value)]
    found += [takes, gives, call_module, pack, unpack]
    return {op_name(function): function for function in found}


PLAIN_FUNCTIONS = _plain_functions()
"""The functions on sizes and other numbers that stand in exported graphs beside operators."""


def resolve(name: str) -> Target | None:
    """Return the operator that a name stands for, or None.

    Args:
        name: as ``Op.name`` has it.

    >>> resolve("aten.add.Tensor") is torch.ops.aten.add.Tensor, resolve("operator.getitem") is operator.getitem
    (True, True)
    >>> resolve("os.system") is None
    True
    """
    if name in PLAIN_FUNCTIONS:
        return PLAIN_FUNCTIONS[name]
    if not is_path(name):
        return None
    match name.split("."):
        case ["higher_order", found]:
            return resolve_higher_order(found)
        case [namespace, operation, overload]:
            return resolve_operator(namespace, operation, overload)
        case _:
            return None
