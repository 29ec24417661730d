"""Tensors of closed levels of torch.func have no memory, so state cannot refer to them."""

from __future__ import annotations

import pytest
import torch

import purefx as px


def leaked(transform: str) -> torch.Tensor:
    """Return a tensor from inside of a function that torch.func transforms."""
    kept: list[torch.Tensor] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return x.sum()

    {"vmap": torch.func.vmap, "grad": torch.func.grad}[transform](inner)(torch.ones(2))
    return kept[0]


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_a_constant_of_a_closed_level_is_refused(transform: str) -> None:
    ep = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
    ep.constants["kept"] = leaked(transform)
    with pytest.raises(px.errors.UnsupportedProgram, match="a closed level of torch"):
        px.import_ep(ep)


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_so_is_one_of_an_fx_graph(transform: str) -> None:
    module, graph = torch.nn.Module(), torch.fx.Graph()
    module.kept = leaked(transform)
    graph.output(graph.get_attr("kept"))
    with pytest.raises(px.errors.UnsupportedProgram, match="a closed level of torch"):
        px.import_fx(torch.fx.GraphModule(module, graph))
