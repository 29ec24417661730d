"""``explain``: what rules replaced and skipped, and where a rule that replaced nothing nearly matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor, nn

import purefx as px
from purefx.errors import RuleError
from purefx.transforms.rules.rule import RuleSet

Function = Callable[..., Any]
X, WHOLE = torch.randn(2, 4), torch.arange(8).reshape(2, 4)


class Plain(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def captured(function: Function, *args: Tensor) -> px.Program:
    return px.capture(Plain(function), args or (X,))


# -- errors ---------------------------------------------------------------------------------------------------------------------


def only_floats(m: px.Match, x: Any) -> Any:
    if not x.is_floating_point():
        raise ValueError("only floating-point numbers")
    return x.clamp_min(0)


def both(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(x).exp(), torch.relu(n)


def relu_rule() -> px.Rule:
    return px.rule(lambda x: torch.relu(x)).becomes(only_floats)


def test_an_error_of_a_users_rule_names_the_match() -> None:
    with pytest.raises(RuleError, match="only floating-point numbers") as caught:
        relu_rule()(captured(both, X, WHOLE))
    (note,) = caught.value.__notes__
    assert "in rule <lambda>, at node relu_1" in note


def test_explain_goes_on_after_an_error_of_a_rule() -> None:
    report = relu_rule().explain(captured(both, X, WHOLE))
    assert [hit.root.name for hit in report.replaced] == ["relu"]
    (left,) = report.left
    assert left.root.name == "relu_1" and "only floating-point numbers" in left.why


@pytest.mark.parametrize("name", ["algebra", "attention", "fusions"])
def test_an_error_of_any_shipped_rule_skips_the_match(name: str) -> None:
    def fails(m: px.Match) -> bool:
        raise IndexError("this place is not as the rule expects it")

    rules = getattr(px.rules, name).rules
    assert all(rule.is_shipped for rule in rules)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((q @ k.transpose(-1, -2)) / 2.0, -1) @ v

    q = torch.randn(2, 2, 5, 4)
    program = captured(lambda x, q: ((x * 1 + 1).log(), attention(q, q, q)), X, q)
    failing = RuleSet(tuple([evolve(rule, where=fails) for rule in rules]))
    report = failing.explain(program)
    assert report.program is program and report.left
    assert all("this place is not as the rule expects it" in left.why for left in report.left)
    others = failing + px.rule(lambda x: torch.log(x)).becomes(lambda m, x: torch.log2(x))
    names = [node.do.name for node in others(program).main.nodes if isinstance(node.do, px.Op)]
    assert "aten.log2.default" in names


def test_attention_with_a_mask_of_one_dimension_is_left_with_a_reason() -> None:
    q, mask = torch.randn(2, 2, 5, 4), torch.randn(5)

    def two(q: Tensor, mask: Tensor) -> Tensor:
        first = ((q @ q.mT) / 2 + mask).softmax(-1) @ q
        return ((first @ q.mT) / 2).softmax(-1) @ q

    program = captured(two, q, mask)
    report = px.rules.attention.explain(program)
    assert len(report.replaced) == 1 and any("IndexError" in left.why for left in report.left)
    torch.testing.assert_close(px.lower(px.rules.attention(program))(q, mask), two(q, mask))
