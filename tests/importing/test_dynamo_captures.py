"""Graphs that Dynamo captures for export, with and without its bytecode around them.

One idea: what is lowered is asked again and again beside a copy of the module, for results and for state.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

import purefx as px

functional_export = pytest.importorskip("torch._dynamo.functional_export")
REPLAYED: Any = getattr(functional_export, "dynamo_graph_capture_for_export", None)
NESTED: Any = getattr(functional_export, "_dynamo_graph_capture_for_export", None)
pytestmark = pytest.mark.skipif(REPLAYED is None or NESTED is None, reason="this torch has no such captures")


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)

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


@pytest.mark.parametrize("name", CASES)
def test_a_capture_that_replays_bytecode(name: str) -> None:
    _, args, kwargs = CASES[name]
    model, eager, graph = captured(name, REPLAYED)
    with pytest.raises(px.UnsupportedProgram, match=r"first keep inputs = .*_dynamo_bytecode_flatten.*restore_names"):
        px.import_fx(graph)
    inputs = graph._dynamo_bytecode_flatten(*args, *kwargs.values())
    graph.graph.set_codegen(CodeGen())
    program = px.restore_names(px.import_fx(graph), model, inputs=inputs)
    lowered = px.lower(px.transform(program))
    state = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    given = [value for value in inputs if id(value) not in state]
    assert len(program.main.inputs) == len(given)
    for _ in range(3):
        found, wanted = lowered(*given), pytree.tree_leaves(eager(*args, **kwargs))
        for tensor in (leaf for leaf in wanted if isinstance(leaf, torch.Tensor)):
            assert any(
                one.shape == tensor.shape and torch.allclose(one, tensor) for one in found if isinstance(one, torch.Tensor)
            )
    torch.testing.assert_close(dict(lowered.state_dict()), dict(eager.state_dict()))


def test_a_capture_of_any_size() -> None:
    importlib.import_module("torch._dynamo").reset()
    model, x = Plain(), torch.randn(4, 3)
    importlib.import_module("torch._dynamo").mark_dynamic(x, 0)
    graph = REPLAYED(model)(x)
    inputs = graph._dynamo_bytecode_flatten(x)
    graph.graph.set_codegen(CodeGen())
    lowered = px.lower(px.transform(px.restore_names(px.import_fx(graph), model, inputs=inputs)))
    given = [value for value in inputs if not isinstance(value, nn.Parameter)]
    for rows in (4, 7):
        y = torch.randn(rows, 3)
        sizes = [y if isinstance(value, torch.Tensor) else rows for value in given]
        torch.testing.assert_close(lowered(*sizes)[0], model(y))
