"""Rules on generated programs, drawn around what the rules look for: writes in between, views, other users, shared bodies."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.laws.asking import LawBroken
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from purefx.transforms.rules.legality import Legality
from tests.transforms.test_rules import of

neg = torch.neg
CANCELLED = of(lambda x: neg(neg(x)), lambda m, x: x)
EVEN = of(lambda x: torch.abs(neg(x)), lambda m, x: torch.abs(x), where=lambda m: m.dtype("x") == torch.float32)
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
    assert check_rule(RULES[name], examples=share(8)).matched >= 4


def test_a_condition_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Legality, "shares_alike", lambda *_, **__: True)
    with pytest.raises((LawBroken, px.PurefxError)):
        check_rule(CANCELLED, examples=40)
