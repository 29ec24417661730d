"""Regions that a decomposition took apart: their nodes stay in the module call that they were made in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import parent

X = torch.randn(2, 3)


class Frozen(parent(first=lambda: nn.Linear(3, 3), second=lambda: nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with torch.no_grad():
            z = self.second(self.first(y).relu())
        return z + y


class Early(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.cos()
        return y + 1


class Model(parent(lin=lambda: nn.Linear(3, 3), inner=Frozen, early=Early)):
    """A region between two calls, one at the end, and one in a child that takes the input of the model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lin(x)
        with torch.no_grad():
            g = h.exp()
        h = self.inner(self.inner(self.lin(g))) + self.early(x)
        with torch.no_grad():
            return h.tan()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_region_stays_in_the_call_that_it_is_in(strict: bool, decomposed: bool) -> None:
    model = Model()
    ep = torch.export.export(model, (X,), strict=strict)
    flat = px.import_ep(ep.run_decompositions({}) if decomposed else ep)
    names = ("aten.exp.default", "aten.tan.default")
    own = [node for _, node in flat.nodes() if isinstance(node.do, px.Op) and node.do.name in names]
    assert [node.stack for node in own] == [(), ()]
    program = px.transform(flat)
    calls = [node.do.instance.path for _, node in program.nodes() if isinstance(node.do, px.Call)]
    assert {"inner", "early"} <= {*calls}
    assert torch.equal(px.lower(program)(X), model(X))


def test_a_preserved_call_with_a_region_in_it() -> None:
    """The call would be refused if it were cut: others would need its results before it has all of its arguments."""
    model = Model()
    ep = torch.export.export(
        model, (X,), strict=True, preserve_module_call_signature=("inner",)
    ).run_decompositions({})
    assert torch.equal(px.unflatten(ep)(X), model(X))
