"""A buffer that is not saved kept its place behind all saved ones, so the order of ``named_buffers`` was not eager's.

One idea: the exporter keeps such buffers among the constants; only its inputs have all buffers in the order of the modules.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws import structure_differences
from tests.programs import exported


class Buffers(nn.Module):
    """Has a buffer that is not saved, before one that is, in itself and in a child."""

    def __init__(self, *, child: bool = True) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(2), persistent=False)
        self.register_buffer("second", torch.ones(2))
        self.register_buffer("third", torch.zeros(2), persistent=False)
        if child:
            self.child = Buffers(child=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second


@pytest.mark.parametrize("decomposed", [False, True])
def test_buffers_keep_their_order(decomposed: bool) -> None:
    program = px.import_ep(exported(Buffers(), torch.ones(2), decomposed=decomposed))
    assert list(program.state) == ["first", "second", "third", "child.first", "child.second", "child.third"]
    assert structure_differences(px.lower(px.transform(program)), Buffers()) == []
