"""Patterns in which one value stands in many places: what is worked out of them is worked out once for each value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px

DOUBLINGS = 40
ALL = 2.0**DOUBLINGS


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Use each value twice."""
    for _ in range(DOUBLINGS):
        x = x + x
    return x


def inside(x: Any) -> Any:
    """The same with alternatives on the way."""
    for _ in range(DOUBLINGS):
        x = px.any_of(x + x, x * x)
    return x


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(x).neg()


@pytest.fixture(scope="module")
def program() -> px.Program:
    return px.import_ep(torch.export.export(Doubled(), (torch.ones(2),)))


RULES = {
    "mul neg": px.rule(doubled).becomes(lambda m, x: x * ALL),
    "mul neg of alternatives": px.rule(inside).becomes(lambda m, x: x * ALL),
    "mul mul": px.rule(lambda x: (doubled(x), doubled(x).neg())).becomes(lambda m, x: (x * ALL, x * -ALL)),
}


@pytest.mark.parametrize("wanted", RULES)
def test_a_rule_over_values_that_are_used_twice_is_made_and_matches(wanted: str, program: px.Program) -> None:
    names = [node.do.name.split(".")[1] for node in RULES[wanted](program).main.nodes if isinstance(node.do, px.Op)]
    assert names == wanted.split()[:2]


def test_one_that_does_not_use_a_variable_says_so_at_once() -> None:
    with pytest.raises(px.errors.RuleError, match="does not use y"):
        px.rule(lambda x, y: doubled(x)).becomes(lambda m, x, y: x)
    with pytest.raises(px.errors.RuleError, match="shares no value"):
        px.rule(lambda x, y: (doubled(x), doubled(y))).becomes(lambda m, x, y: (x, y))
