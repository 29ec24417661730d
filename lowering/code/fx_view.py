"""Build the ``fx.Graph``s of lowered bodies on demand, with the meta of the original nodes.

Modules run without them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import count
from typing import Any

import torch.fx

from ...ir.arguments import TREES, Arg, Body, Ref, thawed
from ...ir.callables import Method, Parameter, plain_parameters
from ...ir.calls.argument_tree import ArgumentTree
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ...ir.meta import Meta, spelled_stack, thaw
from ...ir.names import join, way_to
from ...ir.own_operators import is_boundary, is_module_call, read_modules
from ...ir.torch_private import PyTreeCodeGen, PyTreeInfo, pytree
from ..modules.context import before_merging
from .source import argument_names, attribute_name, check_fx_names, from_root


def with_original_meta(graph: Graph, was: Graph | None) -> Graph:
    """Return a graph with the meta of an equal graph; the graph itself if they are not equal.

    Args:
        graph: the graph that runs.
        was: the body of the module before bodies were merged; None if unknown.

    >>> from purefx.ir import Ref
    >>> neg = Op("toy.neg")
    >>> graph, was = (Graph((), (Node("b", neg, (1,), meta={"val": value}),), Ref("b")) for value in (1, 2))
    >>> dict(with_original_meta(graph, was).nodes[0].meta)
    {'val': 2}
    """
    if (
        was is None
        or was is graph
        or len(graph.inputs) != len(was.inputs)
        or len(graph.nodes) != len(was.nodes)
    ):
        return graph
    pairs = list(zip(graph.nodes, was.nodes, strict=True))
    if any(
        _operation(mine) != _operation(theirs) for mine, theirs in pairs
    ):  # changed after the merge
        return graph
    inputs = tuple(
        [
            Input(mine.name, theirs.meta)
            for mine, theirs in zip(graph.inputs, was.inputs, strict=True)
        ]
    )
    return Graph(
        inputs, tuple([mine.evolve(meta=theirs.meta) for mine, theirs in pairs]), graph.output
    )


def _operation(node: Node) -> object:
    do = node.do
    return do.instance.path if type(do) is Call else do.name if type(do) is Op else do


def build_fx_graph(place: Any, owner: torch.nn.Module, reserved: Container[str]) -> torch.fx.Graph:
    """Return the fx graph of a body in a module.

    Args:
        place: the ``Place`` of the module: its body and path.
        owner: the module; gets the modules of nested graphs and the pytree specs as attributes.
        reserved: attribute names that modules use themselves.

    Returns:
        A linted graph with meta; the graph of a root accepts and returns pytrees.
    """
    builder = _Builder(place, owner, reserved)
    builder.inputs()
    for node in builder.graph.nodes:
        if not is_boundary(node) and node.name not in builder.modules:
            made = builder.known[node.name] = builder.node(node)
            builder.describe(made, node.meta)
            made.meta.setdefault("nn_module_stack", builder.module_stack(node.stack))
    builder.output()
    signature = builder.signature
    if builder.is_root and signature.in_spec is not None and builder.parameters is None:
        tree = ArgumentTree.of(signature.in_spec)
        names = argument_names(signature.arg_names, len(tree.specs), list(tree.keyword))
        builder.made.set_codegen(
            PyTreeCodeGen(PyTreeInfo(names, signature.in_spec, signature.out_spec))
        )
    return check_fx_names(builder.made, starred=builder.parameters is not None)


class _Builder:
    def __init__(self, place: Any, owner: torch.nn.Module, reserved: Container[str]) -> None:
        body = place.body
        self.place, self.owner, self.reserved = place, owner, reserved
        self.graph = with_original_meta(
            body.graph, before_merging(place.context).get(Frame(place.path, place.call))
        )
        self.signature = place.context.program.signature
        self.is_root = body.name == place.context.program.root
        self.made = torch.fx.Graph()
        self.known: dict[str, torch.fx.Node] = {}
        """The node of each value."""
        self.parameters = plain_parameters(self.signature) if self.is_root else None
        """The parameters of a root with a plain Python signature, with defaults and rest parameters."""
        self._stacks: dict[Stack, dict[str, tuple[str, str]]] = {}
        self._bodies: dict[str, torch.fx.Node] = {}
        read = read_modules(self.graph.nodes)
        self.modules = frozenset(read)
        """Reads of modules in the state; in fx the call names the module."""
        calls = [node for node in self.graph.nodes if is_module_call(node)]
        self._module_calls = {node.name: from_root(read[node.args[0].name]) for node in calls}

    def _attach(self, names: Iterable[str], value: Any) -> torch.fx.Node:
        # Under the first name that the owner does not use for another value.
        attributes = self.owner.__dict__
        name = next(
            name
            for name in names
            if name not in self.reserved and attributes.get(name, value) == value
        )
        attributes[name] = value
        return self.made.get_attr(name)

    def describe(self, made: torch.fx.Node, meta: Meta) -> None:
        made.meta.update({key: thaw(value) for key, value in meta.items()})

    def inputs(self) -> None:
        formals = self.graph.inputs
        for formal, parameter in zip(
            formals, self.parameters or [Parameter("")] * len(formals), strict=True
        ):
            stars = "" if parameter.rest is None else "**" if parameter.rest.keywords else "*"
            name = (
                formal.name if self.parameters else None
            )  # torch spells other names so that code can have them
            made = self.made.create_node(
                "placeholder", stars + formal.name, parameter.default, name=name
            )
            self.known[formal.name] = made
            self.describe(made, formal.meta)

    def output(self) -> None:
        output, convention = self.arg(self.graph.output), self.place.body.convention
        if self.parameters is not None:
            self.made.output(pytree.tree_unflatten(list(output), self.signature.out_spec))
        elif convention is None:
            self.made.output(output)
        else:  # the module packs and unpacks pytrees around this graph
            self.made.output((output, self.arg(convention.gives)))

    def node(self, node: Node) -> torch.fx.Node:
        do = node.do
        create, kwargs = self.made.create_node, {key: self.arg(value) for key, value in node.kwargs}
        match do:
            case Get(slot=slot):
                return create("get_attr", from_root(slot), name=node.name)
            case _ if node.name in self._module_calls:
                return create(
                    "call_module",
                    self._module_calls[node.name],
                    self.arg(node.args[1:]),
                    kwargs,
                    name=node.name,
                )
            case Call() if node.name in self.place.body.sites:
                site = self.place.body.sites[node.name]
                args = (
                    self.made.get_attr(attribute_name(site.callee)),
                    self.arg(site.leaves),
                    self.arg(site.extra),
                )
                return create("call_function", site, args, name=node.name)
            case Call(instance=instance):
                return create(
                    "call_module", attribute_name(instance), self.arg(node.args), name=node.name
                )
            case _:
                assert do.target is not None, (
                    "an operator without a callable is refused when bodies are compiled"
                )
                args = self.arg(node.args)
                if isinstance(do.target, Method):
                    return create("call_method", do.target.name, args, kwargs, name=node.name)
                return create("call_function", do.target, args, kwargs, name=node.name)

    def arg(self, arg: Arg) -> Any:
        return thawed(arg, self._leaf)

    def _leaf(self, arg: Arg) -> Any:
        kind = type(arg)
        if kind is Ref:
            return self.known[arg.name]
        if kind is Body:
            if arg.graph not in self._bodies:
                stem = re.sub(r"\W", "_", arg.graph).strip("_") or "body"
                names = (stem + "_" * number for number in count())
                self._bodies[arg.graph] = self._attach(names, self.place.context.nested[arg.graph])
            return self._bodies[arg.graph]
        return (
            self._attach((f"_spec_{number}" for number in count()), arg)
            if isinstance(arg, TREES)
            else arg
        )

    def module_stack(self, stack: Stack) -> dict[str, tuple[str, str]]:
        """Return the ``nn_module_stack`` of a node."""
        found = self._stacks.get(stack)
        if found is None:
            place, types = self.place, self.place.context.program.types
            around = [
                (path, place.call if path == place.path else 0)
                for path in way_to(place.path)
                if path in types
            ]
            inside = [(join(place.path, frame.path), frame.call) for frame in stack]
            found = self._stacks[stack] = spelled_stack([*around, *inside], types)
        return dict(found)
