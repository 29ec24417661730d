"""An operator that runs a body gets a graph: it raised a TypeError when the program ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px


class Cond(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


class Still(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.sin()
        return x + y


@pytest.mark.parametrize("model", [Cond(), Still()], ids=["cond", "no_grad"])
@pytest.mark.parametrize("value", [3, None, "name"], ids=["number", "none", "string"])
def test_a_body_is_a_graph(model: torch.nn.Module, value: Any) -> None:
    program = px.capture(model, (torch.ones(2),))
    node = next(node for node in program.main.nodes if "higher_order" in str(node.do))
    args = tuple(value if type(arg) is px.ir.Body else arg for arg in node.args)
    nodes = [each.evolve(args=args) if each is node else each for each in program.main.nodes]
    graphs = {**program.graphs, program.root: program.main.with_nodes(nodes)}
    rules = {fault.rule for fault in px.verify(program.with_graphs(graphs))}
    assert "operator-bodies" in rules
