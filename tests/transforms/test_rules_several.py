"""Rules with several results: found together, replaced at one place, and left alone where there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purefx as px
from purefx.laws.law import FUEL
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.rulesets import OF_RESULTS
from tests.transforms.test_rules import Plain, X, assert_equal, of, rewritten

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


def test_inner_values_stay_for_others_and_use_the_new_results() -> None:
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
    for names in rewritten(
        behind, lambda m, x: ((y := x.sin()) * 2, (z := y.neg()).tanh() * 2, z * 3), X
    ):
        assert (names.count("aten.sin.default"), names.count("aten.neg.default")) == (1, 2)
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
    assert check_rule(rule, laws=[*OF_RESULTS, *FUEL], examples=share(4), **options).changed >= 2


def added(x: Tensor, r: Tensor) -> Any:
    s = x + r
    return torch.sin(s.to(torch.float64)) * 2, s


def added_once(m: px.Match, x: Tensor, r: Tensor) -> Any:
    s = torch.add(x, r)
    return torch.sin(s.to(torch.float64)) * 2, s


ADDED = of(added, added_once, once=True)
KEPT = of(added, added_once, once=True, keeps_inner=True)
ONE = of(
    lambda x, r: torch.sin((x + r).to(torch.float64)) * 2,
    lambda m, x, r: torch.sin(torch.add(x, r).to(torch.float64)) * 2,
    once=True,
    keeps_inner=True,
)


def cast_of_a_result(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    return torch.sin(s.to(torch.float64)) * 2, s


def cast_of_an_operand(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    wide = x.to(torch.float64)
    return torch.sin(s.to(torch.float64)) * 2, s, wide


def cast_kept(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    wide = s.to(torch.float64)
    return torch.sin(wide) * 2, s * 3, wide.neg()


def asserted(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    torch.ops.aten._assert_async.msg((x > -100).all(), "small")
    return torch.sin(s.to(torch.float64)) * 2, s


def drawn(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    noise = functional.dropout(r, 0.0, True)
    return torch.sin(s.to(torch.float64)) * 2, s, noise


def counted(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    m.seen.add_(1)
    return torch.sin(s.to(torch.float64)) * 2, s


def operand_written(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    x.add_(1)
    return torch.sin(s.to(torch.float64)) * 2, s


def result_written(m: Any, x: Tensor, r: Tensor) -> Any:
    s = x + r
    wide = s.to(torch.float64)
    s.add_(1)
    return torch.sin(wide) * 2, s


BETWEEN: dict[str, tuple[px.Rule, Function, int]] = {
    "the cast of a result is asserted": (ADDED, cast_of_a_result, 1),
    "the cast of an operand is asserted": (ADDED, cast_of_an_operand, 1),
    "the cast stays": (KEPT, cast_kept, 1),
    "the cast stays for others without being kept": (ADDED, cast_kept, 0),
    "one result, and its operand stays": (ONE, cast_of_a_result, 1),
    "an assertion of the user": (ADDED, asserted, 1),
    "a draw": (ADDED, drawn, 1),
    "a write to other memory": (ADDED, counted, 1),
    "a write to an operand": (ADDED, operand_written, 0),
    "a write to a result": (ADDED, result_written, 0),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_only_nodes_that_conflict_with_a_match_bar_it(name: str) -> None:
    rule, function, count = BETWEEN[name]
    model = Plain(function)
    program = px.import_ep(torch.export.export(copy.deepcopy(model), (X, X + 1)))
    for each in (program, px.transform(program)):
        report = rule.explain(each)
        assert len(report.replaced) == count
        assert not px.verify(report.program, infer=True)
        assert_equal(px.lower(px.transform(report.program)), model, (X, X + 1))


def test_an_assertion_of_a_result_stays_behind_an_operand_that_comes_late() -> None:
    def late(m: Any, x: Tensor, r: Tensor) -> Any:
        s = x + r
        wide = s.to(torch.float64)
        return m.up.weight.sum() * torch.sin(wide), s

    def scaled(x: Tensor, r: Tensor, w: Tensor) -> Any:
        s = x + r
        return w * torch.sin(s.to(torch.float64)), s

    rule = of(
        scaled,
        lambda m, x, r, w: (w * torch.sin((s := torch.add(x, r)).to(torch.float64)), s),
        once=True,
    )
    model = Plain(late)
    flat = px.import_ep(torch.export.export(copy.deepcopy(model), (X, X + 1)))
    for program in (flat, px.transform(flat)):
        result = rule(program)
        assert result is not program and not px.verify(result, infer=True)
        names = [node.do.name for node in result.main.nodes if type(node.do) is px.Op]
        assert names.count("aten._assert_tensor_metadata.default") == 1
        assert names.index("aten.sum.default") < names.index("aten.add.Tensor")
    assert_equal(px.lower(px.transform(rule(flat))), model, (X, X + 1))


def test_a_rule_ends_if_only_an_unused_result_would_change() -> None:
    def sine(x: Tensor, r: Tensor) -> Any:
        s = x + r
        return torch.sin(s) * 2, s

    rule = of(sine, lambda m, x, r: (torch.sin(r + x) * 2.0, x - (-r)))
    found = rewritten(rule, lambda m, x, r: ((s := x + r).sin() * 2, s), X, X + 1)
    assert [names.count("aten.sub.Tensor") for names in found] == [1, 1]
    unused = of(sine, lambda m, x, r: ((s := torch.add(x, r)).sin() + s.sin(), s))
    found = rewritten(unused, lambda m, x, r: (x + r).sin() * 2, X, X + 1)
    assert all("aten.mul.Tensor" not in names for names in found)
