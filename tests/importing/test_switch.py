"""``switch``, which torch has since 2.14: a ``cond`` with any number of branches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import parent

SWITCH: Any = pytest.importorskip(
    "torch._higher_order_ops.switch", reason="torch 2.13 has no switch"
).switch


class Chooses(parent(a=lambda: nn.Linear(3, 3), b=lambda: nn.Linear(3, 3))):
    def forward(self, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return SWITCH(
            index, [lambda x: self.a(x), lambda x: self.b(x).relu(), lambda x: x.cos()], (x,)
        )


@pytest.mark.parametrize("strict", [False, True])
def test_each_branch_is_a_body(strict: bool) -> None:
    """Imported, printed, parsed, transformed and lowered, it chooses as in eager mode, also beyond both ends."""
    module, x = Chooses(), torch.ones(2, 3)
    eager = copy.deepcopy(module)
    program = px.import_ep(torch.export.export(module, (torch.tensor(1), x), strict=strict))
    assert len(program.graphs) == 4
    assert px.verify(program) == ()
    assert str(px.parse(program.text()).main) == str(program.main)
    for each in (program, px.transform(program)):
        lowered = px.lower(each)
        for index in range(-1, 4):
            assert torch.equal(lowered(torch.tensor(index), x), eager(torch.tensor(index), x))
