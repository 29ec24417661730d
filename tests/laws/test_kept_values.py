"""``check_rule`` draws programs in which kept inner values and assertions matter: it finds rules that would lose a write."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.laws.asking import LawBroken
from purefx.laws.rules import RULE_LAWS, check_rule
from purefx.laws.rules.build import KEPT, is_cast, simplest
from purefx.laws.rules.checking import Once
from purefx.laws.rules.instances import Operand, instance_of
from purefx.laws.tiers import share
from purefx.transforms.rules import legality
from tests.tables import in_turns
from tests.transforms.rulesets import OF_RESULTS
from tests.transforms.test_rules import of
from tests.transforms.test_rules_several import is_float, is_matrix

OPTIONS: dict[str, Any] = {"keeps_inner": True, "once": True}

KEPT_RULES: dict[str, px.Rule] = {
    "a turned value": of(
        lambda x: x.sin().t(), lambda m, x: x.t().sin(), where=is_matrix, **OPTIONS
    ),
    "a part": of(lambda x: x.sin()[:1], lambda m, x: x[:1].sin(), where=is_matrix, **OPTIONS),
    "a view of a view": of(
        lambda x: x.sin().exp().unsqueeze(0).unsqueeze(0),
        lambda m, x: x.unsqueeze(0).unsqueeze(0).sin().exp(),
        where=is_float,
        **OPTIONS,
    ),
    "one of two results": of(
        lambda x: ((y := x.sin().exp()).unsqueeze(0), y.cos()),
        lambda m, x: (x.unsqueeze(0).sin().exp(), x.sin().exp().cos()),
        where=is_float,
        **OPTIONS,
    ),
}


@pytest.mark.parametrize("name", KEPT_RULES)
def test_a_rule_that_keeps_a_viewed_value_keeps_the_laws(name: str) -> None:
    assert check_rule(KEPT_RULES[name], laws=OF_RESULTS, examples=share(4)).changed >= 2


@in_turns(name=list(KEPT_RULES), law=("meaning", "memory"))
def test_the_laws_find_a_legality_that_forgets_kept_values(
    name: str, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legality.Legality, "_check_kept", lambda *_: None)
    asked = [each for each in RULE_LAWS if each.name == law]
    with pytest.raises(LawBroken, match=f"breaks the law '{law}'"):
        check_rule(KEPT_RULES[name], laws=asked, examples=share(3))


def added(x: Any, r: Any) -> Any:
    s = x + r
    return torch.sin(s.to(torch.float64)) * 2, s


def added_once(m: px.Match, x: Any, r: Any) -> Any:
    s = torch.add(x, r)
    return torch.sin(s.to(torch.float64)) * 2, s


CAST = {
    "two results": (added, added_once),
    "one result": (lambda x, r: added(x, r)[0], lambda m, x, r: added_once(m, x, r)[0]),
}


@pytest.mark.parametrize("keeps_inner", [False, True])
@pytest.mark.parametrize("name", CAST)
def test_an_assertion_of_a_cast_bars_no_match(name: str, keeps_inner: bool) -> None:
    pattern, replacement = CAST[name]
    rule = of(pattern, replacement, once=True, keeps_inner=keeps_inner)
    operands = [Operand(torch.ones(2, 3)), Operand(torch.ones(2, 3))]
    found = instance_of(pattern, operands, ("x", "r"))
    assert found is not None and any(map(is_cast, found.nodes))
    found = evolve(found, keeps_inner=keeps_inner)
    for kept in filter(lambda kept: "written" not in kept, dict.fromkeys(KEPT)):
        plain, asserted = (simplest(found, kept=kept, asserted=each) for each in (False, True))
        assert plain is not None and asserted is not None
        names = [node.do.name for node in asserted.program.main.nodes if type(node.do) is px.Op]
        assert "aten._assert_tensor_metadata.default" in names
        counts = [len(Once(rule.transformation).matches(one.program)) for one in (plain, asserted)]
        assert counts == [1, 1]


@pytest.mark.parametrize("keeps_inner", [False, True])
def test_rules_of_several_results_over_casts_keep_the_laws(keeps_inner: bool) -> None:
    rule = of(added, added_once, where=is_float, once=True, keeps_inner=keeps_inner)
    assert check_rule(rule, laws=OF_RESULTS, examples=share(4)).changed >= 2
