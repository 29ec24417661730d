"""The module calls around a traced operator, noted while a module runs under a tracer that preserves meta.

What calls a module keeps ``nn_module_stack`` of the tracer's current meta, which it copies to the nodes that it makes.  Nothing
of the module is changed, and nothing is noted of modules that run in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.traceback

from ..taking import MODULE
from ..torch_private import backward_numbered, calls_wrapped, hooks_of
from .backward import traced_backward
from .reading import class_name


@contextmanager
def module_calls(module: torch.nn.Module) -> Generator[None]:
    """Let ``make_fx`` note, while this is open, in which call of which module each operator is, those of the backward included.

    ``import_fx`` reads it, and ``outline`` makes a forward and a backward body for each module of it.

    Args:
        module: what the traced function calls, also through ``torch.func.functional_call``; it is not changed.

    Raises:
        ArgumentError: it is not a module.

    >>> import torch, purefx as px
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh())
    >>> def gradient(x):
    ...     return torch.autograd.grad(model(x).sum(), x)[0]
    >>> with px.training.module_calls(model):
    ...     traced = make_fx(gradient)(torch.ones(1, 2, requires_grad=True))
    >>> [str(node.stack[0]) for node in px.import_fx(traced).main.nodes if "tanh" in str(node.do)]
    ['1', '1@1']
    """
    MODULE.taken(module, "module_calls")
    with torch.fx.traceback.preserve_node_meta(), noted_calls(module), backward_numbered():
        yield


@contextmanager
def noted_calls(root: torch.nn.Module) -> Generator[None]:
    """Note the module calls around each node that is traced while this is open.

    Args:
        root: the module that is traced; calls of it begin anew, calls of modules that it does not hold are not noted.

    >>> with noted_calls(torch.nn.ReLU()):
    ...     y = torch.nn.ReLU()(torch.ones(2))
    """
    with calls_wrapped(_Noted(root).around):
        yield


class _Again(torch.fx.Interpreter):
    """Runs a graph that a tracer made while another one traces it: the nodes stay in the calls that they are in."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.stacks = traced_backward(module.graph).stacks

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node, with what is known of it as the meta of what is traced."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        with torch.fx.traceback.set_current_meta(n):
            if n in self.stacks:
                torch.fx.traceback.get_current_meta()["nn_module_stack"] = dict(self.stacks[n])
            return getattr(self, n.op)(n.target, args, kwargs)


def _plain_graph(module: torch.nn.Module) -> torch.fx.GraphModule | None:
    # The module as a graph that shows all that a call of it does, while a tracer preserves meta.
    if not isinstance(module, torch.fx.GraphModule) or type(module).__bases__ != (torch.fx.GraphModule,):
        return None
    shown = not hooks_of(module) and "forward" not in vars(module)
    return module if shown and torch.fx.traceback.has_preserved_node_meta() else None


def _spelled(path: str) -> str:
    # As Dynamo does, because names need not be identifiers.
    parts = path.split(".") if path else []
    return "L['self']" + "".join([f".{part}" if part.isidentifier() else f"[{part!r}]" for part in parts])


class _Noted:
    """The calls of modules that are running."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.thread = threading.get_ident()
        self.paths = {id(module): path for path, module in reversed(list(root.named_modules(remove_duplicate=False)))}
        """The first path of each module."""
        self.counts: dict[str, int] = {}
        self.outside: dict[str, tuple[Any, ...]] = {}
        """The calls around the first call of each module."""
        self.running: list[tuple[Any, ...]] = []
        """Of each call that is running all calls around what it runs, as entries of a module stack."""

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a module as another one does, and notes it.

        Args:
            call: what calls a module.
        """

        def noted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():  # the body of an operator, of which the tracer learns nothing
                return call(module, *args, **kwargs)
            here = threading.get_ident() == self.thread
            path = self.paths.get(id(module)) if here else None
            if path is None:
                graph = _plain_graph(module) if here and not kwargs else None
                return call(module, *args, **kwargs) if graph is None else _Again(graph).run(*args)
            self.running.append(self.calls(path, module))
            self.tell()
            try:
                return call(module, *args, **kwargs)
            finally:
                self.running.pop()
                self.tell()

        return noted

    def calls(self, path: str, module: torch.nn.Module) -> tuple[Any, ...]:
        """Return the calls around what a module runs that is called now."""
        if module is self.root and not self.running:
            self.counts.clear()  # torch runs the module once before it traces it
        # What autograd calls was called before, in the same modules: it is computed again for the backward.
        outside = self.running[-1] if self.running else self.outside.get(path, ())
        self.outside.setdefault(path, outside)
        number = self.counts[path] = self.counts.get(path, -1) + 1
        return (*outside, (f"{path}@{number}", (_spelled(path), class_name(type(module)))))

    def tell(self) -> None:
        """Write the calls into the meta of what is traced next."""
        meta = torch.fx.traceback.get_current_meta()
        if self.running:
            meta["nn_module_stack"] = dict(self.running[-1])
        else:
            meta.pop("nn_module_stack", None)
