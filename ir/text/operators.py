"""Operators by name: the dispatcher's registry, the registry of higher-order operators, and one fixed table; types by name.

One idea: a name in a text is only ever looked up, never followed through modules and never imported; what is not
registered, not in the table and not given by the reader stays unknown and runs nothing.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from ..borders import gives, takes
from ..effects.functions import known_functions, known_method
from ..opaque import call_guards, call_module
from ..operators import op_name
from ..torch_private import pytree, resolve_higher_order, resolve_operator
from ..trees import pack, unpack
from .spelling import is_path

__all__ = ["NOTHING_MORE", "Known", "named_types", "resolve", "type_name"]

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
    found += [takes, gives, call_module, call_guards, pack, unpack]
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
    found = PLAIN_FUNCTIONS.get(name) or known_functions().get(name)
    if found is not None:
        return found
    if not is_path(name):
        return None
    match name.split("."):
        case ["higher_order", operation]:
            return resolve_higher_order(operation)
        case ["tensor", method]:
            return known_method(method)
        case [namespace, operation, overload]:
            return resolve_operator(namespace, operation, overload)
        case _:
            return None


@frozen
class Known:
    """What a reader gives beside the registries: operators and types that a text may name.

    >>> Known({"toy.neg": abs}).operator("toy.neg") is abs, Known().operator("os.system") is None
    (True, True)
    """

    operators: Mapping[str, Target] = MappingProxyType({})
    types: Mapping[str, type] = MappingProxyType({})

    def operator(self, name: str) -> Target | None:
        """Return the operator that a name stands for, or None."""
        return self.operators[name] if name in self.operators else resolve(name)

    def type(self, name: str) -> Any:
        """Return the type of a pytree node that a name stands for, or None: one that is given, or registered as a node."""
        if name in self.types:
            return self.types[name]
        # The last one: a notebook defines and registers a class of one name again and again.
        registered = (kind for kind in reversed(pytree.SUPPORTED_NODES) if isinstance(kind, type))
        return next((kind for kind in registered if type_name(kind) == name), None)


NOTHING_MORE = Known()
"""The registries alone."""


def type_name(kind: type) -> str:
    """Return the name under which a type is written.

    >>> type_name(torch.return_types.max)
    'torch.return_types.max'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def named_types(types: Iterable[type]) -> Mapping[str, type]:
    """Return types by name.

    Raises:
        TypeError: one is no type.

    >>> dict(named_types([dict]))
    {'builtins.dict': <class 'dict'>}
    """
    found = list(types)
    for kind in found:
        if not isinstance(kind, type):
            raise TypeError(f"types holds classes, not a {type(kind).__name__}")
    return {type_name(kind): kind for kind in found}
