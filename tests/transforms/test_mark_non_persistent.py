"""Buffers that are not saved: by name and by module, tied ones, and what is refused.

One idea: what ``state_dict`` of the lowered module has is all that may differ.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from tests.programs import Shared, exported


class Masked(nn.Module):
    """Has a buffer that is not saved, one that is, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(2), persistent=False)
        self.register_buffer("count", torch.zeros(()))
        self.scale = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count, mask and scale."""
        self.count.add_(1)
        return self.lin(x) * self.mask * self.scale + self.count


X = torch.tensor([[1.0, 2.0]])


def test_of_a_module_and_by_name() -> None:
    """A graph that copied buffers one by one has forgotten what was saved."""
    module = Masked()
    traced = make_fx(lambda x: module(x))(X)
    program = px.restore_names(
        px.import_fx(traced), {"lin.weight": module.lin.weight, "mask": module.mask, "count": module.count}
    )
    assert program.state["mask"].persistent
    marked = px.mark_non_persistent(program, module)
    assert px.mark_non_persistent(program, ["mask"]) == marked and px.mark_non_persistent(marked, module) is marked
    lowered: Any = px.lower(marked)
    assert "mask" not in lowered.state_dict() and "mask" in dict(lowered.named_buffers()) and "count" in lowered.state_dict()
    assert torch.equal(lowered(X), px.lower(program)(X))


def test_names_that_are_no_buffers() -> None:
    program = px.import_ep(exported(Masked(), X))
    for names, said in (
        (["masc"], "no state 'masc'; did you mean 'mask'"),
        (["lin.weight"], "'lin.weight' is a parameter, no buffer"),
        (["scale"], "'scale' is a constant, which is never saved"),
        (["zzz", "lin.bias"], "'zzz'.*'lin.bias'"),
    ):
        with pytest.raises(px.NamingError, match=said):
            px.mark_non_persistent(program, names)
    for wrong in ("mask", 3):
        with pytest.raises(TypeError, match=r'write \["mask"\]'):
            px.mark_non_persistent(program, wrong)
    assert px.mark_non_persistent(program, []) is program


def test_at_any_stage_and_one_at_a_time() -> None:
    """Both names of a module that is there twice are said by themselves."""
    program = px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4))))
    names = ["a.count", "items.0.count"]
    marked = px.mark_non_persistent(program, names)
    assert marked.graphs is program.graphs and px.verify(marked) == ()
    assert [name for name in program.state if marked.state[name] != program.state[name]] == names
    first = px.mark_non_persistent(program, names, fuel=1)
    assert [first.state[name].persistent for name in names] == [False, True]
