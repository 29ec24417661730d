"""A constant of a module is detached in place by the exporter, which leaves the size of every tensor as it is."""

from __future__ import annotations

import pytest
import torch

import purefx as px


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor, size: int) -> torch.Tensor:
        return torch.tanh(x) + size


class Model(torch.nn.Module):
    def __init__(self, constant: bool) -> None:
        super().__init__()
        self.shifted, self.constant = Shifted(), constant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.size(0)
        x = x * torch.tensor([2.0, 3.0]) * size if self.constant else x * size
        return self.shifted(x, size)


@pytest.mark.parametrize("constant", [False, True])
def test_a_size_is_read_where_it_is_used(constant: bool) -> None:
    batch = torch.export.Dim("batch", min=2, max=16)
    ep = torch.export.export(Model(constant), (torch.ones(4, 2),), dynamic_shapes=({0: batch},))
    program = px.transform(px.import_ep(ep))
    assert any(getattr(node.do, "name", "") == "aten.detach_.default" for _, node in program.nodes()) is constant
    (call,) = [node for node in program.main.nodes if type(node.do) is px.Call]
    assert len(call.args) == 1, f"the size is an argument of the module:\n{program.text()}"
