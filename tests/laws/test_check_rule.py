"""``check_rule``: rules that are wrong in one way are found, right ones pass, and a rule that is not met is no rule that holds.

A check that cannot fail says nothing; so most of what is here must fail, each by the law that the mistake breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from purefx.laws.arguments import WrongQuestion
from purefx.laws.asking import LawBroken
from purefx.laws.checking import NothingChecked
from purefx.laws.rules import check_rule

Function = Callable[..., Any]

neg = torch.neg


def of(pattern: Function, replacement: Function, **options: Any) -> px.Rule:
    return px.rule(**options)(pattern).becomes(replacement)


def is_float(m: px.Match) -> bool:
    known = m.dtype("x")
    return known is not None and known.is_floating_point


def are_floats(m: px.Match) -> bool:
    return all(kind is not None and kind is m.dtype("x") and kind.is_floating_point for kind in map(m.dtype, m.values))


def is_square(m: px.Match) -> bool:
    rows = m.shape("x")
    return rows is not None and len(rows) == 2 and rows[0] == rows[1]


WRONG: dict[str, tuple[px.RuleSet, str]] = {
    "meaning": (of(lambda x: torch.relu(x), lambda m, x: x), "meaning"),
    "sign": (of(lambda x: x + x, lambda m, x: x * 3), "meaning"),
    "dtype": (of(lambda x: torch.exp(torch.sin(x)), lambda m, x: torch.exp(x.double().sin()), where=is_float), "meaning"),
    "only non-negative": (of(lambda x: torch.sqrt(x * x), lambda m, x: x.clone(), where=is_float), "meaning"),
    "zeros": (of(lambda x: x / x, lambda m, x: torch.ones_like(x), where=is_float), "meaning"),
    "shape": (of(lambda x, y: x * 0 + y, lambda m, x, y: y.clone(), where=is_float), "meaning"),
    "not a number": (of(lambda x: torch.relu(x), lambda m, x: torch.where(x > 0, x, torch.zeros_like(x)), where=is_float), "meaning"),
    "sign of zero": (of(lambda x: x + 0, lambda m, x: x.clone(), where=is_float), "meaning"),
    "sides": (of(lambda c, x, y: torch.where(c, x, y), lambda m, c, x, y: torch.where(c.logical_not(), x, y).clone()), "meaning"),
    "broadcast": (of(lambda x, y: torch.minimum(x, x + y), lambda m, x, y: x.clone(), where=is_float), "meaning"),
    "only contiguous": (of(lambda x, n: x.reshape(n), lambda m, x, n: x.view(n)), "valid"),
    "odd sizes": (
        of(lambda x: (h := x.chunk(2, -1))[0] * torch.sigmoid(h[1]), lambda m, x: functional.glu(x, -1), where=is_float), "valid",
    ),
    "size one": (of(lambda x: x.squeeze(0), lambda m, x: x.select(0, 0)), "valid"),
    "a condition that is too loose": (
        of(lambda x, n: x * n, lambda m, x, n: x.clone(), where=lambda m: is_float(m) and m["n"] in (1, 2)), "meaning",
    ),
    "a condition on one size": (
        of(lambda x: x.transpose(0, 1), lambda m, x: x.clone(), where=lambda m: (m.shape("x") or (0,))[0] == 2), "meaning",
    ),
    "a number that is a tensor": (of(lambda x, n: x / n, lambda m, x, n: x * (1 / 2)), "meaning"),
    "dimension": (of(lambda x: x.sum(-1), lambda m, x: x.sum([0])), "meaning"),
    "order": (of(lambda x, w: (x @ w).relu(), lambda m, x, w: (w @ x).tanh().tanh(), where=is_square), "meaning"),
    "what is drawn": (of(lambda x: torch.tanh(x), lambda m, x: torch.rand_like(x), any_effects=True), "meaning"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found(name: str) -> None:
    rule, law = WRONG[name]
    with pytest.raises(LawBroken) as caught:
        check_rule(rule, tolerance=1e-5)
    assert caught.value.law is not None
    assert caught.value.law.name == law, str(caught.value)
    assert caught.value.case is not None
    text = str(caught.value).partition("on the program\n")[2]
    program = px.parse(text, state={name: caught.value.case.program.state[name].value for name in caught.value.case.program.state})
    assert not px.verify(program)
    assert len([*program.nodes()]) <= 8, text
