"""Children of a Sequential are called 0, 1, ...: values that belong to them have names all the same."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import purefx as px
from purefx.ir.identifiers import odd_names
from tests.programs import exported


class Pair(nn.Module):
    """Gives two values."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


class Adds(nn.Module):
    """Takes two values."""

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return pair[0] - pair[1]


def test_calls_with_several_results_and_borders(tmp_path: Path) -> None:
    """The call of ``0`` was a node called ``0``, and its boundaries ``0_takes`` and ``0_gives``: no file took them."""
    model, x = nn.Sequential(Pair(), Adds()), torch.ones(2)
    for preserved in ((), ("0", "1")):
        program = px.transform(px.import_ep(exported(model, x, preserve_module_call_signature=preserved)))
        assert list(odd_names(program)) == []
        px.save(program, tmp_path / "model.purefx")
        assert torch.equal(px.lower(px.load(tmp_path / "model.purefx"))(x), model(x))
