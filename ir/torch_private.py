"""Every name of torch that is not public and that purefx touches, with the reason.

One idea: when torch moves one, one file changes, and ``tests/upstream/test_torch_private.py`` says which.  Nothing
is wrapped here beyond giving it a typed name.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this file is for.

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import sympy
import torch
import torch._guards
import torch._ops
import torch.fx._pytree
import torch.fx._symbolic_trace
import torch.fx.graph
import torch.fx.traceback
import torch.utils._pytree
import torch.utils._sympy.functions
import torch.utils._sympy.numbers
import torch.utils._sympy.value_ranges
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv, compute_unbacked_bindings
from torch.utils._traceback import CapturedTraceback

__all__ = [
    "EMPTY_STACK_KEY",
    "EXPORT_HOOKS",
    "FAKE_REFUSALS",
    "MODES",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "NodeSource",
    "OpOverload",
    "OpOverloadPacket",
    "PyTreeCodeGen",
    "PyTreeInfo",
    "SpecViolationError",
    "TrainingIRVerifier",
    "Verifier",
    "blank_attributes",
    "buffers_dict",
    "builtin_functions",
    "child_of",
    "children_dict",
    "codegen_of",
    "fake_copy",
    "fields_of",
    "fresh_bindings",
    "generator_of_code",
    "guards_of",
    "hooks_of",
    "is_tracing",
    "new_shape_env",
    "new_symbol",
    "overloads_of",
    "parameters_dict",
    "pytree",
    "ranges_in",
    "read_node_source",
    "resolve_higher_order",
    "resolve_operator",
    "retraced_joint",
    "schema_of",
    "script_class",
    "set_guards",
    "size_number",
    "state_of",
    "storage_key",
    "symbol_facts",
    "symbolic_range",
    "symbols_of",
    "sympy_operators",
    "tree_flatten_spec",
    "unsaved_buffers",
]  # fmt: skip

pytree: Any = torch.utils._pytree
"""The pytree library; torch has no public name for it, and exported signatures are its ``TreeSpec``."""

OpOverload: Any = torch._ops.OpOverload
"""The type of ``torch.ops.aten.add.Tensor``; public code only has its instances."""

OpOverloadPacket: Any = torch._ops.OpOverloadPacket
"""The type of ``torch.ops.aten.add``."""

HigherOrderOperator: Any = torch._ops.HigherOrderOperator
"""The type of ``torch.ops.higher_order.cond``."""

tree_flatten_spec: Any = torch.fx._pytree.tree_flatten_spec
"""Takes a value apart as a spec says; torch's own graphs with preserved call signatures use it."""

PyTreeCodeGen: Any = torch.fx.graph._PyTreeCodeGen
"""Makes a graph's code take and give pytrees, as the graph of ``ep.module()`` does."""

PyTreeInfo: Any = torch.fx.graph._PyTreeInfo
"""Its argument names and specs."""

NodeSource: Any = torch.fx.traceback.NodeSource
"""What ``meta["from_node"]`` holds: which node a node was made from, and by which pass."""

EMPTY_STACK_KEY = "_empty_nn_module_stack_from_metadata_hook"
"""The key that the exporter gives to a node that no module stack is known for."""


def schema_of(target: Any) -> Any:
    """Return the schema of an operator overload: the only place where torch states its effects.

    >>> schema_of(torch.ops.aten.relu.default).name
    'aten::relu'
    """
    return target._schema


def blank_attributes() -> dict[str, Any]:
    """Return what ``torch.nn.Module.__init__`` puts into a module's ``__dict__``: empty containers, made anew, and flags.

    A quarter of the time that ``__init__`` takes, which sets each through ``__setattr__``.
    """
    return {name: value if kind is None else kind() for name, kind, value in _BLANK}


_BLANK = [
    (name, type(value) if isinstance(value, dict | set) else None, value) for name, value in torch.nn.Module().__dict__.items()
]


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


def child_of(module: Any, name: str) -> Any:
    """Return a child of a module, or a view that stands beside its children.

    ``getattr`` fails before it asks ``Module.__getattr__``, which takes five times as long.
    """
    children = module._modules
    return children[name] if name in children else getattr(module, name)


def state_of(module: Any, name: str) -> Any:
    """Return a parameter or buffer of a module, or what ``getattr`` finds: a constant, something parametrized."""
    own = module._parameters
    if name in own:
        return own[name]
    own = module._buffers
    return own[name] if name in own else getattr(module, name)


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a named tuple's class, () for another class; the underscore is Python's, not torch's.

    >>> fields_of(PyTreeInfo), fields_of(tuple)
    (('orig_args', 'in_spec', 'out_spec'), ())
    """
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


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


def size_number(size: Any) -> int | float | bool | None:
    """Return what a symbolic number was when its program was exported; None where only a run can say.

    Its symbols are replaced by the numbers that the exporter saw; no public way to that number leaves the environment as it
    is: comparing or converting a symbolic number installs a guard.
    """
    node = size.node
    number = node.expr.xreplace(node.shape_env.backed_var_to_val)
    return None if number.free_symbols else cast("int | float | bool", node.pytype(number))


def guards_of(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the guards that ``ep.module()`` enforces, as Python text; no public attribute has them."""
    return list(getattr(ep, "_guards_code", None) or [])


def set_guards(ep: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Give an exported program the guards that ``ep.module()`` enforces; its constructor asks the fake values alone."""
    ep._guards_code = guards


def script_class(value: Any) -> str:
    """Return the class of a script object as torch names it in signatures; that of any other object by its Python name."""
    if isinstance(value, torch.ScriptObject):
        return str(cast(Any, value)._type().qualified_name())
    return f"{type(value).__module__}.{type(value).__qualname__}"


def new_shape_env() -> Any:
    """Return an environment for symbolic sizes; no public module has the class."""
    return ShapeEnv()


def new_symbol(env: Any, name: str, number: int, low: int | None, high: int | None) -> torch.SymInt:
    """Return a symbolic integer of a given name: what torch does when it loads an exported program.

    Args:
        env: the environment that it lives in.
        name: of the symbol; ``u0`` is one that no input tells.
        number: what stands for it where a size must be decided.
        low: the bounds, both included; None is what sizes have.
        high: likewise.
    """
    symbol: Any = sympy.Symbol(name, integer=True, positive=True) if name.startswith("s") else sympy.Symbol(name, integer=True)
    is_backed = name.startswith("s")
    if is_backed:
        env.add_backed_var_to_val(symbol, number)
    infinite = torch.utils._sympy.numbers.int_oo
    env.constrain_symbol_range(symbol, compiler_min=0 if low is None else low, compiler_max=infinite if high is None else high)
    env.var_to_stack[symbol] = CapturedTraceback.extract(skip=1)
    return cast(torch.SymInt, env.create_symintnode(symbol, hint=number if is_backed else None))


def symbols_of(env: Any) -> dict[str, Any]:
    """Return the symbolic integers of an environment by name."""
    if env is None:
        return {}
    numbers: Mapping[Any, Any] = env.backed_var_to_val
    symbols = [symbol for symbol in env.var_to_range if symbol not in env.replacements]
    hints = {symbol: int(numbers[symbol]) if symbol in numbers else None for symbol in symbols}
    return {str(symbol): env.create_symintnode(symbol, hint=hint) for symbol, hint in hints.items()}


def ranges_in(values: Iterable[Any]) -> dict[Any, Any]:
    """Return the bounds of the symbols in fake values, as their environment has them, in the order in which they are met."""
    found: dict[Any, Any] = {}
    for value in values:
        for part in value if isinstance(value, tuple | list) else (value,):
            sizes: Iterable[Any] = (*part.shape, *part.stride()) if isinstance(part, FakeTensor) else (part,)
            for size in sizes:
                if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
                    node = size.node
                    known = node.shape_env.var_to_range
                    symbols = sorted(node.expr.free_symbols, key=str)
                    found.update((symbol, known[symbol]) for symbol in symbols if symbol in known and symbol not in found)
    return found


def fresh_bindings(env: Any, value: Any) -> Any:
    """Return where a fake value holds symbols that its operator has just made, and take them from the list of those to bind."""
    return compute_unbacked_bindings(env, value)


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


def overloads_of(name: str) -> list[Any]:
    """Return the overloads of an operator of aten from the dispatcher's registry; none where it has no such operator.

    >>> torch.ops.aten.relu.default in overloads_of("relu"), overloads_of("no_such_thing")
    (True, [])
    """
    try:
        found = cast(Any, torch._C)._jit_get_operation(f"aten::{name}")
    except RuntimeError:
        return []
    names = found[1] if found is not None and found[0] is not None else []
    overloads = [resolve_operator("aten", name, overload or "default") for overload in names]
    return [overload for overload in overloads if overload is not None]


def builtin_functions() -> list[tuple[str, Callable[..., Any]]]:
    """Return the functions that torch generates for operators, with the names of those: ``torch.relu``, ``F.gelu``."""
    found: list[tuple[str, Any]] = []
    for module in (torch, cast(Any, torch._C)._nn):
        found += [(name, value) for name, value in vars(module).items() if type(value) is type(torch.relu)]
    return found


def _modes() -> dict[Callable[..., Any], int]:
    private: Any = torch._C
    autocast: Any = torch.amp.autocast_mode
    grad: Any = torch.autograd.grad_mode
    return {
        private._set_grad_enabled: 1,
        private._functorch._vmap_increment_nesting: 1,
        private._functorch._vmap_decrement_nesting: -1,
        autocast._enter_autocast: 1,
        autocast._exit_autocast: -1,
        grad._enter_inference_mode: 1,
        grad._exit_inference_mode: -1,
    }


MODES = _modes()
"""Functions that Dynamo writes into graphs and that change what operators mean: 1 opens such a region, -1 closes one."""


def generator_of_code(module: torch.fx.GraphModule) -> Any:
    """Return what generates the code of a module's graph where that is one whose inputs and outputs a graph shows, else None."""
    codegen: Any = module.graph._codegen
    return codegen if type(codegen) in (torch.fx.graph.CodeGen, PyTreeCodeGen) else None


def hooks_of(module: torch.nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that run when a module is called."""
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return [hook for hooks in kinds for hook in hooks.values()]


EXPORT_HOOKS = "torch.export._unlift"
"""Where the hooks of ``ep.module()`` come from, which check its inputs."""


FAKE_REFUSALS = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
"""What operators raise that can not say what they give without the contents of tensors."""


def fake_copy(module: torch.fx.GraphModule, mode: Any) -> torch.fx.GraphModule:
    """Return a copy of a module with fake tensors in the places of its own; no public copy leaves the contents out."""
    with FakeCopyMode(mode):
        return copy.deepcopy(module)


def retraced_joint(ep: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return the joint forward and backward graph of an exported program, which says of each node where it comes from.

    It is what ``torch.export.experimental._export_forward_backward`` makes before its second trace, which drops all meta.
    """
    # Importing these takes longer than all of purefx, and few programs are joint.
    from torch._decomp import core_aten_decompositions
    from torch._functorch.aot_autograd import _aot_export_function

    module = ep.graph_module
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(values)

    def run(*leaves: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return torch.fx.Interpreter(module).run(*leaves)

    with mode or nullcontext():
        table: Any = core_aten_decompositions()
        traced, *_ = _aot_export_function(run, tuple(values), decompositions=table, no_tangents=True, trace_joint=True)
    joint = cast(torch.fx.GraphModule, traced)
    joint.graph.eliminate_dead_code()
    return joint


def is_tracing() -> bool:
    """Say whether ``torch.fx.symbolic_trace`` is running the code that asks; the exporter sets the same flag and is not meant."""
    return torch.fx._symbolic_trace.is_fx_symbolic_tracing()


def symbolic_range(expr: Any, low: int | None, high: int | None) -> tuple[Any, Any] | None:
    """Return a symbol and its bounds as ``ep.range_constraints`` has them; None for an expression.

    >>> from purefx.ir.expression import Sym
    >>> symbolic_range(Sym("s0"), 2, None)
    (s0, VR[2, int_oo])
    """
    name = getattr(expr, "name", None)
    if name is None:
        return None
    infinite = torch.utils._sympy.numbers.int_oo
    symbol = sympy.Symbol(name, integer=True, positive=True) if name.startswith("s") else sympy.Symbol(name, integer=True)
    bounds: Any = torch.utils._sympy.value_ranges.ValueRanges
    return symbol, bounds(-infinite if low is None else low, infinite if high is None else high)


def read_node_source(written: dict[str, Any]) -> Any:
    """Return the ``NodeSource`` that its ``to_dict`` gave; the constructor wants the node itself.

    >>> read_node_source({"pass_name": "p", "action": "create", "name": "y", "target": "t", "graph_id": 0}).name
    'y'
    """
    return NodeSource._from_dict(written)


def symbol_facts(node: Any, symbol: Any) -> tuple[int | None, int | None, int | None]:
    """Return what the environment of a symbolic number knows of one of its symbols: the number that was seen, and its bounds.

    Args:
        node: the node of a symbolic number.
        symbol: one of the symbols in its expression.
    """
    env = node.shape_env
    bounds = env.var_to_range.get(symbol)
    ends = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    return _finite(env.backed_var_to_val.get(symbol)), _finite(ends[0]), _finite(ends[1])


def _finite(number: Any) -> int | None:
    if number is None or not getattr(number, "is_Integer", False) or abs(int(number)) >= 2**62:
        return None
    return int(number)


def sympy_operators() -> Mapping[str, Callable[..., Any]]:
    """Return what makes sympy expressions as torch has them, by the names of ``purefx.ir.expression``.

    >>> sympy_operators()["//"](sympy.Symbol("s0"), 2)
    (s0//2)
    """
    return _SYMPY_OPERATORS


_functions: Any = torch.utils._sympy.functions

_SYMPY_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": sympy.Add, "*": sympy.Mul, "**": sympy.Pow, "-": lambda a, b: a - b, "neg": lambda a: -a,
    "//": _functions.FloorDiv, "/": _functions.IntTrueDiv, "%": _functions.Mod, "ceildiv": _functions.CeilDiv,
    "max": _functions.Max, "min": _functions.Min, "abs": sympy.Abs, "==": sympy.Eq, "!=": sympy.Ne, "<": sympy.Lt,
    "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge, "and": sympy.And, "or": sympy.Or, "not": sympy.Not,
}  # fmt: skip
