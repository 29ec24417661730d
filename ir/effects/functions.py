"""Effects of plain functions: those of torch that the dispatcher has under the same name, and a short table.

``torch.relu`` runs some overload of ``aten.relu``, and which one is known only when it runs, so it has the union of their
effects.  A function that is neither in the dispatcher nor in the table has unknown effects.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional
from attrs import evolve

from ..callables import Method, op_name
from ..torch_private import MODES, builtin_functions, overloads_of, schema_of
from .declared import ANYTHING, PURE, ArgAt, Effects, Unless
from .schema import effects_of_schema

SELF = (ArgAt(0, "self"), ArgAt(0, "input"))
"""The first argument, under the names that schemas and Python give it."""

OUT = ArgAt(sys.maxsize, "out")
"""The argument for a preallocated result of Python functions; it is keyword-only."""

STRANGE = frozenset(
    {"set_", "set", "backward", "swap", "record_stream", "resize_", "resize_as_", "resize", "resize_as", "from_file", "index"}
)
"""Operators with more effects than their schema says: they replace memory, or run code that the graph does not show."""

VIEWS = frozenset({"float", "double", "half", "bfloat16", "int", "long", "short", "bool", "char", "byte", "cpu", "cuda", "type"})
"""Methods of tensors that are not operators and return the tensor itself or a converted one."""

ALIASING = frozenset({getattr, torch.split, operator.pos})
"""Functions that return their first argument, or a view of it."""

SPREAD = tuple([ArgAt(index, "") for index in range(8)])

WRITES_IN_PLACE = (
    "celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "selu", "silu", "threshold",
)  # fmt: skip
DROPS = ("alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
COMPUTES = (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "glu", "group_norm",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "layer_norm", "local_response_norm", "log_softmax", "mse_loss",
    "nll_loss", "normalize", "rms_norm", "smooth_l1_loss", "softmax", "softmin", "softsign", "tanhshrink", "triplet_margin_loss",
)  # fmt: skip
"""Functions of ``torch.nn.functional`` that are written in Python: with ``inplace``, with ``training``, with neither."""


def effects_of_function(target: Callable[..., Any]) -> Effects | None:
    """Return the effects of a plain function, or None if nothing is known of it.

    >>> effects_of_function(torch.relu_).writes[0], effects_of_function(print) is None
    (ArgAt(index=0, name='self'), True)
    >>> effects_of_function(torch.add).writes  # only what `out=` is given
    (ArgAt(index=9223372036854775807, name='out'),)
    """
    if isinstance(target, Method):
        return _of_method(target)
    if type(target) not in FUNCTIONS:
        return None
    if target in MODES:
        return evolve(ANYTHING, scope=MODES[target])
    if target in ALIASING:
        return Effects(aliases=(ArgAt(0, "a"), ArgAt(0, "tensor")))
    if target in (builtins.max, builtins.min):
        return Effects(aliases=SPREAD)  # of two tensors it gives one
    return _tables().get(target)


FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def _of_method(method: Method) -> Effects:
    if method.of_tensor and method.name in VIEWS:
        return Effects(aliases=(SELF[0],))
    found = _of_operator(method.name) if method.of_tensor else None
    return ANYTHING if found is None else found


def known_method(name: str) -> Method | None:
    """Return the method of tensors of a name whose effects are known, or None.

    >>> known_method("relu_"), known_method("tofile")
    (Method(name='relu_', of_tensor=True), None)
    """
    method = Method(name, of_tensor=True)
    return None if _of_method(method).unknown else method


@functools.cache
def known_functions() -> dict[str, Callable[..., Any]]:
    """Return the plain functions whose effects are known, by the name of their operator.

    >>> known_functions()["torch.relu"] is torch.relu
    True
    """
    found: dict[str, Callable[..., Any]] = {}
    for function in (*_tables(), *ALIASING, *MODES):
        found.setdefault(op_name(function), function)
    return found


@functools.cache
def _tables() -> dict[Callable[..., Any], Effects]:
    functional = torch.nn.functional
    found: dict[Any, Effects] = {}
    for name, function in builtin_functions():
        effects = _of_operator(name)
        if effects is not None:
            found[function] = effects
    for name in WRITES_IN_PLACE:
        found[getattr(functional, name)] = _with_inplace(getattr(functional, name))
    for name in DROPS:
        function = getattr(functional, name)
        training = _place(function, "training")
        off = Unless(training, value=False, default=inspect.signature(function).parameters["training"].default)
        found[function] = evolve(_with_inplace(function), random=True, random_unless=(off,))
    found.update((getattr(functional, name), PURE) for name in COMPUTES)
    return found


def _with_inplace(function: Callable[..., Any]) -> Effects:
    first = (ArgAt(0, "input"),)
    return Effects(first, (Unless(_place(function, "inplace"), value=False, default=False),), aliases=first)


def _place(function: Callable[..., Any], name: str) -> ArgAt:
    return ArgAt(list(inspect.signature(function).parameters).index(name), name)


@functools.cache
def _of_operator(name: str) -> Effects | None:
    overloads = [] if name in STRANGE else overloads_of(name)
    if not overloads:
        return None
    plain = [overload for overload in overloads if not _is_out(overload)]
    found = merged([effects_of_schema(overload) for overload in plain])
    if len(plain) < len(overloads):
        found = evolve(found, writes=(*found.writes, OUT), aliases=(*found.aliases, OUT))
    return found


def _is_out(overload: Any) -> bool:
    written = [arg for arg in schema_of(overload).arguments if arg.alias_info is not None and arg.alias_info.is_write]
    return any(arg.kwarg_only for arg in written)


def merged(all_effects: Iterable[Effects]) -> Effects:
    """Return the effects of a call of which one of several operators is known to run.

    >>> merged([PURE, Effects(writes=(ArgAt(0, "self"),))]).writes
    (ArgAt(index=0, name='self'), ArgAt(index=0, name='input'))
    """
    every = list(all_effects)
    draws = [effects for effects in every if effects.random]
    writes = [effects for effects in every if effects.writes]
    made = Effects(
        writes=_named(at for effects in every for at in effects.writes),
        writes_unless=writes[0].writes_unless if len(writes) == 1 else (),
        aliases=_named(at for effects in every for at in effects.aliases),
        random=bool(draws),
        random_unless=draws[0].random_unless if len(draws) == 1 else (),
        ordered=any(effects.ordered for effects in every),
        unknown=any(effects.unknown for effects in every),
    )
    return PURE if made == PURE else made


def _named(places: Iterable[ArgAt]) -> tuple[ArgAt, ...]:
    found: dict[ArgAt, None] = {}
    for at in places:
        found.update(dict.fromkeys(SELF if at == SELF[0] else (at,)))
    return tuple(found)
