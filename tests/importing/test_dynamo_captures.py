"""Graphs that Dynamo captures for export, with and without its bytecode around them.

What is lowered is asked again and again beside a copy of the module, for results and for state.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.graph import CodeGen

import purefx as px
from tests.programs import parent

functional_export: Any = importlib.import_module("torch._dynamo.functional_export")
REPLAYED: Any = functional_export.dynamo_graph_capture_for_export
NESTED: Any = functional_export._dynamo_graph_capture_for_export


class Plain(parent(lin=lambda: nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).relu()


class Writes(nn.Module):
    """Keywords, nested arguments and results, a size, buffers that it writes, tied parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.head = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)
        self.head.weight = self.lin.weight
        self.register_buffer("count", torch.zeros(()))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor, more: dict[str, Any], *, scale: torch.Tensor) -> dict[str, Any]:
        self.count.add_(1)
        y = self.norm(self.lin(x)) * scale + more["a"] + more["b"][0]
        return {"y": self.head(y), "count": self.count * 1, "size": (x.size(0), y)}


X = torch.randn(4, 3)
CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "plain": (Plain, (X,), {}),
    "writes": (Writes, (X, {"a": torch.randn(3), "b": (torch.randn(1),)}), {"scale": torch.tensor(3.0)}),
}


def captured(name: str, capture: Any) -> tuple[nn.Module, nn.Module, Any]:
    """Return a model, a copy of it, and what Dynamo captures of the first."""
    torch.manual_seed(0)
    kind, args, kwargs = CASES[name]
    model = kind()
    importlib.import_module("torch._dynamo").reset()
    eager = copy.deepcopy(model)
    return model, eager, capture(model)(*args, **kwargs)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("name", CASES)
def test_a_capture_with_pytrees(name: str, to: Any) -> None:
    _, args, kwargs = CASES[name]
    model, eager, graph = captured(name, NESTED)
    program = px.restore_names(px.import_fx(graph), model)
    lowered = px.lower(px.transform(program), to=to)
    for _ in range(3):
        torch.testing.assert_close(lowered(*args, **kwargs), eager(*args, **kwargs))
    torch.testing.assert_close(dict(lowered.state_dict()), dict(eager.state_dict()))


def test_bytecode_around_a_graph_is_refused() -> None:
    graph = REPLAYED(Plain())(X)
    with pytest.raises(px.errors.UnsupportedProgram, match=r"first keep inputs = .*_dynamo_bytecode_flatten.*restore_names"):
        px.import_fx(graph)


def test_the_graph_without_its_bytecode() -> None:
    model, eager, graph = captured("plain", REPLAYED)
    inputs = graph._dynamo_bytecode_flatten(X)
    graph.graph.set_codegen(CodeGen())
    program = px.restore_names(px.import_fx(graph), model, inputs=inputs)
    assert torch.equal(px.lower(px.transform(program))(X)[0], eager(X))
