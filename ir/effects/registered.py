"""``effects_of``: the effects of any callable in a graph; ``declare``: effects of operators of other libraries.

A schema has the effects on operands, but not logging, counting or printing.  So operators outside of torch's own namespaces
stay ordered among themselves unless the user declares them.  A callable without a schema or an entry in a table has
unknown effects.
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
from ..errors import ArgumentError, EffectsError
from ..own_operators import CALL_GUARDS, GIVES, PACK, TAKES, UNPACK
from ..torch_private import (
    MODES,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    builtin_functions,
    is_effectful,
    overload_of,
    overloads_of,
    parameters_of,
    side_effectful,
)
from .declared import ANYTHING, LIBRARIES, PURE, ArgAt, Effects, Unless
from .schema import effects_of_schema

SELF = (ArgAt(0, "self"), ArgAt(0, "input"))
"""The first argument, under its names in schemas and in Python."""

OUT = ArgAt(sys.maxsize, "out")
"""The argument for a preallocated result of Python functions; it is keyword-only."""

STRANGE = frozenset(
    {
        "set_",
        "set",
        "backward",
        "swap",
        "record_stream",
        "resize_",
        "resize_as_",
        "resize",
        "resize_as",
        "from_file",
        "index",
    }
)
"""Operators with effects beyond their schema: they replace memory or run code outside the graph."""

VIEWS = frozenset(
    {
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "short",
        "bool",
        "char",
        "byte",
        "cpu",
        "cuda",
        "type",
    }
)
"""Methods of tensors that are not operators and return the tensor itself or a converted one."""

ALIASING = frozenset({getattr, torch.split, operator.pos})
"""Functions that return their first argument, or a view of it."""

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


FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def _of_method(method: Method) -> Effects:
    if method.of_tensor and method.name in VIEWS:
        return Effects(aliases=(SELF[0],))
    found = _of_operator(method.name) if method.of_tensor else None
    return ANYTHING if found is None else found


def known_method(name: str) -> Method | None:
    """Return the tensor method with this name if its effects are known, else None.

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
    for function in _tables():
        found.setdefault(op_name(function), function)
    return found


@functools.cache
def _tables() -> dict[Callable[..., Any], Effects]:
    functional = torch.nn.functional
    operators = [(function, _of_operator(name)) for name, function in builtin_functions()]
    found: dict[Any, Effects] = {
        function: effects for function, effects in operators if effects is not None
    }
    for name in WRITES_IN_PLACE:
        found[getattr(functional, name)] = _with_inplace(getattr(functional, name))
    for name in DROPS:
        function = getattr(functional, name)
        training = _place(function, "training")
        off = Unless(
            training,
            value=False,
            default=inspect.signature(function).parameters["training"].default,
        )
        found[function] = evolve(_with_inplace(function), random=True, random_unless=(off,))
    found |= {getattr(functional, name): PURE for name in COMPUTES}
    found |= dict.fromkeys(ALIASING, Effects(aliases=(ArgAt(0, "a"), ArgAt(0, "tensor"))))
    return found | {function: evolve(ANYTHING, scope=scope) for function, scope in MODES.items()}


def _with_inplace(function: Callable[..., Any]) -> Effects:
    first = (ArgAt(0, "input"),)
    return Effects(
        first, (Unless(_place(function, "inplace"), value=False, default=False),), aliases=first
    )


def _place(function: Callable[..., Any], name: str) -> ArgAt:
    return ArgAt(list(inspect.signature(function).parameters).index(name), name)


@functools.cache
def _of_operator(name: str) -> Effects | None:
    overloads = [] if name in STRANGE else overloads_of(name)
    if not overloads:
        return None
    plain = [
        one
        for one in overloads
        if not any(each.kwarg_only and each.is_written for each in parameters_of(one))
    ]
    every = [effects_of_schema(overload) for overload in plain]
    out = (OUT,) if len(plain) < len(overloads) else ()
    draws, writes = [one for one in every if one.random], [one for one in every if one.writes]
    made = Effects(
        writes=(*_named(at for one in every for at in one.writes), *out),
        writes_unless=writes[0].writes_unless if len(writes) == 1 else (),
        aliases=(*_named(at for one in every for at in one.aliases), *out),
        random=bool(draws),
        random_unless=draws[0].random_unless if len(draws) == 1 else (),
        ordered=any(one.ordered for one in every),
        unknown=any(one.unknown for one in every),
    )
    return PURE if made == PURE else made


def _named(places: Iterable[ArgAt]) -> tuple[ArgAt, ...]:
    found: dict[ArgAt, None] = {}
    for at in places:
        found.update(dict.fromkeys(SELF if at == SELF[0] else (at,)))
    return tuple(found)


ORDERED_HIGHER_ORDER = frozenset({"with_effects", "call_torchbind", "print"})

FOREIGN_HIGHER_ORDER = evolve(ANYTHING, through_bodies=True)
"""The effects assumed of a higher-order operator of another library, unless it is declared."""

PURE_HIGHER_ORDER = frozenset(
    {
        "out_dtype",
        "auto_functionalized",
        "auto_functionalized_v2",
        "triton_kernel_wrapper_functional",
    }
)

WRITING_FUNCTIONS = frozenset(
    {
        "setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
        "irshift", "isub", "itruediv", "ixor", "call",
    }
)  # fmt: skip
"""Functions of ``operator`` that write to an operand or call one."""

OWN: dict[Any, Effects] = {
    **{op.target: op.effects for op in (TAKES, GIVES, CALL_GUARDS, PACK, UNPACK)},
    **dict.fromkeys(
        (builtins.max, builtins.min),
        Effects(aliases=tuple([ArgAt(index, "") for index in range(8)])),
    ),
    **dict.fromkeys((builtins.abs, builtins.round), PURE),
    operator.getitem: Effects(aliases=(ArgAt(0, "a"),)),
}
"""Our own operators, and functions of Python: ``max`` and ``min`` return one of several tensors."""

BY_NAME = {
    **{
        f"torch.distributed._functional_collectives.{name}": Effects(
            aliases=(ArgAt(0, of),), completes=(ArgAt(0, of),)
        )
        for name, of in (("wait_tensor", "tensor"), ("wait_tensors", "tensors"))
    },
    "torch._functorch.predispatch._vmap_increment_nesting": evolve(ANYTHING, scope=1),
    "torch._functorch.predispatch._vmap_decrement_nesting": evolve(ANYTHING, scope=-1),
}
"""Plain functions that Dynamo uses to wait for a collective, and that a strict export writes around the body of a vmap."""


def effects_of(target: Callable[..., Any]) -> Effects:
    """Return the effects of a callable in a graph: declared ones, otherwise registered ones.

    Args:
        target: an ``OpOverload``, a higher-order operator, or a plain function.

    >>> import torch
    >>> effects_of(torch.ops.aten.relu.default) is PURE
    True
    """
    declared = declared_effects(target)
    return registered_effects(target) if declared is None else declared


def registered_effects(target: Callable[..., Any]) -> Effects:
    """Return the effects of a callable by torch's schema and our tables, without declarations.

    Args:
        target: an ``OpOverload``, a higher-order operator, or a plain function.

    Returns:
        Its effects; ``ANYTHING`` if unknown.

    >>> import torch
    >>> registered_effects(torch.ops.aten.add_.Tensor).writes
    (ArgAt(index=0, name='self'),)
    >>> registered_effects(torch.add).writes  # only `out`
    (ArgAt(index=9223372036854775807, name='out'),)
    >>> registered_effects(operator.add) is PURE, registered_effects(operator.iadd) is ANYTHING
    (True, True)
    """
    if isinstance(target, OpOverload):
        return _of_foreign(target) if is_foreign(target) else effects_of_schema(target)
    if isinstance(target, HigherOrderOperator):
        return _of_higher_order(target)
    if isinstance(target, Method):
        return _of_method(target)
    if (
        type(target) in FUNCTIONS
        and (known := OWN.get(target) or _tables().get(target)) is not None
    ):
        return known
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    if module in ("_operator", "math") and name not in WRITING_FUNCTIONS:
        return PURE
    if module == "torch" and name.startswith(("sym_", "_sym_")):
        return PURE
    return BY_NAME.get(f"{module}.{name}", ANYTHING)


def _of_higher_order(target: Any) -> Effects:
    name = target.name()
    if name in ORDERED_HIGHER_ORDER:
        return Effects(ordered=True, unknown=name == "call_torchbind", through_bodies=True)
    if name in PURE_HIGHER_ORDER:
        return PURE
    if is_foreign(target):  # without a schema, its effects on operands are unknown
        return FOREIGN_HIGHER_ORDER
    return Effects(through_bodies=True, ordered=is_effectful(target))


def _of_foreign(target: Any) -> Effects:
    # Not memoized: a library may register the effect after the operator.
    found = evolve(effects_of_schema(target), domain=LIBRARIES)
    return (
        evolve(found, ordered=True) if is_effectful(target) or target in side_effectful() else found
    )


NAMESPACES = frozenset(
    {
        "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_debug", "_inductor_test", "_native",
        "_native_aot", "_quantized", "_test", "ao", "aten", "bucketing", "c10d", "c10d_functional", "coor", "cplib", "cuda",
        "debug_mode_ops", "debugprims", "device_mesh", "export", "flex_gemm", "flex_lib", "fsdp", "inductor", "inductor_prims",
        "mempool", "metal_prepack", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "pippy", "prepacked",
        "prim", "prims", "profiler", "quantization", "quantized", "quantized_decomposed", "rngprims", "semi_structured",
        "sparse", "static_runtime", "streams", "symm_mem", "torch_attn", "torch_nn", "torch_vendor_quack", "triton",
        "vulkan_prepack", "xnnpack",
    }
)  # fmt: skip
"""The namespaces in which torch registers its own operators, in any supported release and build.

A test compares them with the registry and with the sources of the installed torch.
"""

_declared: dict[Any, Effects] = {}
# The declarations made with ``declare``; nothing in the library writes it.


def declare(op: Callable[..., Any], effects: Effects | None) -> None:
    """Declare the effects of an operator of another library: ``px.declare(torch.ops.mylib.gelu, px.PURE)``.

    This is purefx's only global state.  Effects are read when a program is imported, so declare them before; existing
    and saved programs keep theirs.  ``import_ep(ep, effects={op: ...})`` declares them for one
    import only.

    Args:
        op: an overload, an operator with all of its overloads, a result of ``torch.library.custom_op``, your higher-order
            operator, or a plain function of fx graphs.
        effects: its effects: ``px.PURE``, or ``Effects(...)``; None revokes the declaration.

    Raises:
        EffectsError: it is an operator of torch, or its schema has more effects.

    >>> import torch, purefx as px
    >>> px.declare(torch.ops.aten.relu.default, px.PURE)
    Traceback (most recent call last):
    ...
    purefx.ir.errors.EffectsError: aten.relu.default is an operator of torch, whose effects are known
    """
    for target in overloads_in(op):
        if effects is None:
            _declared.pop(target, None)
        else:
            check_declaration(target, effects)
            _declared[target] = with_body_effects(target, effects)


def with_body_effects(target: Any, effects: Effects) -> Effects:
    """Return a declaration in normal form: a higher-order operator always has the effects of its bodies.

    >>> with_body_effects(print, Effects()).through_bodies
    False
    """
    return (
        evolve(effects, through_bodies=True) if isinstance(target, HigherOrderOperator) else effects
    )


def check_declaration(target: Any, effects: Effects) -> None:
    """Raise if effects cannot be declared for an operator.

    Raises:
        EffectsError: it is an operator of torch, or its schema has more effects.
        ArgumentError: ``effects`` is not an ``Effects``.

    >>> check_declaration(print, Effects())
    """
    if not isinstance(effects, Effects):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = getattr(target, "__name__", target)
        raise ArgumentError(
            f"the effects of {name} are declared as px.PURE or px.Effects(...), not as {effects!r}"
        )
    if isinstance(target, OpOverload):
        if not is_foreign(target):
            raise EffectsError(f"{target} is an operator of torch, whose effects are known")
        missing = lacking(effects, registered_effects(target))
        if missing:
            raise EffectsError(
                f"{target} cannot be declared to have {effects}: according to its schema it {missing}; "
                "add that, starting from purefx.ir.effects.registered.registered_effects(op)"
            )
    elif not callable(target):
        raise EffectsError(f"{target} is not an operator or function whose effects can be declared")
    elif isinstance(target, HigherOrderOperator) and not is_foreign(target):
        raise EffectsError(f"{target} is a higher-order operator of torch, whose effects are known")


def overloads_in(op: Any) -> tuple[Any, ...]:
    """Return the overloads of an operator, or itself if it has none.

    >>> import torch
    >>> overloads_in(torch.ops.aten.relu)
    (<OpOverload(op='aten.relu', overload='default')>, <OpOverload(op='aten.relu', overload='out')>)
    """
    op = overload_of(op)
    return (
        tuple([getattr(op, name) for name in op.overloads()])
        if isinstance(op, OpOverloadPacket)
        else (op,)
    )


def only_overload(target: Any) -> Any:
    """Return the only overload of an operator (Dynamo writes operators without it), or the argument.

    >>> import torch
    >>> only_overload(torch.ops.aten.dropout), only_overload(torch.ops.aten.relu)
    (<OpOverload(op='aten.dropout', overload='default')>, <OpOverloadPacket(op='aten.relu')>)
    """
    return (
        overloads_in(target)[0]
        if isinstance(target, OpOverloadPacket) and len(target.overloads()) == 1
        else target
    )


def declared_effects(target: Any) -> Effects | None:
    """Return the effects that were declared for an operator, or None.

    >>> declared_effects(print) is None
    True
    """
    return None if type(target).__hash__ is None else _declared.get(target)


def is_foreign(target: Any) -> bool:
    """Return whether an operator belongs to a library other than torch.

    >>> import torch
    >>> is_foreign(torch.ops.aten.relu.default)
    False
    """
    if isinstance(target, HigherOrderOperator):
        return (
            not type(target).__module__.startswith("torch.") and target.namespace == "higher_order"
        )
    return isinstance(target, OpOverload) and target.namespace not in NAMESPACES


def lacking(declared: Effects, known: Effects) -> str:
    """Return the known effects on operands and random numbers that a declaration lacks, in words.

    >>> from .declared import ANYTHING, PURE
    >>> lacking(PURE, Effects(random=True)), lacking(ANYTHING, Effects(random=True))
    ('draws random numbers', '')
    """
    parts: list[str] = []
    if not declared.unknown:
        parts += [f"writes {at.name!r}" for at in known.writes if at not in declared.writes]
        parts += [
            f"may return {at.name!r} or a view of it"
            for at in known.aliases
            if at not in declared.aliases
        ]
    if known.random and not declared.random:
        parts.append("draws random numbers")
    if known.unknown and not declared.unknown:
        parts.append("may do anything")
    return ", ".join(parts)
