"""Rules that go round in a circle, and rules that only look as if they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px

X = torch.linspace(-1, 1, 4)


def chain(step: Callable[[Tensor], Tensor], length: int) -> px.Program:
    """Return one operator many times, each on the result of another."""

    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(length):
                x = step(x)
            return x

    return px.import_ep(torch.export.export(Chain(), (X,)))


def counted(seen: list[str], term: Callable[..., Any], becomes: Callable[..., Any]) -> px.Rule:
    return px.rule(term, where=lambda m: seen.append(m.root.name) or True).becomes(becomes)


@pytest.mark.parametrize("length", [1, 50])
def test_a_circle_is_found_at_one_place_and_shown(length: int) -> None:
    seen: list[str] = []
    there = counted(seen, lambda x: torch.relu(x), lambda m, x: torch.clamp_min(x, 0))
    back = counted(seen, lambda x: torch.clamp_min(x, 0), lambda m, x: torch.relu(x))
    with pytest.raises(
        px.errors.RuleError, match="do not terminate in the root: <lambda> matched 1025 times"
    ):
        (there + back)(chain(lambda x: torch.relu(x) + 1, length))
    assert len(seen) <= 1100


@pytest.mark.parametrize(
    "becomes",
    [lambda m, x: torch.relu(x) + 1, lambda m, x: torch.relu(x + 1)],
    ids=["around", "inside"],
)
def test_what_grows_is_found_at_one_place(becomes: Callable[..., Any]) -> None:
    seen: list[str] = []
    with pytest.raises(px.errors.RuleError, match="do not terminate"):
        counted(seen, lambda x: torch.relu(x), becomes)(chain(lambda x: torch.relu(x) * 2, 50))
    assert len(seen) <= 1100


def test_rules_that_end_are_not_refused() -> None:
    # Each match is of the result of the one before, and of one more node that was there.
    merged = px.rule(
        lambda x, a, b: (x + a) + b, where=lambda m: all(isinstance(m[each], int) for each in "ab")
    )
    result = merged.becomes(lambda m, x, a, b: x + (a + b))(chain(lambda x: x + 1, 100))
    assert [node.args[1] for node in result.main.nodes] == [100]
    # Each match is of what the one before made, and nothing else is there.
    smaller = px.rule(lambda x, n: x.pow(n), where=lambda m: isinstance(m["n"], int) and m["n"] > 1)
    result = smaller.becomes(lambda m, x, n: x * x.pow(n - 1))(chain(lambda x: x.pow(150), 1))
    assert len(result.main.nodes) == 150
    # What was made in one place is used up at another.
    sums = px.rule(lambda x: x.sin(), once=True).becomes(
        lambda m, x: sum([x + number for number in range(60)], x)
    )
    outside = px.rule(lambda x, y, z: (x + y) * z).becomes(lambda m, x, y, z: x * z + y * z)
    result = (sums + outside)(chain(lambda x: x.sin() * X, 1))
    assert sum(node.do.name == "aten.mul.Tensor" for node in result.main.nodes) == 121


# Patterns in which one value stands in many places: what is worked out of them is worked out once for each value.


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
    "mul mul": px.rule(lambda x: (doubled(x), doubled(x).neg())).becomes(
        lambda m, x: (x * ALL, x * -ALL)
    ),
}


@pytest.mark.parametrize("wanted", RULES)
def test_a_rule_over_values_that_are_used_twice_is_made_and_matches(
    wanted: str, program: px.Program
) -> None:
    names = [
        node.do.name.split(".")[1]
        for node in RULES[wanted](program).main.nodes
        if isinstance(node.do, px.Op)
    ]
    assert names == wanted.split()[:2]


def test_one_that_does_not_use_a_variable_says_so_at_once() -> None:
    with pytest.raises(px.errors.RuleError, match="does not use y"):
        px.rule(lambda x, y: doubled(x)).becomes(lambda m, x, y: x)
    with pytest.raises(px.errors.RuleError, match="shares no value"):
        px.rule(lambda x, y: (doubled(x), doubled(y))).becomes(lambda m, x, y: (x, y))
