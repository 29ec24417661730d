"""Patterns that look through views and casts: what they find, what the replacement gets, and what other users keep from it."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules import X, rewritten


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
