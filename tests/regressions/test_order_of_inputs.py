"""The order of a body's inputs.

Cause: outlining sorted the inputs of a body by where their values are made outside of it.  The first layer of a
transformer gets a value that is older than the mask, every other layer one that is younger, so equal layers had
different bodies and the code of each module inside them was made twice.
"""

from __future__ import annotations

import torch
from torch import nn

import purefx as px
from tests.programs import exported


class Layer(nn.Module):
    """Uses what it is given in one order."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.relu() + mask


class Layers(nn.Module):
    """The first layer's ``x`` is made before the mask, the second's after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x * 2
        return self.second(self.first(x, mask), mask)


def test_equal_layers_are_one_body_wherever_their_inputs_are_made() -> None:
    """One body beside the root, whose inputs are in the order of their use."""
    program = px.transform(px.import_ep(exported(Layers(), torch.ones(2))))
    assert program.order == ("", "Layer")
    assert [formal.name for formal in program.graphs["Layer"].inputs] == ["arg", "mul"]
