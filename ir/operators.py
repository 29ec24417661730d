"""Operators of graphs: ``op_of`` makes the ``Op`` that calls a torch operator or a plain function; ``allowed`` finds one by name.

The allow-list has the operators that a program from an untrusted source may name.  Names are looked up in registries and in one
short table; they are never resolved through modules or imported.  Allowed operators accept and return data only.  Operators that
reach files, processes, the interpreter or memory outside of tensors are denied, each with its reason, so no text and no file can
obtain a function or an object that leads further.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from attrs import frozen

from .arguments import arg_leaves
from .callables import Method, op_name
from .effects.declared import Effects
from .effects.registered import (
    VIEWS,
    check_declaration,
    effects_of,
    known_functions,
    known_method,
    only_overload,
    overloads_in,
    with_body_effects,
)
from .errors import ArgumentError, NamingError
from .graph import Node, Op
from .names import last_name
from .own_operators import call_guards, call_module, gives, pack, takes, unpack
from .torch_private import (
    MODES,
    VMAP,
    HigherOrderOperator,
    OpOverload,
    in_dispatcher,
    overloads_of,
    resolve_higher_order,
    resolve_operator,
)

Target = Callable[..., Any]

Declared = Mapping[Callable[..., Any], Effects]
"""Declared effects of operators of other libraries."""


def op_of(target: Any) -> Op:
    """Return the op that calls an operator.

    Args:
        target: an operator overload, an operator with one overload, a higher-order operator or a plain function.

    >>> import torch
    >>> op_of(torch.ops.aten.add_.Tensor).effects.writes[0].name
    'self'
    """
    target = only_overload(target)
    return Op(op_name(target), effects_of(target), target)


def op(target: Callable[..., Any] | Op) -> Op:
    """Return the operation that calls an operator of torch: ``px.op(torch.ops.aten.relu.default)``.

    Its name and effects are those of the operator.

    Args:
        target: an overload; an operator that has one overload; a higher-order operator, or a plain function.

    Raises:
        NamingError: the operator has several overloads, is passed by name, or is not callable.

    >>> import torch
    >>> op(torch.ops.aten.relu.default)
    Op(name='aten.relu.default')
    >>> op(torch.ops.aten.relu_.default).effects.writes[0].name
    'self'
    >>> op(torch.ops.aten.relu)
    Traceback (most recent call last):
        ...
    purefx.ir.errors.NamingError: aten.relu has several overloads; pass one of them: default, out
    """
    if isinstance(target, Op):
        return target
    if not callable(target):
        raise NamingError(
            f"op takes an operator or a function, such as torch.ops.aten.relu.default, not {target!r}"
        )
    found = overloads_in(target)
    if len(found) != 1:
        names = ", ".join(last_name(op_name(each)) for each in found)
        raise NamingError(
            f"{op_name(found[0]).rpartition('.')[0]} has several overloads; pass one of them: {names}"
        )
    return op_of(found[0])


GETITEM = op_of(operator.getitem)
"""Selects one of several results."""

CLONE, COPY = op_of(torch.ops.aten.clone.default), op_of(torch.ops.aten.copy_.default)


def checked_declarations(effects: Declared | None) -> Declared:
    """Return declared effects by overload, checked as by ``declare``.

    Args:
        effects: the effects of functions and of operators with all overloads.

    Raises:
        EffectsError: it is an operator of torch, or its schema has more effects.

    >>> checked_declarations(None), list(checked_declarations({print: Effects()}))
    ({}, [<built-in function print>])
    """
    if effects is not None and not isinstance(effects, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"effects is a dict, such as {{torch.ops.mylib.gelu: px.PURE}}, not {type(effects).__name__}"
        )
    found: dict[Callable[..., Any], Effects] = {}
    for op, declared in (effects or {}).items():
        for target in overloads_in(op):
            check_declaration(target, declared)
            found[target] = with_body_effects(target, declared)
    return found


RAW = "makes a tensor over memory or indices that nothing checks"
PROCESSES = "sends to and receives from other processes"
INTERNAL = "belongs to a compiler or runtime of torch and does not check its arguments"
SCRIPT = "is a function of TorchScript's interpreter on strings, lists and objects, not of the dispatcher"


def _by_name(reasons: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in reasons.items() for name in names.split()}


DENIED_NAMESPACES: Mapping[str, str] = _by_name({
    PROCESSES: "c10d _c10d_functional _c10d_functional_autograd _dtensor cplib rpc c10d_functional",
    "looks up process groups": "device_mesh",
    "reads and writes memory of other processes and devices": "symm_mem",
    SCRIPT: "prim",
    "communicates with the profiler": "profiler",
    "reads files": "debugprims",
    "communicates with the debugger": "debug_mode_ops",
    INTERNAL: "_inductor_debug _native_aot torch_vendor_quack triton inductor inductor_prims static_runtime tensorexpr "
        "aoti_torch onnx onnx_symbolic",
    "exists for torch's own tests": "_inductor_test _test",
    "reads attributes by name": "export",
    "builds script objects": "torchbind",
})  # fmt: skip
"""Denied namespaces of the dispatcher, with the reasons."""

DENIED: Mapping[str, str] = _by_name({
    "opens a file by name, and may write to it": "aten.from_file",
    "prints": "aten._print",
    "replaces a tensor for all its holders": "aten.set_data aten.shallow_copy_data_",
    "runs autograd's hooks": "aten._backward",
    "reads the contexts of distributed autograd": "aten.get_gradients",
    "changes which gradients the caller's backward keeps": "aten.retain_grad",
    "keeps memory alive for a device stream": "aten.record_stream fsdp.record_grad_output_stream",
    "changes tensors that a compiler owns": "aten._propagate_xla_data",
    "changes a setting of the process": "aten._cufft_set_plan_cache_max_size aten._cufft_clear_plan_cache",
    RAW: "aten._nested_view_from_buffer aten._nested_view_from_buffer_copy aten._sparse_coo_tensor_unsafe "
        "aten._sparse_compressed_tensor_unsafe aten._sparse_csr_tensor_unsafe aten._sparse_csc_tensor_unsafe "
        "aten._sparse_bsr_tensor_unsafe aten._sparse_bsc_tensor_unsafe aten._coalesced_ aten._coalesced aten._reshape_alias",
    "changes levels of forward-mode autograd": "aten._make_dual aten._unpack_dual aten._fw_primal",
    "reveals an address": "mkldnn.data_ptr",
    INTERNAL: "mkldnn._get_mkldnn_serialized_md",
    "accepts any object": "quantized.conv2d_unpack_sizes",
})  # fmt: skip
"""Denied operators (all overloads), with the reasons; a test audits the rest of the registry."""

HIGHER_ORDER = frozenset(
    {
        "_export_tracepoint", "associative_scan", "auto_functionalized", "auto_functionalized_v2", "call_torchbind", "cond",
        "flex_attention", "flex_attention_backward", "hints_wrapper", "invoke_subgraph", "map_impl", "out_dtype", "scan",
        "strict_mode", "switch", "tag_activation_checkpoint", "while_loop", "while_loop_stack_output", "with_effects",
        "wrap_with_autocast", "wrap_with_set_grad_enabled",
    }
)  # fmt: skip
"""The higher-order operators that exporters write, whose functions are bodies of the program or operators of this list."""


@frozen
class BodyAt:
    """A parameter of a higher-order operator that is a body, or a list that contains bodies."""

    parameter: str
    position: int
    items: slice | None = None
    """The items of the list that are bodies; None if the argument itself is a body."""


BODIES: Mapping[str, tuple[BodyAt, ...]] = {
    "associative_scan": (BodyAt("combine_fn", 0),),
    "cond": (BodyAt("true_fn", 1), BodyAt("false_fn", 2)),
    "flex_attention": (BodyAt("score_mod", 3), BodyAt("block_mask", 4, slice(-1, None))),
    "flex_attention_backward": (
        BodyAt("fw_graph", 7), BodyAt("joint_graph", 8), BodyAt("block_mask", 9, slice(-1, None)),
    ),
    "hints_wrapper": (BodyAt("body_fn", 0),),
    "invoke_subgraph": (BodyAt("subgraph", 0),),
    "map_impl": (BodyAt("f", 0),),
    "scan": (BodyAt("combine_fn", 0),),
    "strict_mode": (BodyAt("callable", 0),),
    "switch": (BodyAt("branches", 1, slice(None)),),
    "tag_activation_checkpoint": (BodyAt("gmod", 0),),
    "while_loop": (BodyAt("cond_fn", 0), BodyAt("body_fn", 1)),
    "while_loop_stack_output": (BodyAt("cond_fn", 0), BodyAt("body_fn", 1)),
    "wrap_with_autocast": (BodyAt("wrapped_func", 4),),
    "wrap_with_set_grad_enabled": (BodyAt("wrapped_func", 1),),
}  # fmt: skip
"""The bodies of the operators of ``HIGHER_ORDER``; a test compares them with torch's signatures."""

OPERATOR_NAMES = (
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "index", "invert", "is_", "is_not", "le", "lshift", "lt",
    "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "truth", "xor",
)  # fmt: skip

BUILTIN_NAMES = ("abs", "bool", "float", "int", "max", "min", "pow", "round")

MATH_NAMES = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "degrees", "erf",
    "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "gamma", "hypot", "isclose", "isfinite", "isinf", "isnan",
    "isqrt", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc",
)  # fmt: skip
"""Functions on numbers whose cost does not grow with the number: no ``factorial``, ``comb``, ``perm``, ``prod``."""


def _plain_functions() -> dict[str, Target]:
    found = [getattr(operator, name) for name in OPERATOR_NAMES]
    found += [getattr(builtins, name) for name in BUILTIN_NAMES]
    found += [getattr(math, name) for name in MATH_NAMES]
    found += [
        value
        for name, value in vars(torch).items()
        if name.startswith(("sym_", "_sym_")) and callable(value)
    ]
    found += [
        takes,
        gives,
        call_module,
        call_guards,
        pack,
        unpack,
        torch.tensor,
        torch.as_tensor,
        *MODES,
        *VMAP,
    ]
    return {op_name(function): function for function in found}


PLAIN_FUNCTIONS = _plain_functions()
"""The functions on sizes, numbers, containers and modes that occur in exported graphs besides operators."""

MATH = {
    op_name(value): value
    for name, value in vars(math).items()
    if callable(value) and not name.startswith("_")
}


def allowed(name: str) -> Target | None:
    """Return the named operator if a program from an untrusted source may use it, else None.

    Args:
        name: as in ``Op.name``.

    >>> allowed("aten.add.Tensor") is torch.ops.aten.add.Tensor, allowed("operator.getitem") is operator.getitem
    (True, True)
    >>> allowed("builtins.getattr"), allowed("aten.from_file.default"), allowed("os.system")
    (None, None, None)
    """
    found = PLAIN_FUNCTIONS.get(name)
    if found is not None:
        return found
    found = registered(name)
    return None if found is None or denied(name) is not None else found


def registered(name: str) -> Target | None:
    """Return the named callable from any registry, denied or not, or None; readers can allow it by name.

    >>> registered("builtins.getattr") is getattr, registered("math.factorial") is math.factorial, registered("os.system")
    (True, True, None)
    """
    found = PLAIN_FUNCTIONS.get(name) or known_functions().get(name) or MATH.get(name)
    if found is not None:
        return found
    match name.split(".") if name.isprintable() else ():
        case ["higher_order", operation]:
            return resolve_higher_order(operation)
        case ["tensor", method]:
            return known_method(method)
        case ["method", method] if method.isidentifier():
            return Method(method)
        case [namespace, operation, overload]:
            return resolve_operator(namespace, operation, overload)
        case _:
            return None


def denied(name: str) -> str | None:
    """Return the reason why an untrusted program may not name a registered operator, or None if it may.

    >>> denied("aten.relu.default"), denied("aten.from_file.default"), denied("debugprims.load_tensor.default")
    (None, 'opens a file by name, and may write to it', 'reads files')
    """
    target = PLAIN_FUNCTIONS.get(name) or registered(name)
    if target is None:
        return "is not registered here"
    if isinstance(target, HigherOrderOperator):
        known = name.removeprefix("higher_order.") in HIGHER_ORDER
        if name == "higher_order.flat_apply":
            return "calls the function that its first operand describes; torch writes it for torch.compiler.nonstrict_trace"
        return None if known else "calls its operand, and no exporter writes it"
    if isinstance(target, OpOverload):
        namespace, packet = name.split(".")[:2]
        reason = DENIED_NAMESPACES.get(namespace) or DENIED.get(f"{namespace}.{packet}")
        return reason or (None if in_dispatcher(target) else SCRIPT)
    if name in PLAIN_FUNCTIONS:
        return None
    if isinstance(target, Method):
        return (
            None
            if target.of_tensor and _is_tensor_method(target.name)
            else "calls a method of any object by its name"
        )
    # Functions that torch generates for operators of the dispatcher, and those of torch.nn.functional.
    return None if _is_torch_function(name, target) else "is not a function on data alone"


@functools.cache
def _is_tensor_method(name: str) -> bool:
    # TorchScript has operators on strings and lists under names that str and list have too: format, join, append.
    return callable(getattr(torch.Tensor, name, None)) and _packet_allowed(name)


def _packet_allowed(name: str) -> bool:
    if f"aten.{name}" in DENIED:
        return False
    return name in VIEWS or any(in_dispatcher(overload) for overload in overloads_of(name))


@functools.cache
def _is_torch_function(name: str, target: Target) -> bool:
    if target is getattr or name in MATH:
        return False
    if type(target) is type(torch.relu):
        return _packet_allowed(getattr(target, "__name__", ""))
    return target is torch.split or name.startswith("torch.nn.functional.")


def foreign_operators(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the names of operators that a reader of the printed nodes would not find or allow; see ``Program``."""
    nodes = list(nodes)
    called = {id(node.do): node.do for node in nodes if type(node.do) is Op}.values()
    found = {do.name for do in called if do.target is not None and allowed(do.name) != do.target}
    for node in nodes:
        for leaf in arg_leaves((*node.args, *[value for _, value in node.kwargs])):
            if (
                callable(leaf)
                and registered(name := op_name(leaf)) is leaf
                and allowed(name) is None
            ):
                found.add(name)
    return tuple(sorted(found))


def advice_for(names: Iterable[str]) -> str:
    """Return advice about operators that a program from an untrusted source may not name, as the end of a message.

    >>> advice_for(["builtins.getattr"])
    "pass allow={'builtins.getattr'} if you trust its author"
    >>> advice_for(["mine.scale"])
    "import the library that registers 'mine.scale', or pass the functions in operators={'mine.scale': ...}"
    """
    every = sorted(names)
    known = [name for name in every if registered(name) is not None]
    others = [ascii(name) for name in every if registered(name) is None]
    parts = (
        [f"pass allow={{{', '.join(map(ascii, known))}}} if you trust its author"] if known else []
    )
    if others:
        given = ", ".join(f"{name}: ..." for name in others)
        parts.append(
            f"import the library that registers {', '.join(others)}, or pass the functions in operators={{{given}}}"
        )
    return "; ".join(parts)


def named_with_reasons(names: Iterable[str]) -> str:
    """Return names of operators, each with the reason why an untrusted program may not use it.

    >>> named_with_reasons(["aten._print.default", "mine.scale"])
    "'aten._print.default' (prints), 'mine.scale' (is not registered here)"
    """
    return ", ".join(
        [
            f"{name!a} ({denied(name) or 'names a different function here'})"
            for name in sorted(names)
        ]
    )
