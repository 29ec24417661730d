"""``fx.Graph``s of lowered bodies, built when somebody looks at one.

One idea: the graph a user sees is made from the value, with all meta, for one module at a time; running the module
does not need it.  Editing it changes that module alone, after ``recompile()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx
from attrs import frozen

from ..ir.arguments import Arg, Body, Items, Record, Ref
from ..ir.graph import Graph
from ..ir.meta import Meta, thaw
from ..ir.node import Call, Get, Node, Stack
from ..ir.program import Program
from ..ir.torch_private import PyTreeCodeGen, PyTreeInfo
from .source import attribute_name

__all__ = ["build_fx_graph"]


@frozen
class View:
    """What a graph is built for: one body, in one module."""

    program: Program
    graph: Graph
    path: str
    call: int
    attach_body: Callable[[str], str]
    """Puts the module of a nested graph on the owner and returns the attribute's name."""
    is_root: bool


def build_fx_graph(view: View) -> torch.fx.Graph:
    """Return the fx graph of a body as it stands in a module.

    Args:
        view: the body and the module that it belongs to.

    Returns:
        A linted graph whose nodes carry meta; that of a root takes and gives pytrees.
    """
    builder = _Builder(view)
    for formal in view.graph.inputs:
        builder.add(formal.name, formal.meta, builder.made.placeholder(formal.name))
    for node in view.graph.nodes:
        builder.add(node.name, node.meta, builder.node(node))
        builder.known[node.name].meta.setdefault("nn_module_stack", builder.module_stack(node.stack))
    builder.made.output(builder.arg(view.graph.output))
    signature = view.program.signature
    if view.is_root and signature.in_spec is not None:
        names = list(signature.arg_names) or [f"arg_{index}" for index in range(_count(signature.in_spec))]
        builder.made.set_codegen(PyTreeCodeGen(PyTreeInfo(names, signature.in_spec, signature.out_spec)))
    return builder.made


def _count(in_spec: Any) -> int:
    args, kwargs = in_spec.children()
    return len(args.children()) + len(kwargs.children())


class _Builder:
    def __init__(self, view: View) -> None:
        self.view = view
        self.made = torch.fx.Graph()
        self.known: dict[str, torch.fx.Node] = {}
        self._types = {module.path: module.type_name for module in view.program.modules}
        self._stacks: dict[Stack, dict[str, tuple[str, str]]] = {}
        self._bodies: dict[str, torch.fx.Node] = {}

    def add(self, name: str, meta: Meta, fx_node: torch.fx.Node) -> None:
        fx_node.meta.update({key: thaw(value) for key, value in meta.items()})
        self.known[name] = fx_node

    def node(self, node: Node) -> torch.fx.Node:
        do = node.do
        create = self.made.create_node
        match do:
            case Get(slot=slot):
                return create("get_attr", slot, name=node.name)
            case Call(instance=instance):
                return create("call_module", attribute_name(instance), self.arg(node.args), name=node.name)
            case _:
                assert do.target is not None, "an operator without a callable is refused when bodies are compiled"
                args = self.arg(node.args)
                kwargs = {key: self.arg(value) for key, value in node.kwargs}
                return create("call_function", do.target, args, kwargs, name=node.name)

    def arg(self, arg: Arg) -> Any:
        kind = type(arg)
        if kind is Ref:
            return self.known[arg.name]
        if kind is Body:
            return self._body(arg.graph)
        if kind is Items:
            return [self.arg(part) for part in arg]
        if kind is tuple:
            return tuple([self.arg(part) for part in arg])
        if kind is Record:
            return {key: self.arg(value) for key, value in arg.items}
        if kind is slice:
            return slice(self.arg(arg.start), self.arg(arg.stop), self.arg(arg.step))
        return arg

    def _body(self, name: str) -> torch.fx.Node:
        if name not in self._bodies:
            self._bodies[name] = self.made.get_attr(self.view.attach_body(name))
        return self._bodies[name]

    def module_stack(self, stack: Stack) -> dict[str, tuple[str, str]]:
        """Return the exporter's spelling of the module calls around a node."""
        found = self._stacks.get(stack)
        if found is None:
            found = {"L__self__": ("", self._types.get("") or "")}
            for path, call in self._frames(stack):
                key = f"L__self__{path}@{call}" if call else f"L__self__{path}"
                found[key] = (path, self._types.get(path) or "")
            self._stacks[stack] = found
        return dict(found)

    def _frames(self, stack: Stack) -> list[tuple[str, int]]:
        view = self.view
        paths = [path for path in self._types if path and (view.path == path or view.path.startswith(path + "."))]
        frames = [(path, view.call if path == view.path else 0) for path in sorted(paths, key=len)]
        prefix = f"{view.path}." if view.path else ""
        return frames + [(prefix + frame.path, frame.call) for frame in stack]
