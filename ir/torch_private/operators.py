"""Private names of torch for operators and plain functions: look-up and schemas.

Each name has a type and a reason here.
"""

# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, cast

import torch
import torch._functorch.predispatch
import torch._ops
import torch.fx.node
from attrs import frozen

from .joints import TRACING, register_all

__all__ = [
    "ENTER_AUTOCAST", "EXIT_AUTOCAST", "LATE_HIGHER_ORDER", "LATE_NAMESPACES", "MODES", "SAFE_SOFTMAX", "SET_GRAD_ENABLED",
    "VMAP", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "Parameter", "allows_numbers_as_tensors",
    "builtin_functions", "in_dispatcher", "is_effectful", "overload_of", "overloads_of", "parameters_of",
    "resolve_higher_order", "resolve_operator", "schema_of", "side_effectful",
]  # fmt: skip


OpOverload: Any = torch._ops.OpOverload
"""The type of ``torch.ops.aten.add.Tensor``; only its instances are public."""

SAFE_SOFTMAX: Any = cast(Any, torch.ops.aten)._safe_softmax.default
"""The softmax of attention that torch decomposes: it returns zeros for a row of ``-inf``."""

OpOverloadPacket: Any = torch._ops.OpOverloadPacket
"""The type of ``torch.ops.aten.add``."""

HigherOrderOperator: Any = torch._ops.HigherOrderOperator
"""The type of ``torch.ops.higher_order.cond``."""


LATE_NAMESPACES = {
    **dict.fromkeys((
        "_c10d_functional", "_dtensor", "_inductor_test", "c10d_functional", "flex_lib", "fsdp", "mempool", "onnx",
        "onnx_symbolic", "streams", "symm_mem",
    ), TRACING),
    "ao": "torch._functorch._activation_offloading.offload_ops",
    "bucketing": "torch._inductor.fx_passes.bucketing",
    "pippy": "torch.distributed.pipelining",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torch_attn": "torch.nn.attention.varlen",
    "torch_nn": "torch.nn.modules.linear_cross_entropy",
}  # fmt: skip
"""Namespaces with operators that importing torch does not register, and the module whose import does."""

LATE_HIGHER_ORDER = frozenset(
    {"trace_wrapped", "triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation"}
)
"""Higher-order operators that those imports register."""


def schema_of(target: Any) -> Any:
    """Return the schema of an operator overload: the only place where torch states its effects.

    >>> schema_of(torch.ops.aten.relu.default).name
    'aten::relu'
    """
    return target._schema


@frozen
class Parameter:
    """A parameter of an operator, from its schema."""

    name: str
    kind: str
    """Its type, as the schema writes it."""
    kwarg_only: bool
    has_default: bool
    default: Any
    size: int | None
    """The length of a list of integers that may be written as one number."""
    is_written: bool


@cache
def parameters_of(target: Any) -> tuple[Parameter, ...]:
    """Return the parameters of an operator overload, cached, because reading a schema takes as long as matching a node.

    >>> [(one.name, one.kind, one.default) for one in parameters_of(torch.ops.aten.add.Tensor)]
    [('self', 'Tensor', None), ('other', 'Tensor', None), ('alpha', 'number', 1)]
    """
    found: list[Parameter] = []
    for one in schema_of(target).arguments:
        facts = (
            one.name,
            str(one.type),
            one.kwarg_only,
            one.has_default_value(),
            one.default_value,
            one.N,
        )
        found.append(Parameter(*facts, one.alias_info is not None and one.alias_info.is_write))
    return tuple(found)


def allows_numbers_as_tensors(name: str) -> bool:
    """Return whether an operator accepts numbers as tensors; the dispatcher has a short list of these (``add``, ``mul``).

    >>> allows_numbers_as_tensors("aten::add"), allows_numbers_as_tensors("aten::relu")
    (True, False)
    """
    return bool(cast(Any, torch._C)._should_allow_numbers_as_tensors(name.rpartition("::")[2]))


def is_effectful(target: Any) -> bool:
    """Return whether torch threads a token through the calls of an operator when it decomposes, because their order matters.

    ``torch.library`` only writes this registry, and a look-up through ``find`` would add an entry.

    >>> is_effectful(torch.ops.aten._print.default), is_effectful(torch.ops.aten.relu.default)
    (True, False)
    """
    from torch._library.effects import EffectHolder
    from torch._library.simple_registry import singleton

    is_higher = isinstance(target, HigherOrderOperator)
    name = f"{target.namespace}::{target.name()}" if is_higher else cast(str, target._name)
    entry = singleton.get(name)
    holder: Any = entry.effect if entry is not None else EffectHolder(name)
    return holder.effect is not None


def side_effectful() -> frozenset[Any]:
    """Return the functions that ``torch.fx`` never removes as dead: its table, with those of ``torch.fx.node.has_side_effect``.

    Public functions write the table, but none reads it.

    >>> torch.ops.aten._assert_scalar.default in side_effectful()
    True
    """
    return frozenset(cast(Any, torch.fx.node)._side_effectful_functions)


def overload_of(op: Any) -> Any:
    """Return the overload of a ``torch.library.custom_op``, which has no public name for it; return other objects as they are.

    >>> overload_of(print) is print
    True
    """
    return getattr(op, "_opoverload", op)


def resolve_operator(namespace: str, name: str, overload: str) -> Callable[..., Any] | None:
    """Return a registered operator from the dispatcher's registry, or None.

    The registry is searched first, so that a name is never looked up as an attribute of another object.

    >>> resolve_operator("aten", "relu", "default") is torch.ops.aten.relu.default
    True
    >>> resolve_operator("aten", "no_such_thing", "default"), resolve_operator("aten", "relu", "op")
    (None, None)
    """
    found = _find_operator(namespace, name, overload)
    if found is None and namespace in LATE_NAMESPACES:
        with suppress(ImportError):  # a build of torch without collectives lacks some
            importlib.import_module(LATE_NAMESPACES[namespace])
            return _find_operator(namespace, name, overload)
    return found


def _find_operator(namespace: str, name: str, overload: str) -> Callable[..., Any] | None:
    try:
        known = cast(Any, torch._C)._get_operation_overload(
            f"{namespace}::{name}", "" if overload == "default" else overload
        )
        found = (
            getattr(getattr(getattr(torch.ops, namespace), name), overload)
            if known is not None
            else None
        )
    except (AttributeError, RuntimeError, TypeError):
        return None
    return found if isinstance(found, OpOverload) else None


def resolve_higher_order(name: str) -> Callable[..., Any] | None:
    """Return a registered higher-order operator, or None; torch keeps them in a dict apart from the dispatcher.

    >>> resolve_higher_order("cond") is torch.ops.higher_order.cond, resolve_higher_order("__class__")
    (True, None)
    """
    if name in LATE_HIGHER_ORDER:
        register_all()
    return cast("Callable[..., Any] | None", cast(Any, torch._ops)._higher_order_ops.get(name))


def in_dispatcher(overload: Any) -> bool:
    """Return whether the dispatcher has an operator; TorchScript's interpreter has more, on strings, lists, dicts and files.

    >>> in_dispatcher(torch.ops.aten.relu.default), in_dispatcher(torch.ops.aten.save.default)
    (True, False)
    """
    return bool(cast(Any, torch._C)._dispatch_has_kernel(overload.name()))


def overloads_of(name: str) -> list[Any]:
    """Return the overloads of an aten operator; none if the name is unknown.

    >>> torch.ops.aten.relu.default in overloads_of("relu"), overloads_of("no_such_thing")
    (True, [])
    """
    packet: Any = getattr(torch.ops.aten, name, None)
    return (
        [getattr(packet, overload) for overload in packet.overloads()]
        if isinstance(packet, OpOverloadPacket)
        else []
    )


def builtin_functions() -> list[tuple[str, Callable[..., Any]]]:
    """Return the functions that torch generates for operators (``torch.relu``, ``F.gelu``), with the operators' names."""
    named = [*vars(torch).items(), *vars(cast(Any, torch._C)._nn).items()]
    return [(name, value) for name, value in named if type(value) is type(torch.relu)]


SET_GRAD_ENABLED: Any = cast(Any, torch._C)._set_grad_enabled
"""The operator that begins and ends a region of another gradient mode; its argument is the mode from there on."""

ENTER_AUTOCAST: Any = cast(Any, torch.amp.autocast_mode)._enter_autocast
"""The operator that begins an autocast region: device type, dtype, whether it is enabled, whether it caches casts."""

EXIT_AUTOCAST: Any = cast(Any, torch.amp.autocast_mode)._exit_autocast
"""The operator that ends an autocast region; its argument is the result of the beginning."""


_functorch: Any = cast(Any, torch._C)._functorch
_grad_modes: Any = torch.autograd.grad_mode
_predispatch: Any = torch._functorch.predispatch

MODES: dict[Callable[..., Any], int] = {
    **dict.fromkeys(
        (
            SET_GRAD_ENABLED,
            ENTER_AUTOCAST,
            _functorch._vmap_increment_nesting,
            _grad_modes._enter_inference_mode,
        ),
        1,
    ),
    **dict.fromkeys(
        (EXIT_AUTOCAST, _functorch._vmap_decrement_nesting, _grad_modes._exit_inference_mode), -1
    ),
}
"""Functions in Dynamo's graphs that change the meaning of operators: 1 opens a region, -1 closes one."""

VMAP: tuple[Callable[..., Any], ...] = (
    _predispatch._vmap_increment_nesting, _predispatch._vmap_decrement_nesting, _predispatch._add_batch_dim,
    _predispatch._remove_batch_dim, _predispatch.lazy_load_decompositions,
    _functorch._add_batch_dim, _functorch._remove_batch_dim,
)  # fmt: skip
"""Functions that exporters write at the beginning and end of a ``torch.vmap`` level."""
