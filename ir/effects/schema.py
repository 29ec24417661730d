"""Effects read off an operator: from its schema, its tags, and a short list of schemas that say too little.

One idea: the operator is asked, never its name guessed at.  The exceptions are operators whose schema is known to
be silent about a write (``batch_norm`` updates its running statistics when ``training``); they are listed with what
they do.  Nothing here looks at a graph.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from attrs import evolve

from ..borders import gives, takes
from ..opaque import CALL_GUARDS, call_guards
from ..torch_private import HigherOrderOperator, OpOverload, schema_of
from ..trees import PACK, UNPACK, pack, unpack
from .declared import ANYTHING, PURE, ArgAt, Effects, Unless
from .functions import effects_of_function

__all__ = ["effects_of"]

ORDERED_HIGHER_ORDER = frozenset({"with_effects", "call_torchbind", "print"})

PURE_HIGHER_ORDER = frozenset({"out_dtype", "auto_functionalized", "auto_functionalized_v2", "triton_kernel_wrapper_functional"})

SILENT_WRITES: dict[str, tuple[tuple[str, ...], str]] = {
    # operator: (arguments it writes, the flag that switches the write off when it is False)
    "aten::batch_norm": (("running_mean", "running_var"), "training"),
    "aten::native_batch_norm": (("running_mean", "running_var"), "training"),
    "aten::_batch_norm_impl_index": (("running_mean", "running_var"), "training"),
    "aten::cudnn_batch_norm": (("running_mean", "running_var"), "training"),
    "aten::miopen_batch_norm": (("running_mean", "running_var"), "training"),
    "aten::instance_norm": (("running_mean", "running_var"), "use_input_stats"),
}

SILENT_ALIASES = frozenset(
    {
        "aten::einsum", "aten::broadcast_tensors", "aten::meshgrid", "aten::type_as", "aten::sum_to_size",
        "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk", "aten::pad",
        "aten::flatten_dense_tensors", "aten::native_dropout", "aten::upsample_nearest2d", "aten::dequantize",
        "aten::to_dense",
    }
)  # fmt: skip
"""Operators that may hand back (a view of) an argument although neither schema nor tag says so."""

WRITING_FUNCTIONS = frozenset(
    {
        "setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
        "irshift", "isub", "itruediv", "ixor", "call",
    }
)  # fmt: skip
"""Functions of ``operator`` that change an operand, or do whatever an operand does."""

SCOPES = {
    "torch._functorch.predispatch._vmap_increment_nesting": 1,
    "torch._functorch.predispatch._vmap_decrement_nesting": -1,
}
"""Plain functions that a strict export writes around the body of a vmap."""

DRAWS_ONLY_WHEN = (("train", False), ("training", False), ("dropout_p", 0.0), ("dropout", 0.0), ("p", 0.0))
"""Flags of seeded operators under which they draw nothing."""


def effects_of(target: Callable[..., Any]) -> Effects:
    """Return the effects of a callable that stands in a graph.

    Args:
        target: an ``OpOverload``, a higher-order operator, or a plain function.

    Returns:
        Its effects; ``ANYTHING`` where nothing is known.

    >>> effects_of(torch.ops.aten.add_.Tensor).writes
    (ArgAt(index=0, name='self'),)
    >>> effects_of(torch.ops.aten.relu.default) is PURE
    True
    """
    if isinstance(target, OpOverload):
        return _of_schema(target)
    if isinstance(target, HigherOrderOperator):
        return _of_higher_order(cast(Any, target).name())
    if target is takes or target is gives:
        return PURE
    if target is call_guards:
        return CALL_GUARDS.effects
    if target in (pack, unpack):
        return PACK.effects if target is pack else UNPACK.effects
    if target is operator.getitem:
        return PROJECTION
    known = effects_of_function(target)
    if known is not None:
        return known
    if is_scalar_function(target):
        return PURE
    scope = SCOPES.get(f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', '')}")
    return evolve(ANYTHING, scope=scope) if scope is not None else ANYTHING


PROJECTION = Effects(aliases=(ArgAt(0, "a"),))


def is_scalar_function(target: Callable[..., Any]) -> bool:
    """Say whether a plain function computes on sizes and other numbers, and does nothing else.

    >>> is_scalar_function(operator.add), is_scalar_function(print)
    (True, False)
    >>> is_scalar_function(operator.iadd)
    False
    """
    module = getattr(target, "__module__", None)
    if module in ("_operator", "math"):
        return getattr(target, "__name__", "") not in WRITING_FUNCTIONS
    if module == "torch" and getattr(target, "__name__", "").startswith(("sym_", "_sym_")):
        return True
    return any(target is known for known in (builtins.max, builtins.min, builtins.abs, builtins.round, math.floor))


@functools.cache
def _of_higher_order(name: str) -> Effects:
    if name in ORDERED_HIGHER_ORDER:
        return Effects(ordered=True, unknown=name == "call_torchbind", through_bodies=True)
    if name in PURE_HIGHER_ORDER:
        return PURE
    return Effects(through_bodies=True)


@functools.cache
def _of_schema(target: Any) -> Effects:
    schema = schema_of(target)
    arguments = schema.arguments
    places = tuple(ArgAt(index, argument.name) for index, argument in enumerate(arguments))
    writes = tuple(
        at for at, arg in zip(places, arguments, strict=True) if arg.alias_info is not None and arg.alias_info.is_write
    )
    silent = SILENT_WRITES.get(schema.name)
    writes_unless: tuple[Unless, ...] = ()
    if silent is not None and not writes:
        names, flag = silent
        writes = tuple(at for at in places if at.name in names)
        writes_unless = tuple(Unless(at, value=False, default=None) for at in places if at.name == flag)
    tagged = torch.Tag.maybe_aliasing_or_mutating in target.tags
    may_alias = (tagged or schema.name in SILENT_ALIASES) and silent is None
    effects = Effects(
        writes=writes,
        writes_unless=writes_unless,
        returns=_returned_arguments(schema, places),
        aliases=_aliased_arguments(schema, places, may_alias=may_alias),
        random=torch.Tag.nondeterministic_seeded in target.tags,
        random_unless=_no_draw(schema, places) if torch.Tag.nondeterministic_seeded in target.tags else (),
        ordered=not schema.returns,
    )
    return PURE if effects == PURE else effects


def _returned_arguments(schema: Any, places: tuple[ArgAt, ...]) -> tuple[ArgAt | None, ...]:
    # `Tensor(a!) self -> Tensor(a!)`: the dispatcher hands back the very tensor that it was given.
    found: list[ArgAt | None] = []
    for result in schema.returns:
        info = result.alias_info
        same: ArgAt | None = None
        if info is not None and info.is_write:
            for at, argument in zip(places, schema.arguments, strict=True):
                if argument.alias_info is not None and argument.alias_info.before_set == info.before_set:
                    same = at
        found.append(same)
    return tuple(found) if any(at is not None for at in found) else ()


def _aliased_arguments(schema: Any, places: tuple[ArgAt, ...], *, may_alias: bool) -> tuple[ArgAt, ...]:
    found: list[ArgAt] = []
    shared: set[str] = set()
    for result in schema.returns:
        if result.alias_info is not None:
            shared |= result.alias_info.before_set | result.alias_info.after_set
    for at, argument in zip(places, schema.arguments, strict=True):
        info = argument.alias_info
        # `split(Tensor(a -> *) self) -> Tensor(a)[]`: what the items of a list share is not told of the result, only by the star.
        declared = info is not None and ("*" in info.after_set or bool(shared & (info.before_set | info.after_set)))
        if declared or (may_alias and "Tensor" in str(argument.type)):
            found.append(at)
    return tuple(found)


def _no_draw(schema: Any, places: tuple[ArgAt, ...]) -> tuple[Unless, ...]:
    by_name = {at.name: (at, argument) for at, argument in zip(places, schema.arguments, strict=True)}
    found: list[Unless] = []
    for name, value in DRAWS_ONLY_WHEN:
        if name in by_name:
            at, argument = by_name[name]
            default = argument.default_value if argument.has_default_value() else None
            found.append(Unless(at, value, default))
    return tuple(found)
