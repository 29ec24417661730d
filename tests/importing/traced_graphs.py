"""Graph modules drawn at random: every kind of node that fx has, writes, views, draws, shared and nested modules."""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import nn
from torch.utils import _pytree as pytree

from tests.unflatten.harness import differences

SHAPE = (4, 4)

UNARY = (
    torch.relu,
    torch.sin,
    torch.neg,
    operator.neg,
    torch.rand_like,
    F.relu,
    F.dropout,
    F.hardtanh,
    torch.t,
    F.gelu,
)
BINARY = (torch.add, operator.mul, operator.sub, torch.maximum, torch.matmul, operator.matmul)
METHODS = ("neg", "sin", "relu", "t", "clone", "detach", "float", "contiguous")
WRITING = ("relu_", "sin_", "zero_", "neg_")


@st.composite
def graph_modules(draw: st.DrawFn, *, depth: int = 2) -> torch.fx.GraphModule:
    """Draw a graph module that takes two tensors, the second with or without a default."""
    root = nn.Module()
    root.register_parameter("w", nn.Parameter(torch.linspace(-1, 1, 16).reshape(SHAPE)))
    root.register_buffer("b", torch.linspace(-2, 1, 16).reshape(SHAPE))
    root.register_buffer("n", torch.ones(SHAPE), persistent=draw(st.booleans()))
    root.c = torch.full(SHAPE, 0.5)
    root.lin = nn.Linear(4, 4)
    root.bn = nn.BatchNorm1d(4)
    root.also = root.lin
    if draw(st.booleans()):
        root.register_parameter("tied", root.w)
    if depth > 1:
        root.sub = draw(graph_modules(depth=depth - 1))
    drawer = _Drawer(draw, root)
    for _ in range(draw(st.integers(2, 10))):
        drawer.node()
    drawer.output(nested=depth == 1)
    return torch.fx.GraphModule(root, drawer.graph)


class _Drawer:
    def __init__(self, draw: st.DrawFn, root: nn.Module) -> None:
        self.draw = draw
        self.graph = torch.fx.Graph()
        self.values = [self.graph.placeholder("x"), self.graph.placeholder("y")]
        if draw(st.booleans()):
            scale = self.graph.create_node("placeholder", "scale", (2.0,), name="scale")
            self.values.append(self.graph.call_function(torch.mul, (self.values[0], scale)))
        self.kinds = ["module", "writing"] * 2 + [
            "unary",
            "binary",
            "method",
            "attribute",
            "chunks",
            "item",
            "method_2",
        ]
        self.root = root

    def value(self) -> Any:
        return self.draw(st.sampled_from(self.values))

    def node(self) -> None:
        """Add a node, or a few."""
        graph, draw = self.graph, self.draw
        match draw(st.sampled_from(self.kinds)):
            case "unary":
                made = graph.call_function(draw(st.sampled_from(UNARY)), (self.value(),))
            case "binary":
                made = graph.call_function(
                    draw(st.sampled_from(BINARY)), (self.value(), self.value())
                )
            case "method":
                made = graph.call_method(draw(st.sampled_from(METHODS)), (self.value(),))
            case "method_2":
                made = graph.call_method(
                    "add", (self.value(),), {"other": self.value(), "alpha": 2}
                )
            case "writing":
                made = self.writing()
            case "attribute":
                made = graph.get_attr(
                    draw(st.sampled_from(["w", "b", "n", "c", "lin.weight", "bn.running_mean"]))
                )
                made = (
                    graph.call_function(torch.add, (self.value(), made))
                    if draw(st.booleans())
                    else made
                )
                made = graph.call_method("expand", (made, 4, 4))
            case "chunks":
                whole = graph.call_function(
                    torch.chunk, (self.value(), 2), {"dim": draw(st.sampled_from([0, 1]))}
                )
                parts = [
                    graph.call_function(operator.getitem, (whole, number)) for number in (0, 1)
                ]
                made = graph.call_function(torch.cat, (parts,), {"dim": 0})
                made = graph.call_method("reshape", (made, 4, 4))
            case "item":
                made = graph.call_function(
                    operator.getitem, (self.value(), (slice(None), [3, 2, 1, 0]))
                )
            case _:
                made = self.module()
        self.values.append(made)

    def writing(self) -> Any:
        graph, draw = self.graph, self.draw
        target = self.value()
        match draw(st.integers(0, 3)):
            case 0:
                return graph.call_method(draw(st.sampled_from(WRITING)), (target,))
            case 1:
                graph.call_function(operator.setitem, (target, 0, 0.25))
                return target
            case 2:
                return graph.call_method("mul_", (graph.get_attr("b"), target))
            case _:
                return graph.call_function(F.relu, (target,), {"inplace": True})

    def module(self) -> Any:
        graph, draw = self.graph, self.draw
        names = ["lin", "bn", "also"] + ["sub"] * 2 * hasattr(self.root, "sub")
        name = draw(st.sampled_from(names))
        if name != "sub":
            return graph.call_module(name, (self.value(),))
        whole = graph.call_module("sub", (self.value(),), {"y": self.value()})
        return graph.call_function(operator.getitem, (whole, draw(st.sampled_from([0, 1]))))

    def output(self, *, nested: bool) -> None:
        """End the graph: a body gives a tuple of two, a root anything."""
        first, second = self.value(), self.value()
        if nested:
            self.graph.output((first, second))
            return
        trees = [
            first,
            (first, second),
            {"a": first, "b": [second, None]},
            [first, {"n": 1, "s": "text"}],
            (first, (), first),
        ]
        self.graph.output(self.draw(st.sampled_from(trees)))


def run(module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Return what a module gives for copies of arguments, what it did to them, and the gradients of its parameters."""
    torch.manual_seed(7)
    given = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    module.zero_grad()
    try:
        result = module(*given)
    except (RuntimeError, NotImplementedError) as error:
        return type(error), None, None
    leaves = [
        leaf
        for leaf in pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    seen = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, result
    )
    try:
        sum([leaf.sum() for leaf in leaves], start=torch.zeros((), requires_grad=True)).backward()
    except RuntimeError as error:
        return seen, given, type(error)
    return (
        seen,
        given,
        {
            name: value.grad
            for name, value in sorted(module.named_parameters(remove_duplicate=False))
        },
    )


def outcome(module: nn.Module, args: tuple[Any, ...], calls: int = 2) -> list[Any]:
    """Return what a copy of a module does in several calls, and its state after them."""
    copied = copy.deepcopy(module)
    return [*[run(copied, args) for _ in range(calls)], dict(sorted(copied.state_dict().items()))]


def compare(given: Any, expected: Any) -> None:
    """Assert that two outcomes are equal bit for bit, structure included."""
    assert not list(differences(expected, given))
