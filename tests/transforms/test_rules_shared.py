"""Rules where somebody else uses, writes, returns or shares the memory of what they match: what is taken, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from tests.transforms.test_rules_by_hand import AND, DROP, EXP, KEEPS, NO_COPY, given, text_of


def same(m: px.Match, x: Any) -> Any:
    """Give one value for two."""
    y = torch.tanh(x)
    return y, y


def view(m: px.Match, x: Any) -> Any:
    """Give a value and a view of it."""
    y = torch.tanh(x)
    return y, y.t()


def further(m: px.Match) -> Any:
    """Look behind an operand for two draws."""
    found = m.match(lambda y: functional.dropout(y, 0.5) + functional.dropout(y, 0.5), m.arguments["self"])
    return None if found is None else functional.dropout(found[0], 0.5) * 2


SAME = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(same)
VIEW = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(view)
ONE_COPY = px.rule(lambda x: (x.t(), x.view([2]))).becomes(lambda m, x: (x.clone(), x.t()))
WIDER = px.rule(lambda x: x.double()).becomes(lambda m, x: m.call(torch.ops.aten._to_copy, x, dtype=torch.float64))
VIEWED = px.rule(lambda x: x.reshape([2])).becomes(lambda m, x: x.view([2]))
OF_ANOTHER = px.rule(lambda x: torch.neg(x).reshape([2])).becomes(lambda m, x: torch.exp(x).reshape([2]))
LARGEST = px.rule(lambda x: tuple(torch.max(x, 0))).becomes(lambda m, x: (x.amax(0), x.argmax(0)))
DRAWS = px.rule(at=torch.relu, any_effects=True)(further)
TWO = px.rule(lambda x, y: (torch.add(x, y), torch.atan2(x, y))).becomes(lambda m, x, y: (torch.mul(x, y), torch.sub(x, y)))
THREE = px.rule(lambda x, y: (torch.sin(x), torch.sin(x) * y, torch.cos(y))).becomes(
    lambda m, x, y: (torch.tanh(x), torch.tanh(x) + y, torch.exp(y))
)
INNER = px.rule(lambda x: (torch.sin(x), torch.sin(x).neg()), keeps_inner=True).becomes(
    lambda m, x: (torch.tanh(x), torch.exp(x))
)
PARTS = px.rule(lambda x: torch.neg(x)).becomes(lambda m, x: torch.exp(x))
WHOLE = px.rule(lambda x: torch.relu(torch.neg(x))).becomes(lambda m, x: torch.tanh(x))
LONGER = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(torch.exp(x)))
LISTED = px.rule(lambda x: torch.cat(x), once=True).becomes(lambda m, x: torch.cat([torch.neg(one) for one in x]))

SIN, COS = "a = aten.sin.default(x)", "b = aten.cos.default(x)"
TANH = "tanh = aten.tanh.default(x)"
CLONE = "a = aten.clone.default(x)"
OF_THREE = f"{TANH}; tanh_1 = aten.tanh.default(x); add = aten.add.Tensor(tanh_1, z); exp = aten.exp.default(z); tanh, add, exp"
OF_TWO = "mul = aten.mul.Tensor(x, z); sub = aten.sub.Tensor(x, z)"

TAKEN: list[tuple[str, px.RuleSet, str, str]] = [
    ("a user of what stays, before a write", KEEPS,
     f"{EXP}; s = aten.neg.default(y); {AND}(z, 1); r = aten.relu.default(y); r, s, w",
     f"{EXP}; s = aten.neg.default(y); {AND}(z, 1); {TANH}; tanh, s, w"),
    ("a view that nobody sees", NO_COPY, f"{CLONE}; b = aten.t.default(a); c = aten.neg.default(b); c",
     "b = aten.t.default(x); c = aten.neg.default(b); c"),
    ("a cast to another type is new memory", WIDER, "a = aten.to.dtype(x, torch.float64); a",
     "_to_copy = aten._to_copy.default(x, dtype=torch.float64); _to_copy"),
    ("perhaps a copy, that nobody sees", VIEWED, "a = aten.reshape.default(x, [2]); b = aten.neg.default(a); b",
     "view = aten.view.default(x, [2]); b = aten.neg.default(view); b"),
    ("perhaps a copy of another value", OF_ANOTHER, "n = aten.neg.default(x); a = aten.reshape.default(n, [2]); a",
     "exp = aten.exp.default(x); reshape = aten.reshape.default(exp, [2]); reshape"),
    ("results that an operator computes are apart", LARGEST,
     "m = aten.max.dim(x, 0); a = operator.getitem(m, 0); b = operator.getitem(m, 1); a, b",
     "amax = aten.amax.default(x, [0]); argmax = aten.argmax.default(x, 0); amax, argmax"),
    ("two draws that are looked for further", DRAWS,
     f"a = {DROP}; e = {DROP}; b = aten.add.Tensor(a, e); r = aten.relu.default(b); r",
     f"dropout = {DROP}; mul = aten.mul.Tensor(dropout, 2); mul"),
    ("the second of two", TWO, "a = aten.atan2.default(x, z); b = aten.add.Tensor(x, z); a, b", f"{OF_TWO}; sub, mul"),
    ("turned where the first commutes", TWO, "b = aten.add.Tensor(x, z); a = aten.atan2.default(z, x); a, b",
     "mul = aten.mul.Tensor(z, x); sub = aten.sub.Tensor(z, x); sub, mul"),
    ("three", THREE, f"c = aten.cos.default(z); {SIN}; b = aten.mul.Tensor(a, z); a, b, c", OF_THREE),
    ("a result that is inside of another", INNER, f"{SIN}; b = aten.neg.default(a); c = aten.exp.default(a); a, b, c",
     f"{TANH}; exp = aten.exp.default(x); c = aten.exp.default(tanh); tanh, exp, c"),
    ("parts first", PARTS + WHOLE, "n = aten.neg.default(x); r = aten.relu.default(n); r",
     "exp = aten.exp.default(x); r = aten.relu.default(exp); r"),
    ("the whole first", (PARTS + WHOLE).top_down(), "n = aten.neg.default(x); r = aten.relu.default(n); r", f"{TANH}; tanh"),
    ("several, one behind another", LONGER, "a = aten.relu.default(x); b = aten.relu.default(a); c = aten.relu.default(z); b, c",
     ("exp = aten.exp.default(x); tanh = aten.tanh.default(exp); exp_1 = aten.exp.default(tanh); "
     "tanh_1 = aten.tanh.default(exp_1); exp_2 = aten.exp.default(z); tanh_2 = aten.tanh.default(exp_2); tanh_1, tanh_2")),
    ("a list of values", LISTED, "a = aten.cat.default([x, z, x]); a",
     ("neg = aten.neg.default(x); neg_1 = aten.neg.default(z); neg_2 = aten.neg.default(x); "
     "cat = aten.cat.default([neg, neg_1, neg_2]); cat")),
]  # fmt: skip

LEFT: list[tuple[str, px.RuleSet, str]] = [
    ("a view of the result is returned", NO_COPY, f"{CLONE}; b = aten.t.default(a); b"),
    ("a view of the result is written", NO_COPY, f"{CLONE}; b = aten.t.default(a); {AND}(b, 1); c = aten.neg.default(a); c"),
    ("two values would be one", SAME, f"{SIN}; {COS}; a, b"),
    ("two values would share memory", VIEW, f"{SIN}; {COS}; a, b"),
    ("one of two views would be a copy", ONE_COPY, "a = aten.t.default(x); b = aten.view.default(x, [2]); a, b"),
    ("what may be a copy would be a view", VIEWED, "a = aten.reshape.default(x, [2]); a"),
    ("one draw is not two", DRAWS, f"a = {DROP}; b = aten.add.Tensor(a, a); r = aten.relu.default(b); r"),
    ("what is looked for further is used elsewhere", DRAWS,
     f"a = {DROP}; e = {DROP}; b = aten.add.Tensor(a, e); r = aten.relu.default(b); r, a"),
    ("three values, one of another", THREE, f"{SIN}; c = aten.cos.default(x); b = aten.mul.Tensor(z, a); a, b, c"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "before", "after"), TAKEN, ids=[case[0] for case in TAKEN])
def test_what_is_taken(name: str, rule: px.RuleSet, before: str, after: str) -> None:
    made = rule(given(before))
    assert text_of(made) == after, name
    assert px.verify(made, infer=True) == ()


@pytest.mark.parametrize(("name", "rule", "before"), LEFT, ids=[case[0] for case in LEFT])
def test_what_is_left(name: str, rule: px.RuleSet, before: str) -> None:
    program = given(before)
    assert rule(program) is program, name
