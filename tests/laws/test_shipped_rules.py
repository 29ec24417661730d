"""``check_rule`` on the rules that come with the library: on some of them, and with ``make deep`` on each with fresh programs."""

from __future__ import annotations

import secrets

import pytest
import torch

import purefx as px
from purefx.laws.rules import RULE_LAWS
from purefx.laws.tiers import share

from .shipped import EVERY, checked

SAMPLE = 30
"""One in so many rules is asked each time."""

NAMES = [rule.name for _, rule in EVERY]

ATTENTION = [
    rule
    for kind, rule in EVERY
    if kind == "attention" and rule.name.startswith("attention") and "heads" not in rule.name
]


@pytest.mark.parametrize(("kind", "rule"), EVERY[::SAMPLE], ids=NAMES[::SAMPLE])
def test_a_shipped_rule_holds(kind: str, rule: px.Rule) -> None:
    report = checked(kind, rule, examples=share(3 if kind == "attention" else 6))
    assert report.given_changed or report.changed > 0


def test_where_writes_keep_most_matches_programs_without_are_drawn() -> None:
    kind, rule = EVERY[NAMES.index("split_sizes_cat_2")]
    meaning = [law for law in RULE_LAWS if law.name == "meaning"]
    assert checked(kind, rule, examples=15, seed=21, laws=meaning).drawn > 15


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "rule"), EVERY, ids=NAMES)
def test_every_shipped_rule_holds_on_many_programs(kind: str, rule: px.Rule) -> None:
    checked(kind, rule, examples=140, seed=secrets.randbits(32))


@pytest.mark.deep
@pytest.mark.parametrize("rule", ATTENTION, ids=[each.name for each in ATTENTION])
def test_attention_in_half_precision_holds_on_many_programs(rule: px.Rule) -> None:
    report = checked("attention", rule, examples=40, seed=secrets.randbits(32), dtype=torch.float16)
    assert 2 * report.changed >= report.drawn > 0
