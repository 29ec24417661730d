"""``check_rule`` opens sizes whose range starts at 0 or 1, and calls these programs at 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px
from purefx.laws.asking import LawBroken
from purefx.laws.law import GENERIC, memory
from purefx.laws.rules import check_rule
from purefx.laws.rules.build import build, drawn_around
from purefx.laws.rules.checking import Found, at_small_sizes
from purefx.laws.rules.instances import Instance, Operand, instance_of
from purefx.laws.tiers import examples_of
from purefx.transforms.rules import application

LAWS = [*[one for one in GENERIC if one.name == "meaning"], memory]


def is_recorded_unlike(number: int) -> Callable[[Any], bool]:
    """Return a condition on the recorded value alone, which the engine cannot ask again at a border."""

    def where(m: Any) -> bool:
        value = m.scope.draft.value(m["x"].name)
        return value.dtype is torch.float32 and value.dim() > 0 and bool(value.shape[0] != number)

    return where


def relu(number: int) -> Any:
    return px.rule(lambda x: torch.relu(x), where=is_recorded_unlike(number))


def summed(number: int) -> Any:
    return px.rule(lambda x: x.sum(0), where=is_recorded_unlike(number))


def zero_for_one_row(m: Any, x: Any) -> Any:
    return torch.clamp_min(x, 0) * (torch.ones_like(x).sum(0) != 1)


def from_mean(m: Any, x: Any) -> Any:
    return x.mean(0) * x.shape[0]


CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "finite": True}


@pytest.mark.parametrize("examples", [5, pytest.param(50, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("rule", "size"),
    [
        pytest.param(relu(1).becomes(zero_for_one_row), 1, id="zeros for one row"),
        pytest.param(summed(0).becomes(from_mean), 0, id="the mean of no rows"),
    ],
)
def test_a_rule_that_is_wrong_at_one_small_size_is_found(
    rule: Any, size: int, examples: int
) -> None:
    with pytest.raises(LawBroken) as error:
        check_rule(rule, laws=LAWS, examples=examples, **CLOSE)
    assert error.value.law.name == "meaning"
    low = error.value.case.program.constraints.ranges[0].low
    assert low is not None
    assert low <= size


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(relu(-1).becomes(lambda m, x: torch.clamp_min(x, 0)), id="the same operator"),
        pytest.param(
            px.rule(lambda x: x.mean(0), where=is_recorded_unlike(-1)).becomes(
                lambda m, x: x.sum(0) / x.shape[0]
            ),
            id="a mean from a sum",
        ),
        pytest.param(
            px.rule(
                lambda x: torch.relu(x),
                where=lambda m: m.dtype("x") is torch.float32 and 1 not in m.shape("x"),
            ).becomes(lambda m, x: torch.clamp_min(x, 0) * (torch.ones_like(x).numel() != 1)),
            id="a condition for the sizes where it would be wrong",
        ),
    ],
)
def test_a_right_rule_passes(rule: Any) -> None:
    assert check_rule(rule, laws=LAWS, examples=5, **CLOSE).changed


def test_an_engine_without_borders_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = px.rule(
        lambda x: torch.relu(x),
        where=lambda m: m.dtype("x") is torch.float32 and 1 not in m.shape("x"),
    ).becomes(zero_for_one_row)
    monkeypatch.setattr(application, "borders_of", lambda program, before=(): ())
    with pytest.raises(LawBroken, match="meaning"):
        check_rule(rule, laws=LAWS, examples=5, **CLOSE)


def instance() -> Instance:
    found = instance_of(lambda x, y: torch.relu(x + y), [Operand(torch.ones(3, 4))] * 2)
    assert found is not None
    return found


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("place", [0, 1])
def test_small_sizes_are_called_before_numbers_that_are_not_finite(least: int, place: int) -> None:
    choices = {"dynamic": True, "least": least, "open": place}
    case = build(lambda name, several: choices.get(name, several[0]), [instance()])
    assert case is not None
    traced = (4, 3)[place]
    sizes = [leaves[0].shape[1 - place] for leaves in case.calls]
    assert sizes == [traced, *range(least, 2), traced + 1, traced + 2]
    assert all(
        torch.cat([one.flatten() for one in leaves]).isfinite().all() for leaves in case.calls[:-1]
    )
    assert case.program.constraints.ranges[0].low == least


def test_drawn_programs_have_each_start_of_the_range() -> None:
    cases = examples_of(drawn_around([instance()]), 60, 3)
    spans = [span for case in cases if case for span in case.program.constraints.ranges]
    assert {span.low for span in spans} == {0, 1, 2}


def test_each_rule_with_a_size_to_open_is_asked_at_zero_and_one() -> None:
    search = Found(relu(-1).becomes(lambda m, x: torch.clamp_min(x, 0)))
    search.search(4, number=0)
    cases = at_small_sizes(search.hits)
    lows = [case.program.constraints.ranges[0].low for case in cases]
    assert {0, 1} == set(lows)
