"""Why a rule left a place alone that has what it looks for, word for word; what was replaced is the same as without asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import exported


class Applied(nn.Module):
    """A function as a module, with a buffer."""

    b: torch.Tensor

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("b", torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def of(function: Callable[..., Any]) -> px.Program:
    return px.import_ep(exported(Applied(function), torch.ones(2, 2)))


def rule(pattern: Callable[..., Any], replacement: Callable[..., Any], **options: Any) -> px.Rule:
    return px.rule(**options)(pattern).becomes(replacement)


EVEN = rule(lambda x: torch.abs(torch.neg(x)), lambda m, x: torch.abs(x))


def written(module: Applied, x: torch.Tensor) -> torch.Tensor:
    y = torch.neg(module.b)
    module.b.add_(x)
    return torch.abs(y)


def used(module: Applied, x: torch.Tensor) -> Any:
    y = torch.neg(x)
    return torch.abs(y) + y.exp(), y


LEFT: list[tuple[px.RuleSet, Callable[..., Any], str]] = [
    (EVEN, used, "other nodes use its inner values: neg by exp; keeps_inner=True keeps these values for them"),
    (EVEN, written, "a node between its nodes, or a write to their operands, cannot be moved"),
    (rule(lambda x: torch.neg(torch.neg(x)), lambda m, x: x), lambda module, x: torch.neg(torch.neg(x)),
     "the new value would alias other memory than the old one, and this is observable"),
    (rule(lambda x: torch.abs(x), lambda m, x: x, where=lambda m: m.dtype("x") == torch.int8), lambda module,
     x: torch.abs(x).exp(), "its condition is false or not proven"),
    (px.rule(at=torch.abs)(lambda m: None), lambda module, x: torch.abs(x), "the replacement returned None"),
    (rule(lambda x: torch.rand_like(x) + torch.rand_like(x), lambda m, x: (y := torch.rand_like(x)) + y, any_effects=True),
     lambda module, x: (y := torch.rand_like(x)) + y, "one value of the pattern matches two nodes, and these have side effects"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LEFT)))
def test_why_a_place_is_left(number: int) -> None:
    rules, function, why = LEFT[number]
    program = of(function)
    assert rules(program) is program
    told = rules.explain(program)
    assert told.program is program
    assert [left.why for left in told.left] == [why]
    assert str(told).splitlines()[0] == "nothing was replaced"
    assert why in str(told)


def test_what_was_replaced_everywhere_leaves_nothing() -> None:
    program = of(lambda module, x: torch.abs(torch.neg(torch.abs(torch.neg(x)))))
    told = EVEN.explain(program)
    assert (told.program, told.left) == (EVEN(program), ())
    assert str(told) == "replaced: <lambda> 2 times"
