"""``partition_joint``: the forward followed by the backward means the joint program, under every policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.experimental import _export_forward_backward

import purefx as px
from purefx import training


class Normed(nn.Module):
    """Has parameters, buffers that it updates, and a draw."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.down(self.norm(self.up(x)).relu()), 0.3).pow(2).sum()


def joint_of(module: nn.Module, *args: Any) -> px.Program:
    ep = torch.export.export(module, args)
    return px.import_ep(_export_forward_backward(ep), forward=ep)


def ran(cut: training.Partition, *args: Any, seed: int = 0) -> tuple[Any, ...]:
    """Return what the forward and then the backward give, without what crosses."""
    torch.manual_seed(seed)
    given = px.lower(cut.forward)(*copy.deepcopy(args))
    count = len(given) - len(cut.saved)
    return (*given[:count], *px.lower(cut.backward)(*given[count:]))


def same(mine: Any, other: Any) -> bool:
    return len(mine) == len(other) and all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


def nothing(candidates: Sequence[training.Candidate]) -> tuple[str, ...]:
    """Keep nothing that may be computed again."""
    assert candidates
    return ()


POLICIES = [
    training.save_all(),
    training.recompute("norm"),
    training.recompute("*"),
    training.by_operator(save=["addmm"]),
    training.by_operator(recompute=["aten.relu"]),
    nothing,
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: getattr(policy, "__name__", str(policy)))
def test_every_policy_gives_the_numbers_of_the_joint_program(policy: training.Policy) -> None:
    module, x = Normed(), torch.randn(3, 4, requires_grad=True)
    joint = joint_of(module, x)
    torch.manual_seed(0)
    expected = px.lower(joint)(x)
    assert same(ran(training.partition_joint(joint, policy=policy), x), expected)
    torch.manual_seed(0)
    loss = copy.deepcopy(module)(x)
    loss.backward()
    assert torch.equal(loss, expected[0])
    torch.testing.assert_close(x.grad, expected[-1])  # torch writes the backward of batch_norm out when it makes the joint graph
