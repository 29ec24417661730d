"""Regions under autocast between markers, and bodies that are shared with calls under vmap, as exported programs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import purefx as px
from purefx.errors import UnsupportedProgram

X = torch.arange(6.0).reshape(2, 3)


class Wave(nn.Module):
    """A linear layer and a sine."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sin()


class Low(nn.Module):
    """Runs under autocast, with a region without it inside, and writes state and its argument there."""

    def __init__(self) -> None:
        super().__init__()
        self.wave, self.norm = Wave(), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.norm(self.wave(x))
            x.add_(1)
            with torch.autocast("cpu", enabled=False):
                y = y + self.wave(x)
            with torch.no_grad():
                z = self.wave(x)
        return (y + z).float()


class Lows(nn.Module):
    """Two of these, one called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Low(), Low()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x) + self.a(x)


class Mapped(nn.Module):
    """One body under vmap and outside."""

    def __init__(self) -> None:
        super().__init__()
        self.wave = Wave()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: self.wave(self.wave(row)))(x) + self.wave(x)


class MappedTwice(nn.Module):
    """Modules of that kind, which share bodies, and two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.wave = Mapped(), Mapped(), Wave()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x) + self.a(x) + torch.vmap(torch.vmap(lambda one: self.wave(one * torch.ones(3))))(x).sum(-1)


MODELS: dict[str, Callable[[], nn.Module]] = {"autocast": Low, "autocasts": Lows, "vmap": Mapped, "vmaps": MappedTwice}

FORMS: dict[str, Callable[[px.Program], px.Program]] = {
    "flat": lambda program: program,
    "tree": px.transform,
    "markers": px.bodies_to_regions,
    "markers, tree": lambda program: px.transform(px.bodies_to_regions(program)),
    "tree, markers": lambda program: px.bodies_to_regions(px.transform(program)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_regions(name: str, form: str) -> None:
    torch.manual_seed(0)
    eager = MODELS[name]()
    program = FORMS[form](px.import_ep(torch.export.export(copy.deepcopy(eager), (X.clone(),))))
    exported = px.to_ep(program)
    again = px.lower(px.transform(px.import_ep(exported)))
    assert torch.equal(again(X.clone()), copy.deepcopy(eager)(X.clone()))
    module = exported.module()
    for _ in range(2):
        mine, theirs = X.clone(), X.clone()
        assert torch.equal(module(mine), eager(theirs))
        assert torch.equal(mine, theirs)
    assert [*map(torch.Tensor.tolist, module.buffers())] == [*map(torch.Tensor.tolist, eager.buffers())]


def test_a_region_that_is_never_closed_says_what_to_do() -> None:
    program = px.bodies_to_regions(px.import_ep(torch.export.export(Low(), (X.clone(),))))
    kept = [node for node in program.main.nodes if "_exit_autocast" not in str(node.do)]
    open_ended = program.with_main(program.main.with_nodes(kept))
    with pytest.raises(UnsupportedProgram, match=r"_enter_autocast: a region under autocast begins.*px.regions_to_bodies"):
        px.to_ep(open_ended)
