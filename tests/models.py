"""Small modules and hand-built programs that several tests share.

Each module is the smallest that shows one thing.  It asserts nothing.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws.purity import changes_by, tensor_facts
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases

ADD = op_of(torch.ops.aten.add.Tensor)
ADD_ = op_of(torch.ops.aten.add_.Tensor)
MUL = op_of(torch.ops.aten.mul.Tensor)
NEG = op_of(torch.ops.aten.neg.default)
PRINT = op_of(torch.ops.aten._print.default)
COPY_ = op_of(torch.ops.aten.copy_.default)


def parent(**children: Any) -> Any:
    """Return a base class of modules that hold these: modules, parameters, and tensors as buffers, each made by a call."""

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, child in children.items():
                made = child()
                if isinstance(made, nn.Module | nn.Parameter):
                    setattr(self, name, made)
                else:
                    self.register_buffer(name, made)

    return Parent


def module_class(name: str, forward: Callable[..., Any], *bases: Any, **children: Any) -> Any:
    """Return a class of modules that hold these and whose forward is one expression, a lambda."""
    return type(
        name, bases or (parent(**children),), {"forward": forward, "__module__": forward.__module__}
    )


class Counter(parent(linear=lambda: nn.Linear(4, 4), count=lambda: torch.zeros(()))):
    """Counts its calls in a buffer that it adds to its result."""

    def forward(self, x: torch.Tensor, *, flag: bool = True) -> torch.Tensor:
        self.count.add_(1)
        y = self.linear(x) * self.count
        return y.relu() if flag else y


class Shared(nn.Module):
    """Calls one module twice with different flags, holds another under two names, and ties a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Counter()
        self.items = nn.ModuleList([Counter(), nn.BatchNorm1d(4)])
        self.tied = self.a.linear
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.a(self.a(x), flag=False)
        x = self.items[1](self.items[0](x))
        return self.tied(x), self.a.count * 2


class Block(parent(up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 4))):
    """A residual block of two linear layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Tower(nn.Module):
    """A stack of equal blocks."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Aliased(nn.Module):
    """Ties a weight, and writes a buffer through another that shares its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.other.weight = self.linear.weight
        memory = torch.zeros(4)
        self.register_buffer("whole", memory)
        self.register_buffer("part", memory[1:3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.part.add_(1)
        return self.other(self.linear(x)) + self.whole.sum()


class Branches(
    parent(
        stages=lambda: nn.ModuleList([nn.ModuleList([Block() for _ in range(3)]) for _ in range(2)])
    )
):
    """Two stages of three parallel blocks: many orders of its operators are legal."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            a, b, c = (block(x) for block in stage.children())
            x = a * b + c
        return x


def exported(
    module: nn.Module, *args: Any, decomposed: bool = False, **options: Any
) -> torch.export.ExportedProgram:
    """Export a deep copy of a module, so that no test shares buffers with what it compares to."""
    ep = torch.export.export(copy.deepcopy(module), args, **options)
    return decompose(ep) if decomposed else ep


def decompose(
    ep: torch.export.ExportedProgram, *, core: bool = False
) -> torch.export.ExportedProgram:
    """Return an exported program whose writes are outputs; ``core`` decomposes its operators to core aten too."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*LeafSpec", category=FutureWarning
        )  # torch copies its own specs
        return ep.run_decompositions(None if core else {})


def imported(module: nn.Module, *args: Any, **options: Any) -> px.Program:
    """Export a copy of a module and import it."""
    return px.import_ep(exported(module, *args, **options))


def node(name: str, op: px.Op, *args: object, stack: tuple[px.Frame, ...] = ()) -> px.Node:
    """Return a node whose string arguments are references."""
    return px.Node(
        name, op, tuple(px.Ref(arg) if isinstance(arg, str) else arg for arg in args), (), stack
    )


def flat(nodes: list[px.Node], output: Any, *inputs: str, **fields: Any) -> px.Program:
    """Return a flat program of float inputs of two elements each."""
    specs = tuple(px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), name) for name in inputs)
    results = output if isinstance(output, tuple) else (output,)
    graph = px.Graph(tuple(px.Input(name) for name in inputs), tuple(nodes), results)
    signature = px.ir.Signature(specs, tuple(px.ir.UserOutput() for _ in results))
    return px.Program.of(
        {"": graph}, **{"signature": signature, "facts": frozenset({"flat"}), **fields}
    )


def calls(program: px.Program, graph: str = "") -> list[str]:
    """Return the calls that a graph makes, in order, by instance."""
    return [
        str(node.do.instance)
        for node in program.graphs[graph].nodes
        if isinstance(node.do, px.Call)
    ]


def names(program: px.Program) -> list[str]:
    """Return the names of the operators of a program, in order."""
    return [node.do.name for _, node in program.nodes() if isinstance(node.do, px.Op)]


def drawn(stage: Stage, examples: int) -> tuple[tuple[px.Program, int], ...]:
    """Return generated programs of integer operators with seeds for their variants, the same in each call."""
    return tuple((case.program, case.seed) for case in drawn_cases("toy", stage, examples))


def changes_in_export(ep: torch.export.ExportedProgram, action: Callable[[], object]) -> list[str]:
    """Return the facts that an action changed in an exported program."""

    def facts() -> dict[str, object]:
        modules = [
            module
            for module in ep.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
        ]
        nodes = [node for module in modules for node in module.graph.nodes]
        return {
            "graph": (str(ep.graph), ep.graph_module.code),
            "signature": (
                str(ep.graph_signature),
                str(ep.module_call_graph),
                str(ep.range_constraints),
            ),
            "meta": [(node.name, tuple(node.meta)) for node in nodes],
            "module stacks": [str(node.meta.get("nn_module_stack")) for node in nodes],
            "state keys": [*ep.state_dict, *ep.constants],
            **tensor_facts({**ep.state_dict, **ep.constants}),
        }

    return changes_by(facts, {**ep.state_dict, **ep.constants}, action)
