"""Rules with several results: found together, replaced at one place, and left alone where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules import Plain, X, of, rewritten

Function = Callable[..., Any]


def is_float(m: px.Match) -> bool:
    return m.dtype("x") in (torch.float32, torch.float64)


def is_matrix(m: px.Match) -> bool:
    return is_float(m) and len(m.shape("x") or ()) == 2


def _halves(x: Any) -> Any:
    parts = x.split(2, -1)
    return parts[0].relu(), parts[1].tanh()


def _in_a_region(m: Any, x: Tensor) -> Any:
    with torch.no_grad():
        one = x.sin()
        two = one.exp()
    return two + x.cos()


def _with_part(m: Any, x: Tensor) -> Any:
    parts = x.split(2, -1)
    return parts[0].relu() + parts[1].tanh() + parts[0]


def test_results_in_a_region_and_outside_of_it_have_no_place() -> None:
    both = of(lambda x: (x.sin(), x.cos()), lambda m, x: (x.neg().sin().neg(), x.neg().cos()))
    program = px.import_fx(torch.export.export(Plain(_in_a_region), (X,)).module())
    assert any("set_grad" in node.do.name for node in program.main.nodes if type(node.do) is px.Op)
    assert both(program) is program


def test_inner_values_stay_for_others_unless_they_use_a_result() -> None:
    kept = of(
        _halves,
        lambda m, x: (x.split(2, -1)[0].clamp_min(0), x.split(2, -1)[1].tanh().clone()),
        keeps_inner=True,
    )
    assert all("aten.clamp_min.default" in names for names in rewritten(kept, _with_part, X))
    behind = of(
        lambda x: (y := x.sin(), y.neg().tanh()),
        lambda m, x: (y := x.sin().clone(), y.neg().tanh()),
        keeps_inner=True,
    )
    assert rewritten(
        behind, lambda m, x: ((y := x.sin()) * 2, (z := y.neg()).tanh() * 2, z * 3), X
    ) == [[], []]
    assert (
        rewritten(behind, lambda m, x: ((y := x.sin()) * 2, y.neg().tanh() * 2), X)[0].count(
            "aten.clone.default"
        )
        == 1
    )


def masked(x: Any) -> Any:
    return (y := torch.dropout(x, 0.5, True)).sin(), y.cos()


def masked_and_one(m: px.Match, x: Any) -> Any:
    return (y := torch.dropout(x, 0.5, True) * 1).sin(), y.cos()


def split(m: px.Match, x: Any) -> Any:
    return (parts := x.split(2, -1))[0].clamp_min(0), parts[1].tanh()


CHECKED: dict[str, tuple[px.Rule, dict[str, Any]]] = {
    "halves": (of(_halves, split, where=is_float), {"finite": True}),
    "inner stay": (of(lambda x: (y := x.sin(), y.neg().tanh()), lambda m, x: (y := x.sin() * 1, y.neg().tanh()), where=is_float,
     keeps_inner=True), {}),
    "views": (of(lambda x: (x.t(), x.t().sin()), lambda m, x: (y := x.transpose(0, 1), y.sin()), where=is_matrix), {}),
    "drawn": (of(masked, masked_and_one, where=is_float), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_laws(name: str) -> None:
    rule, options = CHECKED[name]
    assert check_rule(rule, examples=share(12), **options).changed >= 6
