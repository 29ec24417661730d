"""Rules on generated programs, drawn around what the rules look for: writes in between, views, other users, shared bodies."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.laws.asking import LawBroken
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from purefx.transforms.rules.legality import Legality
from tests.transforms.rulesets import OF_RESULTS
from tests.transforms.test_rules import X, of, rewritten

neg = torch.neg
CANCELLED = of(lambda x: neg(neg(x)), lambda m, x: x)
EVEN = of(
    lambda x: torch.abs(neg(x)),
    lambda m, x: torch.abs(x),
    where=lambda m: m.dtype("x") == torch.float32,
)
UNCLONED = of(lambda x: neg(x.clone()), lambda m, x: neg(x))
NEVER_CLONED = of(lambda x: x.clone(), lambda m, x: x, where=lambda m: m.val("x").is_contiguous())
RESHAPED = of(lambda x, size: neg(x.reshape(size)), lambda m, x, size: neg(x).reshape(size))

RULES: dict[str, px.RuleSet] = {
    "copied": of(lambda x: neg(neg(x)), lambda m, x: x.clone()),
    "even": EVEN,
    "reshaped": RESHAPED,
    "uncloned": UNCLONED,
    "never cloned": NEVER_CLONED,
    "top down": (CANCELLED + EVEN + UNCLONED).top_down(),
}


@pytest.mark.parametrize("name", RULES)
def test_the_meaning_is_kept(name: str) -> None:
    assert check_rule(RULES[name], laws=OF_RESULTS, examples=share(4)).changed >= 2


def test_a_condition_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Legality, "check_memory", lambda *_: None)
    with pytest.raises((LawBroken, px.PurefxError)):
        check_rule(CANCELLED, examples=40)


def test_one_chain_in_two_places() -> None:
    rule = px.rule(lambda x, y, c: px.through(x.exp(), c) * px.through(y.exp(), c)).becomes(
        lambda m, x, y, c: c((x + y).exp())
    )
    same = rewritten(rule, lambda m, x: x.exp().view(-1) * x.sin().exp().view(-1) + 1, X)
    assert same[0] == [
        f"aten.{name}"
        for name in ("sin.default", "add.Tensor", "exp.default", "view.default", "add.Tensor")
    ]
    assert rewritten(rule, lambda m, x: x.exp().view(-1) * x.sin().exp().reshape(-1) + 1, X) == [
        [],
        [],
    ]


def test_laws() -> None:
    wrong = px.rule(lambda x: torch.neg(px.through(torch.neg(x)))).becomes(lambda m, x: x.clone())
    with pytest.raises(
        AssertionError, match="meaning"
    ):  # where there is a view, the shape is another one
        check_rule(wrong, examples=share(4))
    kept = px.rule(lambda x, c: torch.neg(px.through(torch.neg(x), c))).becomes(
        lambda m, x, c: c(x).clone()
    )
    assert check_rule(kept, laws=OF_RESULTS, examples=share(4)).changed >= 2
    casts = px.rule(lambda x, c: torch.neg(px.through(torch.neg(x), c, casts=True))).becomes(
        lambda m, x, c: c(x).clone()
    )
    with pytest.raises(
        AssertionError, match="meaning"
    ):  # of whole numbers zero has no sign, and of those that they are cast to it has
        check_rule(casts, examples=share(30))
