"""Private names of torch for exported programs, fx graphs, modules, and for recording operators as a graph.

Guards, verifiers, generated code, pytree specs, the dicts of state, children and hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.fx._symbolic_trace
import torch.fx.graph
import torch.fx.traceback
import torch.utils._pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier

from .joints import TRACING, Late, assigned

__all__ = [
    "EMPTY_STACK_KEY", "NodeSource", "PyTreeCodeGen", "PyTreeInfo", "Recorder", "SpecViolationError", "TrainingIRVerifier",
    "Verifier", "assuming_sizes", "blank_module", "buffers_dict", "checks_inputs", "children_dict", "codegen_of",
    "enable_python_dispatcher", "fields_of", "generator_of_code", "guards_of", "hooks_of", "is_tracing", "member_of",
    "parameters_dict", "pytree", "read_node_source", "run_while_tracing", "script_class", "set_guards", "storage_key",
    "times_written", "uncompiled", "unsaved_buffers", "window_on", "with_hooks_of",
]  # fmt: skip

# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


pytree: Any = torch.utils._pytree
"""The pytree library; torch has no public name for it, and exported signatures are its ``TreeSpec``."""

PyTreeCodeGen: Any = torch.fx.graph._PyTreeCodeGen
"""Makes a graph's code accept and return pytrees, as the graph of ``ep.module()`` does."""

PyTreeInfo: Any = torch.fx.graph._PyTreeInfo
"""Its argument names and specs."""

NodeSource: Any = torch.fx.traceback.NodeSource
"""The type of ``meta["from_node"]``: the node from which a node was made, and the pass that made it."""

EMPTY_STACK_KEY = "_empty_nn_module_stack_from_metadata_hook"
"""The key that the exporter writes for a node without a known module stack."""


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a named tuple's class, () for other classes.

    >>> fields_of(PyTreeInfo), fields_of(tuple)
    (('orig_args', 'in_spec', 'out_spec'), ())
    """
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


def codegen_of(graph: torch.fx.Graph) -> Any:
    """Return the code generator of a graph; a GraphModule copies its pytree specs."""
    return graph._codegen


def generator_of_code(module: torch.fx.GraphModule) -> Any:
    """Return the code generator of a module's graph; None if its code does more than the graph shows."""
    codegen: Any = module.graph._codegen
    return codegen if type(codegen) in (torch.fx.graph.CodeGen, PyTreeCodeGen) else None


is_tracing: Callable[[], bool] = torch.fx._symbolic_trace.is_fx_symbolic_tracing
"""Return whether ``torch.fx.symbolic_trace`` runs the caller; the exporter sets the same flag and does not count."""


def run_while_tracing(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that dynamo runs but does not trace.

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
# This folder exists to use private names in one place.


Module = TypeVar("Module", bound=torch.nn.Module)


def blank_module(kind: type[Module], **attributes: Any) -> Module:
    """Return a module of a class with the attributes that ``torch.nn.Module.__init__`` sets, and more.

    It is 5x faster than ``__init__``, which calls ``__setattr__`` for each.

    Args:
        kind: the class, whose ``__init__`` does not run.
        attributes: further entries of its ``__dict__``.
    """
    module = kind.__new__(kind)
    own = module.__dict__
    own.update(_BLANK, **attributes)
    for name, container in _CONTAINERS:
        own[name] = container()
    return module


_BLANK = dict(torch.nn.Module().__dict__)

_CONTAINERS = [
    (name, type(value)) for name, value in _BLANK.items() if isinstance(value, dict | set)
]


def children_dict(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """Return the dict of a module's children; ``add_module`` refuses names that a class uses (``graph``)."""
    return module._modules


def parameters_dict(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the dict of a module's parameters; ``register_parameter`` refuses names likewise."""
    return module._parameters


def buffers_dict(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the dict of a module's buffers."""
    return module._buffers


def uncompiled(module: Any) -> Any:
    """Return the original of a module from ``torch.compile``; return other modules as they are.

    The signature of a compiled module is ``*args, **kwargs``, and it has no public attribute for the original.
    """
    return module._orig_mod if "_orig_mod" in getattr(module, "_modules", ()) else module


def unsaved_buffers(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's buffers that are not persistent."""
    return module._non_persistent_buffers_set


def member_of(module: Any, name: str) -> Any:
    """Return a child, a piece of state or another attribute of a module.

    Attributes of the module come before those of its class, which may have the same name.
    ``getattr`` fails before it calls ``Module.__getattr__``, which takes 7x as long.

    >>> member_of(torch.nn.Linear(2, 1), "weight").shape
    torch.Size([1, 2])
    """
    if (
        name in (own := module._modules)
        or name in (own := module._parameters)
        or name in (own := module._buffers)
    ):
        return own[name]
    return own[name] if name in (own := module.__dict__) else getattr(module, name)


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number that is equal for tensors that share memory; ``data_ptr()`` is 0 for meta and empty tensors.

    >>> a = torch.ones(4)
    >>> storage_key(a) == storage_key(a[1:]), storage_key(a) == storage_key(a.clone())
    (True, False)
    """
    return cast(int, cast(Any, tensor.untyped_storage())._cdata)


def times_written(tensor: torch.Tensor) -> int:
    """Return how often a tensor or a view of its memory has been written.

    >>> a = torch.ones(4)
    >>> before = times_written(a)
    >>> times_written(a[1:].add_(1)) > before
    True
    """
    return tensor._version


def window_on(memory: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return a view of a storage with the layout of another tensor: dtype, offset, strides, conjugate and negative bits.

    torch has no public function that sets the negative bit.

    Args:
        memory: the storage to view.
        like: strided, without requires_grad.

    >>> z = torch.tensor([1 + 2j]).conj()
    >>> window_on(z.untyped_storage().clone(), z).tolist(), window_on(z.untyped_storage().clone(), z.imag).tolist()
    ([(1-2j)], [-2.0])
    """
    found = torch.empty(0, dtype=like.dtype, device=memory.device)
    found.set_(cast(Any, memory), like.storage_offset(), like.shape, like.stride())
    found = found.conj() if like.is_conj() else found
    found = cast(Any, torch)._neg_view(found) if like.is_neg() else found
    return found.detach()


def hooks_of(module: torch.nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that run when a module is called."""
    return [hook for name in _HOOKS for hook in getattr(module, name).values()]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOW = (
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)
"""The numbers of hooks that take keyword arguments, or run after an error."""


def with_hooks_of(module: Module, other: torch.nn.Module) -> Module:
    """Return a copy of a module, for one call, that also runs the hooks of another module and passes them the other.

    >>> linear, hooked = torch.nn.Linear(1, 1), torch.nn.ReLU()
    >>> handle = hooked.register_forward_hook(lambda module, args, result: print(type(module).__name__))
    >>> _ = with_hooks_of(linear, hooked)(torch.ones(1))
    ReLU
    """
    made = module.__class__.__new__(module.__class__)
    attributes, theirs = made.__dict__, other.__dict__
    attributes.update(module.__dict__)
    for name in _HOOKS:
        attributes[name] = {
            **attributes[name],
            **{number: _receiving(other, hook) for number, hook in theirs[name].items()},
        }
    for name in _HOW:
        attributes[name] = {**attributes[name], **theirs[name]}
    attributes["_is_full_backward_hook"] = theirs["_is_full_backward_hook"]
    return made


def _receiving(module: torch.nn.Module, hook: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *rest: hook(module, *rest)


# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


def guards_of(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the guards that ``ep.module()`` enforces, as Python text; they have no public attribute."""
    return list(ep._guards_code or [])


def checks_inputs(module: Any) -> bool:
    """Return whether a module is the one that ``ep.module()`` calls first, which only checks the inputs.

    Its class is not public; it has no state, and torch sets its ``forward`` on the instance.
    """
    # If it exists, its module is imported; importing it here would take as long as Dynamo.
    kind = getattr(sys.modules.get(TRACING), "GuardsFn", None)
    return (
        kind is not None
        and type(module) is kind
        and not hooks_of(module)
        and "forward" in module.__dict__
    )


def set_guards(ep: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Set the guards that ``ep.module()`` enforces; the constructor derives them from the fake values alone."""
    ep._guards_code = guards


def script_class(value: Any) -> str:
    """Return the name of a script object's class in torch's signatures; of another object's class, its Python name."""
    if isinstance(value, torch.ScriptObject):
        return str(cast(Any, value)._type().qualified_name())
    return f"{type(value).__module__}.{type(value).__qualname__}"


_proxies: Any = Late("torch.fx.experimental.proxy_tensor")


@contextmanager
def assuming_sizes(env: Any) -> Generator[None]:
    """Let operators assume sizes for their fake results, as in inference, where user code must not.

    They must not need a symbolic size as a number: an argument or a number of results would stay that of the example.

    Args:
        env: of the symbols; None if all sizes are numbers.

    >>> with assuming_sizes(None):
    ...     torch.ones(1).sum()
    tensor(1.)
    """
    if env is None:
        yield
        return
    evaluate = env.evaluate_sym_node

    def evaluated(size: Any, *rest: Any, **options: Any) -> Any:
        if size.pytype is not bool and size.expr.free_symbols:
            raise cast(Any, fx).experimental.symbolic_shapes._ShapeEnvGuardError(
                f"{size} is not a number"
            )
        return evaluate(size, *rest, **options)

    with (
        assigned(env, "_error_on_new_guards", value=False),
        assigned(env, "evaluate_sym_node", evaluated),
        env.suppress_guards(),
    ):
        yield


class Recorder:
    """Records the operators that are called on its operands; ``make_fx`` would also generate a module.

    >>> from torch._subclasses import FakeTensorMode
    >>> recorder, x = Recorder(), FakeTensorMode().from_tensor(torch.ones(2))
    >>> with recorder.recording():
    ...     y = torch.relu(recorder.operand(x) + 1)
    >>> [str(node.target) for node in recorder.calls()], recorder.node_of(y).name
    (['aten.add.Tensor', 'aten.relu.default'], 'relu')
    """

    def __init__(self) -> None:
        self._tracer = _proxies.PythonKeyTracer()
        self._tracer.graph = self.graph = fx.Graph(tracer_cls=type(self._tracer))
        self._tracer.root = self.root = torch.nn.Module()
        self._tracer.tensor_attrs = {}

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record the operators in the context, before autograd decomposes them."""
        mode = _proxies.ProxyTorchDispatchMode(self._tracer, "real", pre_dispatch=True)
        with torch.no_grad(), enable_python_dispatcher(), mode:
            yield

    def paused(self) -> AbstractContextManager[Any]:
        """Run operators within ``recording`` without recording them."""
        return cast("AbstractContextManager[Any]", _proxies.disable_proxy_modes_tracing())

    def operand(self, value: Any) -> Any:
        """Register a tensor or a symbolic number as an input, and return it."""
        proxy = self._tracer.create_proxy("placeholder", "operand", (), {})
        with self.paused():
            _proxies.track_tensor_tree(value, proxy, constant=None, tracer=self._tracer)
        return value

    def node_of(self, value: Any) -> fx.Node | None:
        """Return the node that computes a value; None if it was not recorded."""
        may_be = isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
        found = _proxies.get_proxy_slot(value, self._tracer, None) if may_be else None
        if found is None:
            return None
        return cast(
            "fx.Node", found.proxy.node if isinstance(value, torch.Tensor) else found.force().node
        )

    def calls(self) -> list[fx.Node]:
        """Return the recorded calls in order."""
        return [node for node in self.graph.nodes if node.op == "call_function"]
