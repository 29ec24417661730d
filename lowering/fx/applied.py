"""``FxPass``: somebody's graph pass, called in the one way that fits it, and what it gave as one graph module.

Passes of torch and others take a graph module, its graph, or an exported program; some edit what they get, some return a
module, some a ``PassResult``.  Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, Literal, get_args

import torch
import torch.fx
from attrs import frozen

from ...ir.errors import FxPassError
from ...ir.torch_private import times_written

__all__ = ["FxPass", "Over", "name_of_pass", "same_graph", "seen_of"]

Over = Literal["graph_module", "graph", "exported_program"]
"""What a pass takes."""


@frozen
class FxPass:
    """A pass, and how it is called.

    >>> def nothing(module: torch.fx.GraphModule) -> None: pass
    >>> module = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> FxPass.of(nothing).on_module(module) is module
    True
    """

    run: Callable[..., Any]
    name: str
    over: Over
    takes_fuel: bool

    @classmethod
    def of(cls, run: Any, over: Over = "graph_module") -> FxPass:
        """Return the pass that a callable is.

        Args:
            run: a function, a ``PassBase``, a ``PassManager``, or an object with ``apply`` over a graph.
            over: what it takes.

        Raises:
            FxPassError: it cannot be called, or is the class and no pass.
            ValueError: ``over`` is none of the three.
        """
        if over not in get_args(Over):
            raise ValueError(f"over={over!r}: a pass takes one of {', '.join(map(repr, get_args(Over)))}")
        if isinstance(run, cls):
            return run
        if isinstance(run, type):
            raise FxPassError(f"{run.__name__} is a class; give an instance, {run.__name__}(), or one of its methods")
        called = run if callable(run) else getattr(run, "apply", None)
        if not callable(called):
            raise FxPassError(f"a pass is a function of a {over}, a PassBase or a PassManager, not a {type(run).__name__}")
        return cls(called, name_of_pass(run), over, _takes_fuel(called))

    def on_module(self, module: torch.fx.GraphModule, **options: Any) -> torch.fx.GraphModule:
        """Return what the pass makes of a graph module, which it may change.

        Raises:
            FxPassError: it gave something else.
        """
        given = self.run(module.graph if self.over == "graph" else module, **options)
        return self._module(given, module)

    def on_export(self, ep: Any, **options: Any) -> Any:
        """Return what the pass makes of an exported program, which it may change.

        Raises:
            FxPassError: it gave something else.
        """
        given = self.run(ep, **options)
        if given is not None and not isinstance(given, torch.export.ExportedProgram):
            raise FxPassError(f"the pass {self.name} gave a {type(given).__name__}; it takes and returns an ExportedProgram")
        return ep if given is None else given

    def _module(self, given: Any, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        given = getattr(given, "graph_module", given) if not isinstance(given, torch.nn.Module) else given
        if given is None or isinstance(given, bool | int) or (self.over == "graph" and given is module.graph):
            if self.over == "graph":
                module.recompile()
            return module  # edited in place; some say whether, or how often
        if isinstance(given, torch.fx.Graph):
            return torch.fx.GraphModule(module, given)
        if not isinstance(given, torch.fx.GraphModule):
            raise FxPassError(
                f"the pass {self.name} gave a {type(given).__name__}; a pass returns a GraphModule, a PassResult, a Graph, or "
                "None where it edits what it is given"
            )
        return given


def name_of_pass(run: Any) -> str:
    """Return what messages call a pass.

    >>> name_of_pass(len), name_of_pass(torch.nn.ReLU())
    ('len', 'ReLU')
    """
    name = getattr(run, "__qualname__", None) or getattr(run, "__name__", None)
    return str(name).rpartition("<locals>.")[2] if name else type(run).__name__


def _takes_fuel(run: Callable[..., Any]) -> bool:
    try:
        found = signature(run).parameters.get("fuel")
    except (TypeError, ValueError):  # a builtin
        return False
    return found is not None and found.kind is not Parameter.POSITIONAL_ONLY


def seen_of(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Return what can be seen of a graph module without running it, to compare it with later: graphs, meta, tensors.

    Values of meta and tensors count by identity, a tensor also by how often it was written.

    >>> module = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> before = seen_of(module)
    >>> module.graph.output_node().meta["note"] = 1
    >>> same_graph(before, seen_of(module)), same_graph(before, before)
    (False, True)
    """
    graphs = [
        (path, [_seen_node(node) for node in inner.graph.nodes])
        for path, inner in module.named_modules(remove_duplicate=False)
        if isinstance(inner, torch.fx.GraphModule)
    ]
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return graphs, [(name, _Same(tensor), times_written(tensor)) for name, tensor in tensors]


def same_graph(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two looks at a graph module saw the same."""
    return one == other


def _seen_node(node: torch.fx.Node) -> tuple[Any, ...]:
    target = node.target if isinstance(node.target, str) else _Same(node.target)
    meta = {key: _Same(value) for key, value in node.meta.items()}
    return node.op, node.name, target, repr((node.args, node.kwargs)), meta


@frozen(eq=False)
class _Same:
    value: Any

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and self.value is other.value

    __hash__ = None  # pyright: ignore[reportAssignmentType]
