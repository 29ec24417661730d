"""Patterns that look through views and casts: what they find, what the replacement gets, and what other users keep from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules import X, names_of_operators, rewritten

Function = Callable[..., Any]


@px.rule
def outside(x: Any, shape: Any) -> Any:
    return torch.relu(px.through(x.exp(), shape))


@outside.becomes
def _(m: px.Match, x: Any, shape: Any) -> Any:
    return shape(torch.clamp_min(x.exp(), 0))


@px.rule
def cast(x: Any, chain: Any) -> Any:
    return torch.relu(px.through(x.exp(), chain, casts=True))


@cast.becomes
def _(m: px.Match, x: Any, chain: Any) -> Any:
    return chain(torch.clamp_min(x.exp(), 0))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def split(self, x: Tensor) -> Tensor:
        return x.view(2, 5, 2, 4).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        weights = torch.softmax((q @ k.transpose(-1, -2)).to(torch.float32) * 0.5, -1).to(q.dtype)
        return (weights @ v).transpose(1, 2).reshape(2, 5, 8)


def test_projections_behind_the_views_of_attention() -> None:
    """The bias of a projection is looked at where attention uses it, whatever the heads are cut by."""

    @px.rule
    def scored(x: Any, w: Any, b: Any, k: Any, heads: Any) -> Any:
        return torch.matmul(px.through(functional.linear(x, w, b), heads), k)

    @scored.becomes
    def _(m: px.Match, x: Any, w: Any, b: Any, k: Any, heads: Any) -> Any:
        assert str(heads) == "[]" or len(m["heads"].nodes) == 2
        return torch.matmul(heads(functional.linear(x, w) + b), k)

    model, x = Attention().eval(), torch.randn(2, 5, 8)
    flat = px.import_ep(torch.export.export(model, (x,)))
    result = scored(flat)
    assert names_of_operators(result).count("aten.add.Tensor") == 1
    assert not px.verify(result, infer=True)
    torch.testing.assert_close(px.lower(result)(x), model(x))


def test_one_chain_in_two_places() -> None:
    rule = px.rule(lambda x, y, c: px.through(x.exp(), c) * px.through(y.exp(), c)).becomes(lambda m, x, y, c: c((x + y).exp()))
    same = rewritten(rule, lambda m, x: x.exp().view(-1) * x.sin().exp().view(-1) + 1, X)
    assert same[0] == [f"aten.{name}" for name in ("sin.default", "add.Tensor", "exp.default", "view.default", "add.Tensor")]
    assert rewritten(rule, lambda m, x: x.exp().view(-1) * x.sin().exp().reshape(-1) + 1, X) == [[], []]


def test_laws() -> None:
    wrong = px.rule(lambda x: torch.neg(px.through(torch.neg(x)))).becomes(lambda m, x: x.clone())
    with pytest.raises(AssertionError, match="meaning"):  # where there is a view, the shape is another one
        check_rule(wrong, examples=share(4))
    kept = px.rule(lambda x, c: torch.neg(px.through(torch.neg(x), c))).becomes(lambda m, x, c: c(x).clone())
    assert check_rule(kept, examples=share(8)).matched >= 4
    casts = px.rule(lambda x, c: torch.neg(px.through(torch.neg(x), c, casts=True))).becomes(lambda m, x, c: c(x).clone())
    with pytest.raises(
        AssertionError, match="meaning"
    ):  # of whole numbers zero has no sign, and of those that they are cast to it has
        check_rule(casts, examples=share(30))
