"""Regions that a decomposition took apart: their nodes stay in the module call that they were made in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import parent


class Frozen(parent(first=lambda: nn.Linear(3, 3), second=lambda: nn.Linear(3, 3))):
    """Computes a part without gradients, in a region between its own operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with torch.no_grad():
            z = self.second(self.first(y).relu())
        return z + y


class Twice(parent(inner=Frozen, early=lambda: Early())):
    """Calls it twice; a second child has a region that takes the model's input itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(x)) + self.early(x)


class Early(nn.Module):
    """Begins with a region."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.cos()
        return y + 1


class InRoot(parent(lin=lambda: nn.Linear(3, 3))):
    """Has a region of its own between two calls, and one at the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lin(x)
        with torch.no_grad():
            g = h.sin()
        h = self.lin(g)
        with torch.no_grad():
            return h.cos()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_region_does_not_cut_the_call_that_it_is_in(strict: bool, decomposed: bool) -> None:
    model, x = Twice(), torch.randn(2, 3)
    program = px.transform(px.import_ep(_exported(model, x, strict=strict, decomposed=decomposed)))
    calls = {node.do.instance.path for _, node in program.nodes() if isinstance(node.do, px.Call)}
    assert {"inner", "early"} <= calls
    assert torch.equal(px.lower(program)(x), model(x))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_region_of_the_root_stays_in_the_root(strict: bool, decomposed: bool) -> None:
    model, x = InRoot(), torch.randn(2, 3)
    flat = px.import_ep(_exported(model, x, strict=strict, decomposed=decomposed))
    for _, node in flat.nodes():
        if isinstance(node.do, px.Op) and node.do.name in ("aten.sin.default", "aten.cos.default"):
            assert node.stack == ()
    assert torch.equal(px.lower(px.transform(flat))(x), model(x))


def test_a_preserved_call_with_a_region_in_it() -> None:
    """The call would be refused if it were cut: others would need its results before it has all of its arguments."""
    model, x = Twice(), torch.randn(2, 3)
    ep = torch.export.export(model, (x,), strict=True, preserve_module_call_signature=("inner",)).run_decompositions({})
    assert torch.equal(px.unflatten(ep)(x), model(x))


def _exported(model: nn.Module, x: torch.Tensor, *, strict: bool, decomposed: bool) -> Any:
    ep = torch.export.export(model, (x,), strict=strict)
    return ep.run_decompositions({}) if decomposed else ep
