"""Private names of torch for exported programs, fx graphs and modules.

Guards, verifiers, generated code, pytree specs, the dicts that hold state, children and hooks; each with its reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.fx._symbolic_trace
import torch.fx.graph
import torch.fx.traceback
import torch.utils._pytree
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier

__all__ = [
    "EMPTY_STACK_KEY", "EXPORT_HOOKS", "NodeSource", "PyTreeCodeGen", "PyTreeInfo", "SpecViolationError",
    "TrainingIRVerifier", "Verifier", "blank_module", "buffers_dict", "checks_inputs", "child_of", "children_dict",
    "codegen_of", "fields_of", "generator_of_code", "guards_of", "hooks_of", "is_tracing", "parameters_dict", "pytree",
    "read_node_source", "run_while_tracing", "script_class", "set_guards", "state_of", "storage_key",
    "times_written", "uncompiled", "unsaved_buffers", "window_on", "with_hooks_of",
]  # fmt: skip

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.


pytree: Any = torch.utils._pytree
"""The pytree library; torch has no public name for it, and exported signatures are its ``TreeSpec``."""

PyTreeCodeGen: Any = torch.fx.graph._PyTreeCodeGen
"""Makes a graph's code accept and return pytrees, as the graph of ``ep.module()`` does."""

PyTreeInfo: Any = torch.fx.graph._PyTreeInfo
"""Its argument names and specs."""

NodeSource: Any = torch.fx.traceback.NodeSource
"""What ``meta["from_node"]`` holds: which node a node was made from, and by which pass."""

EMPTY_STACK_KEY = "_empty_nn_module_stack_from_metadata_hook"
"""The key that the exporter writes for a node without a known module stack."""


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a named tuple's class, () for another class; the underscore is Python's, not torch's.

    >>> fields_of(PyTreeInfo), fields_of(tuple)
    (('orig_args', 'in_spec', 'out_spec'), ())
    """
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


def codegen_of(graph: torch.fx.Graph) -> Any:
    """Return what generates a graph's code; a GraphModule copies its pytree specs."""
    return graph._codegen


def generator_of_code(module: torch.fx.GraphModule) -> Any:
    """Return what generates the code of a module's graph where that is one whose inputs and outputs a graph shows, else None."""
    codegen: Any = module.graph._codegen
    return codegen if type(codegen) in (torch.fx.graph.CodeGen, PyTreeCodeGen) else None


def is_tracing() -> bool:
    """Return whether ``torch.fx.symbolic_trace`` runs the caller; the exporter sets the same flag and does not count."""
    return torch.fx._symbolic_trace.is_fx_symbolic_tracing()


def run_while_tracing(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that dynamo runs, and does not trace.

    ``torch.compiler.assume_constant_result`` does the same, but imports dynamo, which takes a second.

    >>> run_while_tracing(lambda: None)()
    """

    def run() -> None:
        function()

    run._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return run


def read_node_source(written: dict[str, Any]) -> Any:
    """Return a ``NodeSource`` from the result of ``to_dict``; the constructor needs the node itself.

    >>> read_node_source({"pass_name": "p", "action": "create", "name": "y", "target": "t", "graph_id": 0}).name
    'y'
    """
    return NodeSource._from_dict(written)


# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.


Module = TypeVar("Module", bound=torch.nn.Module)


def blank_module(kind: type[Module], **attributes: Any) -> Module:
    """Return a module of a class with what ``torch.nn.Module.__init__`` sets, empty containers of its own and flags, and more.

    A fifth of the time that ``__init__`` takes, which sets each through ``__setattr__``.

    Args:
        kind: the class, whose own ``__init__`` does not run.
        attributes: what else its ``__dict__`` holds.
    """
    made = _BLANK.copy()
    for name, container in _CONTAINERS:
        made[name] = container()
    made.update(attributes)
    module = kind.__new__(kind)
    object.__setattr__(module, "__dict__", made)
    return module


_BLANK = dict(torch.nn.Module().__dict__)

_CONTAINERS = [(name, type(value)) for name, value in _BLANK.items() if isinstance(value, dict | set)]


def children_dict(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """Return the dict that holds a module's children; ``add_module`` refuses names that a class uses (``graph``)."""
    return module._modules


def parameters_dict(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the dict that holds a module's parameters; ``register_parameter`` scans and refuses likewise."""
    return module._parameters


def buffers_dict(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the dict that holds a module's buffers."""
    return module._buffers


def uncompiled(module: Any) -> Any:
    """Return the module that ``torch.compile`` was given, any other module itself.

    A compiled module takes ``*args, **kwargs`` whatever the module takes, and no public name leads from it to that one.
    """
    return module._orig_mod if "_orig_mod" in getattr(module, "_modules", ()) else module


def unsaved_buffers(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's buffers that are not persistent."""
    return module._non_persistent_buffers_set


def child_of(module: Any, name: str) -> Any:
    """Return a child of a module, or a view beside its children.

    ``getattr`` fails before it asks ``Module.__getattr__``, which takes five times as long.
    """
    children = module._modules
    return children[name] if name in children else getattr(module, name)


def state_of(module: Any, name: str) -> Any:
    """Return a parameter or buffer of a module, or what ``getattr`` finds: a constant, something parametrized."""
    for own in (module._parameters, module._buffers):
        if name in own:
            return own[name]
    return getattr(module, name)


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number that two tensors share when they share memory; ``data_ptr()`` is 0 for meta and empty tensors.

    >>> a = torch.ones(4)
    >>> storage_key(a) == storage_key(a[1:]), storage_key(a) == storage_key(a.clone())
    (True, False)
    """
    return cast(int, cast(Any, tensor.untyped_storage())._cdata)


def times_written(tensor: torch.Tensor) -> int:
    """Return how often a tensor, or a view of its memory, was written so far.

    >>> a = torch.ones(4)
    >>> before = times_written(a)
    >>> times_written(a[1:].add_(1)) > before
    True
    """
    return tensor._version


def window_on(memory: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return a view of some memory with the layout of another tensor: dtype, place, strides, and what is done on reading.

    That a tensor is a conjugate or a negative may be a bit of it and not written in memory; no public name sets the second.

    Args:
        memory: the tensor to view.
        like: strided; it shall need no gradient.

    >>> z = torch.tensor([1 + 2j]).conj()
    >>> window_on(z.untyped_storage().clone(), z).tolist(), window_on(z.untyped_storage().clone(), z.imag).tolist()
    ([(1-2j)], [-2.0])
    """
    found = torch.empty(0, dtype=like.dtype, device=memory.device)
    found.set_(cast(Any, memory), like.storage_offset(), like.shape, like.stride())
    if like.is_conj():
        found = found.conj()
    if like.is_neg():
        found = cast(Any, torch)._neg_view(found)
    return found.detach()


def hooks_of(module: torch.nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that run when a module is called."""
    return [hook for name in _HOOKS if (hooks := getattr(module, name)) for hook in hooks.values()]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOW = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
"""The hooks, by number, that take keyword arguments, or run after an error."""


def with_hooks_of(module: Module, other: torch.nn.Module) -> Module:
    """Return a stand-in for one call of a module, during which the hooks of another one run as well and receive the other.

    >>> doubled, said = torch.nn.Linear(1, 1), torch.nn.ReLU()
    >>> handle = said.register_forward_hook(lambda module, args, result: print(type(module).__name__))
    >>> _ = with_hooks_of(doubled, said)(torch.ones(1))
    ReLU
    """
    made = module.__class__.__new__(module.__class__)
    attributes, theirs = made.__dict__, other.__dict__
    attributes.update(module.__dict__)
    for name in _HOOKS:
        attributes[name] = {**attributes[name], **{number: _receiving(other, hook) for number, hook in theirs[name].items()}}
    for name in _HOW:
        attributes[name] = {**attributes[name], **theirs[name]}
    attributes["_is_full_backward_hook"] = theirs["_is_full_backward_hook"]
    return made


def _receiving(module: torch.nn.Module, hook: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *rest: hook(module, *rest)


# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.


def guards_of(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the guards that ``ep.module()`` enforces, as Python text; no public attribute has them."""
    return list(ep._guards_code or [])


def checks_inputs(module: Any) -> bool:
    """Return whether a module is the one that ``ep.module()`` calls first: it asserts what holds of the inputs, and nothing else.

    No public name has its class; it has no state, and torch sets its ``forward`` on the instance.
    """
    # Who made it has imported its module, which takes as long as Dynamo.
    kind = getattr(sys.modules.get(EXPORT_HOOKS), "GuardsFn", None)
    return kind is not None and type(module) is kind and not hooks_of(module) and "forward" in module.__dict__


def set_guards(ep: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Set the guards that ``ep.module()`` enforces; the constructor takes them from the fake values alone."""
    ep._guards_code = guards


def script_class(value: Any) -> str:
    """Return the class of a script object as torch names it in signatures; that of any other object by its Python name."""
    if isinstance(value, torch.ScriptObject):
        return str(cast(Any, value)._type().qualified_name())
    return f"{type(value).__module__}.{type(value).__qualname__}"


EXPORT_HOOKS = "torch.export._unlift"
"""Where the hooks of ``ep.module()`` come from, which check its inputs."""
