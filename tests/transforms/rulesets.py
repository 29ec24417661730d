"""Modules that shipped rules are tried on, and what is asked of the result."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import purefx as px
from purefx.laws.rules import RULE_LAWS
from purefx.laws.rules.checking import QUICK

Function = Callable[..., Any]


class Plain(nn.Module):
    """A function as a module, with masks and layers of its own."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        seen = torch.ones(5, 5, dtype=torch.bool).tril()
        self.register_buffer("seen", seen)
        self.register_buffer("bias", torch.zeros(5, 5).masked_fill(seen.logical_not(), -math.inf))
        self.w, self.b = (
            nn.Parameter(torch.linspace(1, 2, 4)),
            nn.Parameter(torch.linspace(-1, 1, 4)),
        )
        self.full, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


def turned(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


def soft(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


OF_RESULTS = [
    law for law in RULE_LAWS if law.name in QUICK or law.name in ("written results", "order")
]
"""The laws of what a rule computes.  The others (threads, fuel, names) are about the engine of the rules, which
``tests/laws/test_check_rule.py`` and ``test_shipped_rules.py`` test with all laws; they take half of the time."""


def applied(rules: px.RuleSet, program: px.Program) -> tuple[px.Program, list[str]]:
    """Return the program after some rules, and the names of those that matched."""
    fuel = px.Fuel(1000)
    result = rules.transformation.spend(program, fuel)
    assert not px.verify(result, infer=True)
    assert rules(result) is result
    return result, [label.split()[1] for label in fuel.labels]


def assert_equal(
    program: px.Program, model: nn.Module, args: tuple[Tensor, ...], tolerance: float
) -> None:
    lowered, eager = px.lower(px.transform(program)), copy.deepcopy(model)
    for seed in range(2):
        torch.manual_seed(seed)
        mine = lowered(*copy.deepcopy(args))
        torch.manual_seed(seed)
        torch.testing.assert_close(
            mine, eager(*copy.deepcopy(args)), rtol=tolerance, atol=tolerance, equal_nan=True
        )
