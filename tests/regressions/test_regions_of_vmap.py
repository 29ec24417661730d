"""The body of a vmap stays between the functions that open and close it, and in the module that it was written in.

One idea: a strict export writes a vmap as operators between two plain functions, and says of the closing one that it is in the
root.  Flex attention, exported so, ran under a vmap that had no end, and so did all that the process did afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import purefx as px


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = torch.vmap(lambda row: torch.vmap(lambda item: item * 2)(row) + row.sum())(x)
        return self.linear(y)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Mapped()

    def forward(self, x: Any) -> Any:
        return self.child(self.child(x)) + 1


def test_a_vmap_in_a_child_that_is_called_twice() -> None:
    module, x = Twice(), torch.randn(4, 3)
    program = px.transform(px.import_ep(torch.export.export(module, (x,), strict=True)))
    lowered = px.lower(program)
    for number in range(3):
        given = x + number
        assert torch.equal(lowered(given), module(given))
    assert torch.randn(2).shape == (2,), "no vmap was left open"
    assert len([node for node in program.main.nodes if isinstance(node.do, px.Call)]) == 2
    assert len(program.order) == 3, "both calls of the child have one body"
