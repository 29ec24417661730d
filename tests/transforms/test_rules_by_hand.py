"""Rules on programs of a few nodes, written by hand: what becomes of them, and where effects, memory or users are in the way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purefx as px

HEAD = """program {
  facts (flat)
  takes {
    user x: f32[2]
    user z: f32[2]
  }
"""

POSITIVE = px.rule(lambda x: torch.relu(torch.exp(x))).becomes(lambda m, x: torch.tanh(x))
KEEPS = px.rule(lambda x: torch.relu(torch.exp(x)), keeps_inner=True).becomes(lambda m, x: torch.tanh(x))
RELU = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
ONCE = px.rule(lambda x: torch.relu(x), once=True).becomes(lambda m, x: torch.relu(x) + 1)
BOTH = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(lambda m, x: (torch.tanh(x), torch.exp(x)))
CHAIN = px.rule(lambda x, y: (torch.sin(x), torch.sin(x) + y)).becomes(lambda m, x, y: (torch.cos(x), torch.exp(x) + y))
NO_COPY = px.rule(lambda x: x.clone()).becomes(lambda m, x: x)
NO_NEG = px.rule(lambda x: torch.neg(x)).becomes(lambda m, x: x)
COPY = px.rule(lambda x: torch.t(x)).becomes(lambda m, x: x.clone())
VIEWS = px.rule(lambda x: x.view([2]).view([2])).becomes(lambda m, x: x.view([2]))
LESS = px.rule(lambda x: functional.dropout(x, 0.5)).becomes(lambda m, x: functional.dropout(x, 0.25))
EITHER = px.rule(lambda x: torch.neg(px.any_of(torch.relu(x), torch.exp(x)))).becomes(lambda m, x: torch.tanh(x))


OUTSIDE = px.rule(lambda x, shape: torch.relu(px.through(x.exp(), shape))).becomes(
    lambda m, x, shape: shape(torch.clamp_min(x.exp(), 0))
)
GATED = px.rule(lambda x: (either := px.any_of(torch.relu(x), torch.exp(x))) * either).becomes(lambda m, x: torch.tanh(x))


def drawn_once(x: Tensor) -> Tensor:
    y = functional.dropout(x, 0.5)
    return y + y


def drawn_twice(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.5) + functional.dropout(x, 0.5)


DRAWN_ONCE = px.rule(drawn_once).becomes(lambda m, x: functional.dropout(x, 0.5) * 2)
DRAWN_TWICE = px.rule(drawn_twice).becomes(lambda m, x: functional.dropout(x, 0.5) * 2)
DOUBLED = px.rule(lambda x: torch.relu(x) + torch.relu(x)).becomes(lambda m, x: torch.relu(x) * 2)

EXP, AND = "y = aten.exp.default(x)", "w = aten.add_.Tensor"
SIN, COS = "a = aten.sin.default(x)", "b = aten.cos.default(x)"
TANH = "tanh = aten.tanh.default(x)"
OPEN, SHUT = "o = toy.open() ! opens", "c = toy.shut() ! closes"
DROP = "aten.dropout.default(x, 0.5, True)"

BECOMES: list[tuple[str, px.RuleSet, str, str]] = [
    ("two", POSITIVE, f"{EXP}; r = aten.relu.default(y); r", f"{TANH}; tanh"),
    ("written before", POSITIVE, f"{AND}(x, 1); {EXP}; r = aten.relu.default(y); r", f"{AND}(x, 1); {TANH}; tanh"),
    ("kept", KEEPS, f"{EXP}; r = aten.relu.default(y); r, y", f"{EXP}; {TANH}; tanh, y"),
    ("in a region", POSITIVE, f"{OPEN}; {EXP}; r = aten.relu.default(y); {SHUT}; r", f"{OPEN}; {TANH}; {SHUT}; tanh"),
    ("in a module", POSITIVE, f"{EXP} in m; r = aten.relu.default(y) in m; r", f"{TANH} in m; tanh"),
    ("in two modules", POSITIVE, f"{EXP} in m; r = aten.relu.default(y) in m / m.n; r", f"{TANH} in m; tanh"),
    ("several, turned", BOTH, f"{COS}; {SIN}; b, a", f"{TANH}; exp = aten.exp.default(x); exp, tanh"),
    ("a user between", BOTH, f"{SIN}; u = aten.neg.default(a); {COS}; u, b",
     f"{TANH}; exp = aten.exp.default(x); u = aten.neg.default(tanh); u, exp"),
    ("one result of another", CHAIN, f"{SIN}; u = aten.neg.default(a); s = aten.add.Tensor(a, z); u, s",
     "cos = aten.cos.default(x); exp = aten.exp.default(x); add = aten.add.Tensor(exp, z); u = aten.neg.default(cos); u, add"),
    ("an operand before a user", CHAIN,
     f"{SIN}; v = aten.neg.default(z); u = aten.neg.default(a); s = aten.add.Tensor(a, v); u, s",
     ("v = aten.neg.default(z); cos = aten.cos.default(x); exp = aten.exp.default(x); add = aten.add.Tensor(exp, v); "
     "u = aten.neg.default(cos); u, add")),
    ("a copy", NO_COPY, "a = aten.clone.default(x); b = aten.neg.default(a); b", "b = aten.neg.default(x); b"),
    ("views", VIEWS, f"a = aten.view.default(x, [2]); b = aten.view.default(a, [2]); {AND}(b, 1); w",
     f"view = aten.view.default(x, [2]); {AND}(view, 1); w"),
    ("a draw", LESS, f"d = {DROP}; r = aten.relu.default(d); r",
     "dropout = aten.dropout.default(x, 0.25, True); r = aten.relu.default(dropout); r"),
    ("itself", ONCE, "r = aten.relu.default(x); r", "relu = aten.relu.default(x); add = aten.add.Tensor(relu, 1); add"),
    ("one value twice", DOUBLED, "a = aten.relu.default(x); b = aten.add.Tensor(a, a); b",
     "relu = aten.relu.default(x); mul = aten.mul.Tensor(relu, 2); mul"),
    ("two equal values", DOUBLED, "a = aten.relu.default(x); e = aten.relu.default(x); b = aten.add.Tensor(a, e); b",
     "relu = aten.relu.default(x); mul = aten.mul.Tensor(relu, 2); mul"),
    ("what is drawn once", DRAWN_ONCE, f"a = {DROP}; b = aten.add.Tensor(a, a); b",
     f"dropout = {DROP}; mul = aten.mul.Tensor(dropout, 2); mul"),
    ("the second of two", EITHER, "a = aten.exp.default(x); b = aten.neg.default(a); b", f"{TANH}; tanh"),
    ("nothing", NO_NEG, "a = aten.neg.default(x); b = aten.neg.default(a); e = aten.exp.default(b); e",
     "e = aten.exp.default(x); e"),
    ("through two views, which are written again", OUTSIDE,
     f"{EXP}; v = aten.view.default(y, [2, 1]); t = aten.t.default(v); r = aten.relu.default(t); r",
     ("exp = aten.exp.default(x); clamp_min = aten.clamp_min.default(exp, 0); view = aten.view.default(clamp_min, [2, 1]); "
     "t_1 = aten.t.default(view); t_1")),
    ("larger ones first", POSITIVE + RELU, f"{EXP}; b = aten.relu.default(y); e = aten.relu.default(b); e",
     f"{TANH}; tanh_1 = aten.tanh.default(tanh); tanh_1"),
    ("smaller ones first", RELU + POSITIVE, f"{EXP}; b = aten.relu.default(y); e = aten.relu.default(b); e",
     f"{EXP}; tanh = aten.tanh.default(y); tanh_1 = aten.tanh.default(tanh); tanh_1"),
]  # fmt: skip

LEFT: list[tuple[str, px.RuleSet, str]] = [
    ("its operand is written between", POSITIVE, f"{EXP}; {AND}(x, 1); r = aten.relu.default(y); r"),
    ("the inner value is written", POSITIVE, f"{EXP}; {AND}(y, 1); r = aten.relu.default(y); r"),
    ("the inner value is returned", POSITIVE, f"{EXP}; r = aten.relu.default(y); r, y"),
    ("another uses the inner value", POSITIVE, f"{EXP}; r = aten.relu.default(y); s = aten.neg.default(y); r, s"),
    ("kept, and written between", KEEPS, f"{EXP}; {AND}(x, 1); r = aten.relu.default(y); r, y"),
    ("a region opens between", POSITIVE, f"{EXP}; {OPEN}; r = aten.relu.default(y); {SHUT}; r"),
    ("a region closes between", BOTH, f"{OPEN}; {SIN}; {SHUT}; {COS}; a, b"),
    ("written between two results", BOTH, f"{SIN}; {AND}(x, 1); {COS}; a, b"),
    ("one result is an operand of the other", BOTH, f"{SIN}; u = aten.neg.default(a); b = aten.cos.default(u); a, b"),
    ("an operand needs a result", CHAIN, f"{SIN}; u = aten.neg.default(a); s = aten.add.Tensor(a, u); u, s"),
    ("an operand behind a user", CHAIN,
     f"{SIN}; u = aten.neg.default(a); v = aten.neg.default(z); s = aten.add.Tensor(a, v); u, s"),
    ("a copy that is returned", NO_COPY, "a = aten.clone.default(x); a"),
    ("a copy that is written", NO_COPY, f"a = aten.clone.default(x); {AND}(a, 1); b = aten.neg.default(w); b"),
    ("a view that is returned", COPY, "a = aten.t.default(x); a"),
    ("two equal values of two", DOUBLED, "a = aten.relu.default(x); e = aten.relu.default(z); b = aten.add.Tensor(a, e); b"),
    ("what is drawn twice", DRAWN_ONCE, f"a = {DROP}; e = {DROP}; b = aten.add.Tensor(a, e); b"),
    ("what is drawn once", DRAWN_TWICE, f"a = {DROP}; b = aten.add.Tensor(a, a); b"),
    ("none of two", EITHER, f"{SIN}; b = aten.neg.default(a); b"),
    ("a view in between is used", OUTSIDE,
     f"{EXP}; v = aten.view.default(y, [2, 1]); s = aten.neg.default(v); r = aten.relu.default(v); r, s"),
    ("a part in between", OUTSIDE, f"{EXP}; v = aten.slice.Tensor(y, 0, 0, 1); r = aten.relu.default(v); r"),
    ("one alternative of two in one place", GATED, f"{EXP}; r = aten.relu.default(x); m = aten.mul.Tensor(y, r); m"),
    ("the operand would be returned twice", NO_NEG, "a = aten.neg.default(x); a, x"),
    ("the result is written", NO_NEG, f"{EXP}; b = aten.neg.default(y); {AND}(b, 1); y"),
    ("the operand is written", NO_NEG, f"{EXP}; b = aten.neg.default(y); {AND}(y, 1); b"),
]  # fmt: skip


def given(text: str) -> px.Program:
    """Return a valid program of nodes, and of what it returns behind the last of them."""
    *nodes, results = text.split("; ")
    count = results.count(",") + 1
    gives = "  gives {\n" + "    user\n" * count + "  }\n"
    body = "\n".join(nodes).replace(" in m", "  in m")
    program = px.parse(f'{HEAD}{gives}  graph @""(x, z) {{\n{body}\nreturn ({results}{"," if count == 1 else ""})\n}}\n}}')
    assert px.verify(program) == ()
    return px.infer(program)


def text_of(program: px.Program) -> str:
    """Return its nodes and its results as they were written."""
    lines = [" ".join(line.split()) for line in str(program.main).splitlines()[1:-1]]
    return "; ".join([*lines[:-1], lines[-1].removeprefix("return (").removesuffix(")").removesuffix(",")])


@pytest.mark.parametrize(("name", "rule", "before", "after"), BECOMES, ids=[case[0] for case in BECOMES])
def test_what_becomes_of_it(name: str, rule: px.RuleSet, before: str, after: str) -> None:
    made = rule(given(before))
    assert text_of(made) == after, name
    assert px.verify(made, infer=True) == ()


@pytest.mark.parametrize(("name", "rule", "before"), LEFT, ids=[case[0] for case in LEFT])
def test_it_stays_as_it_is(name: str, rule: px.RuleSet, before: str) -> None:
    program = given(before)
    assert rule(program) is program, name
