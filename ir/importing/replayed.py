"""Graphs that Dynamo replays bytecode around (``dynamo_graph_capture_for_export``): the bytecode becomes nodes.

The bytecode is a function of the module, the arguments and the graph, so it is traced once on proxies like any other function.
Its operations on arguments and results become nodes; what it reads from the module becomes state.  It never receives the module
itself, so it cannot write to it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from attrs import define, field
from torch.fx.node import map_arg
from torch.fx.proxy import Attribute, GraphAppendingTracer, Proxy

from ..errors import UnsupportedProgram
from ..graph import Get
from ..names import join
from ..program import Program
from ..rewriter import with_reads
from ..torch_private import Replay, blank_module, pytree, replay_of, replayed_attributes
from ..verify.findings import PLAIN, short

ADVICE = (
    "capture the module with torch.export (px.capture does both), or call graph.set_codegen(torch.fx.graph.CodeGen()) if the "
    "graph is all that is meant: first keep inputs = graph_module._dynamo_bytecode_flatten(*args), what the graph takes, and "
    "afterwards restore_names(program, module, inputs=inputs) makes state of those that are tensors of the module"
)


def unrolled(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, Any]:
    """Return a view of a module whose graph does what the bytecode around its own does, and the pytree of its result.

    A module without bytecode is itself, and its result has no pytree but its own.

    Args:
        module: any graph module.  It is not changed; the view shares its parameters, buffers and children.

    Raises:
        UnsupportedProgram: the bytecode does what no graph can say; nothing of what it did is left anywhere.

    >>> traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> unrolled(traced) == (traced, None)
    True
    """
    replay = replay_of(module)
    if replay is None:
        return module, None
    unrolling = _Unrolling(module, replay)
    try:
        out_spec = unrolling.run()
    except UnsupportedProgram:
        raise
    except Exception as error:
        said = f"the bytecode that Dynamo replays around this graph cannot become nodes: {type(error).__name__}: {error}"
        raise UnsupportedProgram(f"{said}; {ADVICE}") from error
    return blank_module(torch.fx.GraphModule, **replayed_attributes(module, unrolling.graph)), out_spec


class _Tracer(GraphAppendingTracer):
    """Remembers every proxy that it makes: the bytecode must leave them as they are."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        super().__init__(graph)
        self.made: list[Proxy] = []

    def proxy(self, node: torch.fx.Node) -> Proxy:
        """Return what stands for the result of a node."""
        self.made.append(_Value(node, self))
        return self.made[-1]

    def create_arg(self, a: Any) -> Any:
        """Return an argument of a node; tensors that the bytecode finds in globals and closures stay, and become state."""
        return a if isinstance(a, torch.Tensor) else super().create_arg(a)

    def check(self) -> None:
        """Raise if something was set on a proxy: it would have been set on what the caller passes."""
        for proxy in self.made:
            strange = vars(proxy).keys() - {"node", "tracer", "root", "attr", "_node"}
            if strange:
                said = f"the bytecode around this graph sets {min(strange)!r} on an argument, or on what it found in one"
                raise UnsupportedProgram(f"{said}; {ADVICE}")


def _attribute(proxy: Any, name: str) -> Proxy:
    if name.startswith("__"):
        raise AttributeError(f"{name} of an argument is asked for")  # torch and Python ask whether an object has a protocol
    found = _Attribute(proxy, name)
    proxy.tracer.made.append(found)
    return found


class _Value(Proxy):
    __getattr__: Any = _attribute


class _Attribute(Attribute):
    __getattr__: Any = _attribute


class _Held:
    """Stands for a module, or for a container or an object in one: it can be read, and not written.

    Tensors that have a path are reads of state; the others are what they are.
    """

    __slots__ = ("purefx_path", "purefx_read", "purefx_value")

    def __init__(self, value: Any, path: str | None, read: Any) -> None:
        object.__setattr__(self, "purefx_value", value)
        object.__setattr__(self, "purefx_path", path)
        object.__setattr__(self, "purefx_read", read)

    def __getattr__(self, name: str) -> Any:
        value, path = self.purefx_value, self.purefx_path
        found = getattr(value, name)
        if name in ("_modules", "_parameters", "_buffers") and isinstance(value, torch.nn.Module):
            return _Held(found, path, self.purefx_read)
        return self._below(found, name if isinstance(value, torch.nn.Module) else None)

    def __getitem__(self, key: Any) -> Any:
        return self._below(self.purefx_value[key], key if type(key) is str else None)

    def __setattr__(self, name: str, value: Any) -> None:
        said = f"the bytecode around this graph sets {name!r} of a {type(self.purefx_value).__name__}"
        raise UnsupportedProgram(f"{said}; {ADVICE}")

    def _below(self, found: Any, name: str | None) -> Any:
        path, read = self.purefx_path, self.purefx_read
        below = None if path is None or name is None else join(path, name)
        if isinstance(found, torch.Tensor):
            return found if below is None else read(below)
        if isinstance(found, torch.nn.Module):
            return _Held(found, below, read)
        # What stands in a container has no path of an attribute.
        return found if type(found) in PLAIN or callable(found) else _Held(found, None, read)


@define
class _Unrolling:
    """One run of the bytecode on proxies."""

    module: torch.fx.GraphModule
    replay: Replay
    graph: torch.fx.Graph = field(factory=torch.fx.Graph)
    tracer: _Tracer = field(init=False)
    reads: dict[str, Proxy] = field(factory=dict)
    runs: int = 0
    """How often the bytecode ran the graph."""

    def __attrs_post_init__(self) -> None:
        self.tracer = _Tracer(self.graph)

    def run(self) -> Any:
        """Fill the graph, and return the pytree of the result."""
        replay = self.replay
        # A parameter "self" would be the module's own.
        taken = [self.tracer.proxy(self.graph.placeholder(f"{name}_" if name == "self" else name)) for name in replay.names]
        positional, rest = taken[: replay.positional], taken[replay.positional :]
        root = replay.root
        held = () if root is None else (_Held(root, "" if root is self.module else None, self.read),)
        result = replay.around(self.stand_in)(*held, *positional, **dict(zip(replay.keywords, rest, strict=True)))
        if self.runs != 1:
            raise UnsupportedProgram(f"the bytecode around this graph runs it {self.runs} times, not once; {ADVICE}")
        self.tracer.check()
        leaves, out_spec = pytree.tree_flatten((result,) if replay.in_tuple else result, is_leaf=_is_size)
        _check_contexts(out_spec)
        self.graph.output(tuple([self.leaf(leaf) for leaf in leaves]))
        return out_spec

    def read(self, path: str) -> Proxy:
        """Return what stands for a tensor of the module, which is read once."""
        if path not in self.reads:
            self.reads[path] = self.tracer.proxy(self.graph.get_attr(path))
        return self.reads[path]

    def stand_in(self, *flat: Any) -> list[Any]:
        """Copy the nodes of the graph, as the bytecode calls it."""
        self.runs += 1
        copied: dict[torch.fx.Node, Any] = {}
        given = iter(flat)
        for fx_node in self.module.graph.nodes:
            if fx_node.op == "placeholder":
                copied[fx_node] = self.given(fx_node, next(given))
            elif fx_node.op == "output":
                found = map_arg(fx_node.args[0], copied.__getitem__)
                return [self.tracer.proxy(one) if isinstance(one, torch.fx.Node) else one for one in found]
            else:
                copied[fx_node] = self.graph.node_copy(fx_node, copied.__getitem__)
        raise UnsupportedProgram("the fx graph has no output node; let graph.output(...) be called once and be the last node")

    def given(self, placeholder: torch.fx.Node, value: Any) -> Any:
        """Return what the bytecode gives to an input of the graph: a node, or an object from a global or a closure."""
        if isinstance(value, Proxy):
            value.node.meta = {**placeholder.meta, **value.node.meta}
            return value.node
        if isinstance(value, torch.Tensor) or type(value) in PLAIN:
            return value
        said = f"the bytecode gives the input {placeholder.name} of the graph {short(value)}, which is not a value"
        raise UnsupportedProgram(f"{said}; {ADVICE}")

    def leaf(self, leaf: Any) -> Any:
        """Return a leaf of the result."""
        if isinstance(leaf, Proxy):
            return leaf.node
        if isinstance(leaf, torch.Tensor) or type(leaf) in PLAIN:
            return leaf
        if type(leaf) is torch.Size:
            return self.graph.call_function(torch.Size, (list(leaf),))
        if type(leaf) is _Held:
            said = f"the result holds the very {type(leaf.purefx_value).__qualname__} that the module holds; return a copy of it"
        else:
            said = (
                f"the result holds {short(leaf)}, and {type(leaf).__qualname__} is not a pytree, so no program can make what is "
                "inside it; register it (torch.utils._pytree.register_pytree_node), or return something else"
            )
        raise UnsupportedProgram(f"{said}; or {ADVICE}")


def _is_size(value: Any) -> bool:
    return type(value) is torch.Size  # the pytree library makes a plain tuple of it


def _check_contexts(spec: Any) -> None:
    # What a class of the user's notes beside its leaves is a constant of the pytree.
    todo = [spec]
    while todo:
        spec = todo.pop()
        todo += spec.children()
        if any(isinstance(one, Proxy | torch.Tensor | _Held) for one in pytree.tree_leaves(spec.context)):
            said = f"the pytree of {spec.type.__qualname__}, in the result, has a value of the program in its context"
            raise UnsupportedProgram(f"{said}, which is a constant of the pytree; make it a leaf")


def with_reads_in_place(program: Program) -> Program:
    """Return a program whose root reads state where it is used: once for each module call that owns it.

    Args:
        program: any program; what it reads does not change.
    """
    main = program.main
    reads = {node.name: (node.do.slot, node.meta) for node in main.nodes if isinstance(node.do, Get)}
    return program.with_main(with_reads(main, program.state, reads)[0])
