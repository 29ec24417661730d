"""Deep copies of children of a lowered module."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px


class Child(nn.Module):
    """A module that calls a sibling through its parent."""

    def __init__(self, parent: nn.Module) -> None:
        super().__init__()
        self.__dict__["parent"] = parent
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.__dict__["parent"].lin(x) * self.weight


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.child = Child(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_a_copy_of_a_child_that_reaches_up_has_its_own_root(to: Any) -> None:
    """As in eager mode, where the copy follows the reference to the parent."""
    model, x = Root(), torch.ones(1, 2)
    lowered: Any = px.lower(px.transform(px.import_ep(torch.export.export(model, (x,)))), to=to)
    for each in (model, lowered):
        before = each(x)
        copied = copy.deepcopy(each.child)
        assert list(copied.state_dict()) == ["weight"]
        with torch.no_grad():
            each.lin.weight.add_(1)
        assert torch.equal(copied(x), before)
        assert not torch.equal(each.child(x), before)
