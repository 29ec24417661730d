"""Operators of other libraries: what is known of them besides their schema, and ``declare``, which says more.

One idea: a schema tells what an operator does to its operands, and not whether it logs, counts or prints.  So operators outside
of torch's own namespaces stay in order among themselves, unless who uses them says what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from ..errors import EffectsError
from ..torch_private import HigherOrderOperator, OpOverload, OpOverloadPacket, overload_of
from .declared import Effects

__all__ = ["NAMESPACES", "check_said", "declare", "declared_effects", "is_foreign", "lacking", "overloads_in", "said_of_one"]

NAMESPACES = frozenset(
    {
        "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native", "_quantized", "_test",
        "ao", "aten", "bucketing", "c10d", "c10d_functional", "cplib", "debug_mode_ops", "debugprims", "device_mesh",
        "export", "flex_lib", "fsdp", "inductor", "inductor_prims", "metal_prepack", "mkl", "mkldnn",
        "mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "pippy", "prepacked", "prim", "prims", "profiler",
        "quantization", "quantized", "quantized_decomposed", "rngprims", "sparse", "static_runtime", "streams",
        "symm_mem", "torch_attn", "vulkan_prepack", "xnnpack",
    }
)  # fmt: skip
"""The namespaces in which torch registers operators of its own; a test compares them with the registry."""

_said: dict[Any, Effects] = {}
# What ``declare`` was told; nothing in the library writes it.


def declare(op: Callable[..., Any], effects: Effects | None) -> None:
    """Say what an operator of another library does: ``px.declare(torch.ops.mylib.gelu, px.PURE)``.

    It is the one thing here that a process remembers.  Effects are read when a program is imported, so declare first; programs
    that exist keep what they say, and a saved one brings its effects with it.  ``import_ep(ep, effects={op: ...})`` says the
    same for one import only.

    Args:
        op: an overload, an operator with all of its overloads, what ``torch.library.custom_op`` gives, a higher-order operator
            of your own, or a plain function that stands in fx graphs.
        effects: what it does: ``px.PURE``, or ``Effects(...)`` for more; None takes back what was said.

    Raises:
        EffectsError: it is an operator of torch, or its schema says that it does more.

    >>> import torch, purefx as px
    >>> px.declare(torch.ops.aten.relu.default, px.PURE)
    Traceback (most recent call last):
    ...
    purefx.ir.errors.EffectsError: aten.relu.default is an operator of torch, whose effects are known
    """
    for target in overloads_in(op):
        if effects is None:
            _said.pop(target, None)
        else:
            check_said(target, effects)
            _said[target] = said_of_one(target, effects)


def said_of_one(target: Any, effects: Effects) -> Effects:
    """Return what is said of an operator as it is kept: one of higher order does what its bodies do, whatever else is said.

    >>> said_of_one(print, Effects()).through_bodies
    False
    """
    return evolve(effects, through_bodies=True) if isinstance(target, HigherOrderOperator) else effects


def check_said(target: Any, effects: Effects) -> None:
    """Refuse effects that an operator cannot have.

    Raises:
        EffectsError: it is an operator of torch, or its schema says that it does more.

    >>> check_said(print, Effects())
    """
    from .schema import registered_effects

    if isinstance(target, OpOverload):
        if not is_foreign(target):
            raise EffectsError(f"{target} is an operator of torch, whose effects are known")
        missing = lacking(effects, registered_effects(target))
        if missing:
            raise EffectsError(
                f"{target} cannot be said to have {effects}: its schema says that it {missing}; "
                "add that, starting from purefx.ir.effects.schema.registered_effects(op)"
            )
    elif not callable(target):
        raise EffectsError(f"{target} is no operator or function whose effects can be said")
    elif isinstance(target, HigherOrderOperator) and not is_foreign(target):
        raise EffectsError(f"{target} is a higher-order operator of torch, whose effects are known")


def overloads_in(op: Any) -> tuple[Any, ...]:
    """Return what is meant by an operator: its overloads, or itself.

    >>> import torch
    >>> overloads_in(torch.ops.aten.relu)
    (<OpOverload(op='aten.relu', overload='default')>, <OpOverload(op='aten.relu', overload='out')>)
    """
    op = overload_of(op)
    return tuple([getattr(op, name) for name in op.overloads()]) if isinstance(op, OpOverloadPacket) else (op,)


def declared_effects(target: Any) -> Effects | None:
    """Return what ``declare`` was told of an operator, or None.

    >>> declared_effects(print) is None
    True
    """
    if not _said or type(target).__hash__ is None:
        return None
    return _said.get(target)


def is_foreign(target: Any) -> bool:
    """Say whether an operator belongs to another library than torch.

    >>> import torch
    >>> is_foreign(torch.ops.aten.relu.default)
    False
    """
    if isinstance(target, HigherOrderOperator):
        return not type(target).__module__.startswith("torch.") and target.namespace == "higher_order"
    return isinstance(target, OpOverload) and target.namespace not in NAMESPACES


def lacking(said: Effects, known: Effects) -> str:
    """Return what effects lack of others, in words; empty where they say at least as much of operands and random numbers.

    >>> from .declared import ANYTHING, PURE
    >>> lacking(PURE, Effects(random=True)), lacking(ANYTHING, Effects(random=True))
    ('draws random numbers', '')
    """
    parts: list[str] = []
    if not said.unknown:
        parts += [f"writes {at.name!r}" for at in known.writes if at not in said.writes]
        parts += [f"may return {at.name!r} or a view of it" for at in known.aliases if at not in said.aliases]
    if known.random and not said.random:
        parts.append("draws random numbers")
    if known.unknown and not said.unknown:
        parts.append("may do anything")
    return ", ".join(parts)
