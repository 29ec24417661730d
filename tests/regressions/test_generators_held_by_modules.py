"""``verify(program, infer=True)`` accepts programs that draw from a generator held by a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px

DRAWS: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "rand": lambda x, draw: x + torch.rand(x.shape, generator=draw),
    "randint": lambda x, draw: x + torch.randint(0, 4, (2, 3), generator=draw),
    "randperm": lambda x, draw: x + torch.randperm(3, generator=draw),
    "normal": lambda x, draw: x + torch.normal(0.0, 1.0, (2, 3), generator=draw),
    "bernoulli": lambda x, draw: torch.bernoulli(x * 0.5, generator=draw),
    "multinomial": lambda x, draw: torch.multinomial(x, 1, generator=draw),
    "in place": lambda x, draw: x.clone().uniform_(0, 1, generator=draw),
}


class Draws(nn.Module):
    def __init__(self, draw: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.draw, self.generator = draw, torch.Generator().manual_seed(0)

    def forward(self, x: torch.Tensor) -> Any:
        return self.draw(x, self.generator)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_program_with_a_held_generator_is_valid(draw: Callable[..., torch.Tensor]) -> None:
    ep = torch.export.export(Draws(draw), (torch.ones(2, 3),))
    for program in (px.import_ep(ep), px.outline(px.import_ep(ep))):
        assert px.verify(program, infer=True) == ()
