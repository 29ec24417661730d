"""Every name of torch that is not public and that purefx touches, with the reason.

One idea: when torch moves one, one file changes, and ``tests/upstream/test_torch_private.py`` says which.  Nothing
is wrapped here beyond giving it a typed name.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this file is for.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch._ops
import torch.fx.graph
import torch.utils._pytree
from torch._subclasses.fake_tensor import FakeTensor

__all__ = [
    "EMPTY_STACK_KEY",
    "FakeTensor",
    "HigherOrderOperator",
    "OpOverload",
    "PyTreeCodeGen",
    "PyTreeInfo",
    "buffers_dict",
    "children_dict",
    "codegen_of",
    "guards_of",
    "parameters_dict",
    "pytree",
    "resolve_higher_order",
    "resolve_operator",
    "schema_of",
    "storage_key",
    "unsaved_buffers",
]  # fmt: skip

pytree: Any = torch.utils._pytree
"""The pytree library; torch has no public name for it, and exported signatures are its ``TreeSpec``."""

OpOverload: Any = torch._ops.OpOverload
"""The type of ``torch.ops.aten.add.Tensor``; public code only has its instances."""

HigherOrderOperator: Any = torch._ops.HigherOrderOperator
"""The type of ``torch.ops.higher_order.cond``."""

PyTreeCodeGen: Any = torch.fx.graph._PyTreeCodeGen
"""Makes a graph's code take and give pytrees, as the graph of ``ep.module()`` does."""

PyTreeInfo: Any = torch.fx.graph._PyTreeInfo
"""Its argument names and specs."""

EMPTY_STACK_KEY = "_empty_nn_module_stack_from_metadata_hook"
"""The key that the exporter gives to a node that no module stack is known for."""


def schema_of(target: Any) -> Any:
    """Return the schema of an operator overload: the only place where torch states its effects.

    >>> schema_of(torch.ops.aten.relu.default).name
    'aten::relu'
    """
    return target._schema


def children_dict(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """Return the dict that holds a module's children; ``add_module`` refuses names that a class uses (``graph``)."""
    return module._modules


def parameters_dict(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the dict that holds a module's parameters; ``register_parameter`` scans and refuses likewise."""
    return module._parameters


def buffers_dict(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the dict that holds a module's buffers."""
    return module._buffers


def unsaved_buffers(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's buffers that are not persistent."""
    return module._non_persistent_buffers_set


def codegen_of(graph: torch.fx.Graph) -> Any:
    """Return what generates a graph's code; a GraphModule copies its pytree specs."""
    return graph._codegen


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number that two tensors share when they share memory; ``data_ptr()`` is 0 for meta and empty tensors.

    >>> a = torch.ones(4)
    >>> storage_key(a) == storage_key(a[1:]), storage_key(a) == storage_key(a.clone())
    (True, False)
    """
    return cast(int, cast(Any, tensor.untyped_storage())._cdata)


def guards_of(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the guards that ``ep.module()`` enforces, as Python text; no public attribute has them."""
    return list(getattr(ep, "_guards_code", None) or [])


def resolve_operator(namespace: str, name: str, overload: str) -> Callable[..., Any] | None:
    """Return a registered operator from the dispatcher's registry, or None.

    The registry is asked first, so that a name never becomes an attribute of something else.

    >>> resolve_operator("aten", "relu", "default") is torch.ops.aten.relu.default
    True
    >>> resolve_operator("aten", "no_such_thing", "default"), resolve_operator("aten", "relu", "op")
    (None, None)
    """
    try:
        suffix = "" if overload == "default" else overload
        registered = cast(Any, torch._C)._get_operation_overload(f"{namespace}::{name}", suffix)
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload) if registered is not None else None
    except (AttributeError, RuntimeError, TypeError):
        return None
    return found if isinstance(found, OpOverload) else None


def resolve_higher_order(name: str) -> Callable[..., Any] | None:
    """Return a registered higher-order operator, or None; torch keeps them in a dict beside the dispatcher.

    >>> resolve_higher_order("cond") is torch.ops.higher_order.cond, resolve_higher_order("__class__")
    (True, None)
    """
    return cast("Callable[..., Any] | None", cast(Any, torch._ops)._higher_order_ops.get(name))
