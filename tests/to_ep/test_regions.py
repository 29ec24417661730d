"""Regions under autocast between markers, and bodies that are shared with calls under vmap, as exported programs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import purefx as px
from purefx.errors import UnsupportedProgram
from tests.models import module_class, parent

X = torch.arange(6.0).reshape(2, 3)
Wave = module_class("Wave", lambda self, x: self.linear(x).sin(), linear=lambda: nn.Linear(3, 3))


class Low(parent(wave=Wave, norm=lambda: nn.BatchNorm1d(3))):
    """Runs under autocast, with a region without it inside, and writes state and its argument there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.norm(self.wave(x))
            x.add_(1)
            with torch.autocast("cpu", enabled=False):
                y = y + self.wave(x)
            with torch.no_grad():
                z = self.wave(x)
        return (y + z).float()


# Two of these, one called twice.
Lows = module_class("Lows", lambda self, x: self.a(x) + self.b(x) + self.a(x), a=Low, b=Low)


class Mapped(parent(wave=Wave)):
    """One body under two levels of vmap, one, and none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.vmap(torch.vmap(lambda one: self.wave(one * torch.ones(3))))(x).sum(-1)
        return torch.vmap(lambda row: self.wave(self.wave(row)))(x) + self.wave(x) + both


MODELS: dict[str, Callable[[], nn.Module]] = {"autocast": Lows, "vmap": Mapped}

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
    assert [*map(torch.Tensor.tolist, module.buffers())] == [
        *map(torch.Tensor.tolist, eager.buffers())
    ]


def test_a_region_that_is_never_closed_says_what_to_do() -> None:
    program = px.bodies_to_regions(px.import_ep(torch.export.export(Low(), (X.clone(),))))
    kept = [node for node in program.main.nodes if "_exit_autocast" not in str(node.do)]
    open_ended = program.with_main(program.main.with_nodes(kept))
    with pytest.raises(
        UnsupportedProgram,
        match=r"_enter_autocast: a region under autocast begins.*px.regions_to_bodies",
    ):
        px.to_ep(open_ended)
