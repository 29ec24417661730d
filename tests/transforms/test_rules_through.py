"""Patterns that look through views and casts: what they find, what the replacement gets, and what other users keep from it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules import X, rewritten


def test_a_projection_behind_the_views_of_attention() -> None:
    """The bias of a projection is found where attention uses it, whatever the heads are cut by."""
    seen: list[str] = []
    scored = px.rule(lambda x, w, b, k, heads: torch.matmul(px.through(functional.linear(x, w, b), heads), k))

    @scored.becomes
    def _(m: px.Match, x: Any, w: Any, b: Any, k: Any, heads: Any) -> Any:
        seen.append(str(len(m["heads"].nodes)))
        return torch.matmul(heads(functional.linear(x, w) + b), k)

    def attended(m: Any, x: Tensor) -> Tensor:
        return m.up(x).view(3, 2, 2).transpose(0, 1) @ x.view(3, 2, 2).permute(1, 2, 0) + 1

    names = rewritten(scored, attended, X)
    assert names[0].count("aten.add.Tensor") == 2 and set(seen) == {"2"}


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
