"""``check_rule``: rules that are wrong in one way are found, right ones pass, and a rule that is not met is no rule that holds.

A check that cannot fail says nothing; so most of what is here must fail, each by the law that the mistake breaks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from torch.nn import functional

import purefx as px
from purefx.laws.asking import LawBroken
from purefx.laws.checking import NothingChecked, WrongQuestion
from purefx.laws.law import GRADIENTS
from purefx.laws.rules import RULE_LAWS, check_rule
from purefx.laws.rules.build import build
from purefx.laws.rules.instances import Operand, instance_of
from purefx.laws.tiers import share

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}

Function = Callable[..., Any]

neg = torch.neg


def of(pattern: Function, replacement: Function, **options: Any) -> px.Rule:
    return px.rule(**options)(pattern).becomes(replacement)


def is_float(m: px.Match) -> bool:
    known = m.dtype("x")
    return known is not None and known.is_floating_point


def has_signs(m: px.Match) -> bool:
    known = m.dtype("x")
    return known is not None and known.is_signed


def same_kind(*names: str) -> Callable[[px.Match], bool]:
    def agrees(m: px.Match) -> bool:
        return is_float(m) and all(m.dtype(name) is m.dtype("x") for name in names)

    return agrees


def is_square(m: px.Match) -> bool:
    rows = m.shape("x")
    return rows is not None and len(rows) == 2 and rows[0] == rows[1]


WRONG: dict[str, tuple[px.RuleSet, str]] = {
    "meaning": (of(lambda x: torch.relu(x), lambda m, x: x), "meaning"),
    "dtype": (of(lambda x: torch.exp(torch.sin(x)), lambda m, x: torch.exp(x.double()), where=is_float), "meaning"),
    "zeros": (of(lambda x: x / x, lambda m, x: torch.ones_like(x), where=is_float), "meaning"),
    "shape": (of(lambda x, y: x * 0 + y, lambda m, x, y: y.clone(), where=same_kind("y")), "meaning"),
    "sign of zero": (of(lambda x: x + 0, lambda m, x: x.clone(), where=is_float), "meaning"),
    "only contiguous": (of(lambda x: x.reshape(-1), lambda m, x: x.view(-1)), "valid"),
    "odd sizes": (
        of(lambda x: (h := x.chunk(2, -1))[0] * torch.sigmoid(h[1]), lambda m, x: functional.glu(x), where=is_float), "meaning",
    ),
    "size one": (of(lambda x: x.squeeze(0), lambda m, x: x.select(0, 0)), "valid"),
    "a condition on one size": (
        of(lambda x: x.transpose(0, 1), lambda m, x: x.clone(), where=lambda m: (m.shape("x") or (0,))[0] == 2), "meaning",
    ),
    "a number that is a tensor": (of(lambda x, n: x / n, lambda m, x, n: x * (1 / 2)), "meaning"),
    "the size of the example": (
        of(lambda x: x.relu(), lambda m, x: x.clamp(0).reshape(int(m.root.meta["val"].shape[0])),
           where=lambda m: m.val("x").dim() == 1),
        "valid",
    ),
    "order": (of(lambda x, w: (x @ w).relu(), lambda m, x, w: (w @ x).clamp_min(0), where=is_square), "valid"),
    "what is drawn": (of(lambda x: torch.tanh(x), lambda m, x: torch.rand_like(x), any_effects=True), "meaning"),
}  # fmt: skip


FEW, RARE = 12, ("only contiguous", "odd sizes", "size one")
"""So many programs show every mistake but the rare ones, which are seen in as many as are drawn without a number."""


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found(name: str) -> None:
    rule, law = WRONG[name]
    with pytest.raises(LawBroken) as caught:
        check_rule(rule, examples=None if name in RARE else share(FEW))
    assert caught.value.law is not None
    assert caught.value.law.name == law, str(caught.value)
    assert caught.value.case is not None
    told, _, text = str(caught.value).partition("on the program\n")
    if law == "meaning":
        assert "called with:\n  (" in told and "got " in told.partition("called with:")[0]
    state = caught.value.case.program.state
    program = px.parse(text, state=state)
    assert not px.verify(program)
    assert len([*program.nodes()]) <= 8, text


def is_attention(m: px.Match) -> bool:
    shapes = [m.shape(name) for name in "qkv"]
    alike = (
        len({m.dtype(name) for name in "qkv"}) == 1
        and m.dtype("q") == torch.float32
        and isinstance(m["by"], float)
    )
    fits = all(
        len(shape or ()) > 2 and (shape or ())[:-2] == (shapes[0] or ())[:-2] for shape in shapes
    )
    return (
        alike
        and fits
        and m["by"] != 0
        and all(size != 0 for shape in shapes for size in shape or ())
    )


def attended(q: Any, k: Any, v: Any, by: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) / by, -1) @ v


def heads(draw: Any) -> tuple[Any, ...]:
    length, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    return *[torch.randn(2, length, size) for _ in range(3)], draw(st.sampled_from((1.0, 2.0, 8.0)))


RIGHT: dict[str, tuple[px.RuleSet, dict[str, Any]]] = {
    "even beside": (of(lambda x: torch.abs(neg(x)), lambda m, x: torch.abs(x), where=has_signs, keeps_inner=True), {}),
    "selected": (of(lambda x, d, i: neg(x.select(d, i)), lambda m, x, d, i: neg(x).select(d, i)), {}),
    "fused": (
        of(lambda x, w, b: torch.relu(functional.linear(x, w, b)), lambda m, x, w, b: functional.linear(x, w, b).clamp(0)), {},
    ),
    "attended": (
        of(attended, lambda m, q, k, v, by: functional.scaled_dot_product_attention(q, k, v, scale=1 / by), where=is_attention),
        {**CLOSE, "operands": heads},
    ),
    "alternatives in a list": (
        of(lambda x: torch.cat([px.any_of(x.relu(), x.clamp(0)), x]), lambda m, x: torch.cat([x.clamp_min(0), x])),
        {"finite": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_finite", [False, True])
@pytest.mark.parametrize("fill", [-math.inf, torch.finfo(torch.float32).min])
def test_what_a_match_computes_is_no_operand_of_the_next_where_it_is_infinite(
    is_finite: bool, fill: float
) -> None:
    def hidden(x: Any) -> Any:
        return torch.full_like(x, fill) + (x - x)

    instance = instance_of(hidden, [Operand(torch.ones(3), finite=is_finite)], ("x",))
    assert instance is not None
    # The second match gets the sum, which is infinite or nearly so, or the difference, which is not.
    for feed, is_drawn in (("value", not is_finite), ("earlier value", True)):
        chosen = {"hits": iter([2]), "feed": iter(["input", feed]), "end": iter([1, 1])}
        found = build(
            lambda name, several, chosen=chosen: next(chosen.get(name, iter(several))), [instance]
        )
        assert (found is not None) == is_drawn


@pytest.mark.parametrize("is_finite", [False, True])
def test_a_pattern_on_finite_numbers_is_infinite_only_where_it_is_on_its_own_operands(
    is_finite: bool,
) -> None:
    for pattern, hits, is_drawn in (
        (lambda x: x.exp().exp(), 2, not is_finite),
        (lambda x: x.log().exp(), 1, True),
    ):
        instance = instance_of(pattern, [Operand(torch.ones(3), finite=is_finite)])
        assert instance is not None
        chosen = {"hits": iter([hits]), "feed": iter(["input", "value"])}
        found = build(
            lambda name, several, chosen=chosen: next(chosen.get(name, iter(several))), [instance]
        )
        assert (found is not None) == is_drawn


def reads_floats(m: px.Match) -> bool:
    held = m.tensor("w")
    return held is not None and held.dtype is m.dtype("x") is torch.float32


SOME = [law for law in RULE_LAWS if law.name in ("valid", "meaning", "memory", "inferred")]


def test_a_rule_that_asks_for_state_gets_it() -> None:
    def negated(x: Any, w: Any) -> Any:
        return neg(functional.linear(x, w))

    right = of(
        negated,
        lambda m, x, w: functional.linear(x, m.parameter("neg", -m.tensor(w))),
        where=reads_floats,
    )
    report = check_rule(
        right, laws=SOME, examples=10, changes_state=True, rtol=1e-6, atol=1e-6, finite=True
    )
    assert report.changed >= 5
    wrong = of(
        negated,
        lambda m, x, w: functional.linear(x, m.parameter("neg", m.tensor(w))),
        where=reads_floats,
    )
    with pytest.raises(LawBroken, match="the meaning is kept"):
        check_rule(wrong, laws=SOME, examples=10, changes_state=True)


def test_a_rule_that_asks_for_a_constant_gets_one() -> None:
    def negated(x: Any, w: Any) -> Any:
        return neg(x * w)

    is_fixed = px.rule(
        negated,
        where=lambda m: (
            m.constant("w") is not None and m.dtype("x") == m.dtype("w") == torch.float32
        ),
    )
    assert (
        check_rule(
            is_fixed.becomes(lambda m, x, w: x * neg(w)), laws=SOME, examples=10, finite=True
        ).changed
        >= 5
    )


def test_a_rule_of_one_operator_is_asked_on_programs() -> None:
    shifted = px.rule(lambda m: m.value * 2, at=torch.ops.aten.linear, once=True)
    model = torch.nn.Linear(2, 2), (torch.ones(1, 2),)
    with pytest.raises(LawBroken, match="the meaning is kept"):
        check_rule(shifted, programs=[model])
    with pytest.raises(WrongQuestion, match="has no pattern"):
        check_rule(shifted)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_passes(name: str) -> None:
    rule, options = RIGHT[name]
    asked = share(4)
    report = check_rule(rule, examples=asked, **options)
    assert 2 * report.changed >= report.drawn >= 2 * asked // 3


def test_a_rule_that_never_matches_is_no_rule_that_holds() -> None:
    never = of(lambda x: torch.relu(x), lambda m, x: x, where=lambda m: m.shape("x") == (17, 19))
    with pytest.raises(NothingChecked) as caught:
        check_rule(never)
    text = str(caught.value)
    assert "did not match; its condition (where=) was false for all" in text
    assert "On (x=float32[" in text
    assert "operands=lambda draw:" in text


def test_operands_of_the_user_reach_a_condition() -> None:
    rare = of(lambda x: torch.relu(x), lambda m, x: x, where=lambda m: m.shape("x") == (17, 19))
    with pytest.raises(LawBroken, match="the meaning is kept"):
        check_rule(rare, operands=lambda draw: (torch.randn(17, 19),))
    positive = of(lambda x: torch.abs(x), lambda m, x: x.clone(), where=is_float)
    with pytest.raises(LawBroken):
        check_rule(positive, examples=5)
    assert (
        check_rule(
            positive,
            examples=5,
            operands=st.builds(lambda n: (torch.arange(1.0, n),), st.integers(2, 5)),
        ).changed
        >= 3
    )


def test_a_rule_that_matches_in_few_programs_is_named_with_what_was_tried() -> None:
    # It is applied to a vector where there is little else in a program.
    def is_alone(m: px.Match) -> bool:
        return (
            len(m.program.graphs) == 1
            and len(m.program.main.nodes) == 2
            and len(m.shape("x") or ()) == 1
        )

    rule = of(lambda x: torch.relu(x), lambda m, x: x.clamp_min(0), where=is_alone)
    message = r"(?s)matched in \d+ of (\d+) programs .* less than half.*Tried: <lambda> on \(x="
    with pytest.raises(NothingChecked, match=message) as caught:
        check_rule(rule, examples=10)
    found = re.search(message, str(caught.value))
    assert (
        found and 10 < int(found[1]) <= 40
    )  # of two runs; programs that do not run are not counted


def test_a_rule_that_another_keeps_from_matching_is_named() -> None:
    def shadowed(x: Any) -> Any:
        return torch.relu(x)

    first = of(lambda x: torch.relu(x), lambda m, x: x.clamp_min(0))
    with pytest.raises(NothingChecked, match="shadowed never matched because other rules"):
        check_rule(first + of(shadowed, lambda m, x: x.clamp_min(0)), examples=5)


def test_programs_of_the_user_are_asked_first_and_alone_where_there_is_no_pattern() -> None:
    soft = of(lambda x: torch.relu(x), lambda m, x: torch.tanh(x))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), (torch.ones(1, 2),)
    with pytest.raises(LawBroken, match="the meaning is kept") as caught:
        check_rule(soft, programs=[model], examples=0)
    assert "with the state:" in str(caught.value)
    right = of(lambda x: torch.relu(x), lambda m, x: x.clamp(0))
    assert check_rule(right, programs=[model], examples=0, laws=SOME[1:2]).given_changed == 1
    with pytest.raises(NothingChecked, match="matched in none of 1 programs"):
        check_rule(soft, programs=[(torch.nn.Linear(2, 2), (torch.ones(1, 2),))], examples=0)


WRONG_QUESTIONS: list[tuple[Any, dict[str, Any], str]] = [
    (px.sink_state, {}, "takes a rule, px.rule"),
    (of(lambda x: x.relu(), lambda m, x: x.clamp(0)), {"operands": 5}, "a function of `draw`"),
    (of(lambda x: x.relu(), lambda m, x: x.clamp(0)), {"rtol": -1}, "are numbers of at least 0"),
    (of(lambda x: x.relu(), lambda m, x: x.clamp(0)), {"examples": 0}, "a whole number above 0"),
]


@pytest.mark.parametrize(("rule", "options", "said"), WRONG_QUESTIONS)
def test_a_wrong_question_is_explained(rule: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongQuestion, match=said):
        check_rule(rule, **options)


def test_a_rule_without_a_replacement_says_so() -> None:
    with pytest.raises(px.errors.RuleError, match="has no replacement"):
        check_rule(px.rule(lambda x: torch.relu(x)))


def test_laws_that_apply_a_rule_many_times_name_it_too() -> None:
    clamped = of(lambda x: torch.relu(x), lambda m, x: x.clamp_min(0), where=is_float)
    with pytest.raises(LawBroken, match=r"^<lambda> breaks the law 'gradients'"):
        check_rule(clamped, laws=[GRADIENTS], examples=10)


def test_programs_that_no_exporter_gives_are_not_drawn() -> None:
    # How many parts there are differs with the size: with one that grows, those that the pattern joins are not all.
    joined = of(
        lambda x: torch.cat([(c := x.chunk(3, -1))[0], c[1]], -1),
        lambda m, x: x,
        where=is_joined_again,
    )
    assert check_rule(joined, laws=SOME, examples=20, seed=3).changed > 10


def is_joined_again(m: px.Match) -> bool:
    return m.shape("x") is not None and m.shape("x") == m.shape(px.Ref(m.root.name))
