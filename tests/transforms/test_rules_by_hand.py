"""Rules on programs of a few nodes, written by hand: what becomes of them, and where effects, memory or users are in the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from tests.transforms.small import tree

HEAD = """program {
  facts (flat)
  takes {
    user x: f32[2]
    user z: f32[2]
  }
"""

POSITIVE = px.rule(lambda x: torch.relu(torch.exp(x))).becomes(lambda m, x: torch.tanh(x))
KEEPS = px.rule(lambda x: torch.relu(torch.exp(x)), keeps_inner=True).becomes(
    lambda m, x: torch.tanh(x)
)
RELU = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
ONCE = px.rule(lambda x: torch.relu(x), once=True).becomes(lambda m, x: torch.relu(x) + 1)
BOTH = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(
    lambda m, x: (torch.tanh(x), torch.exp(x))
)
CHAIN = px.rule(lambda x, y: (torch.sin(x), torch.sin(x) + y)).becomes(
    lambda m, x, y: (torch.cos(x), torch.exp(x) + y)
)
NO_COPY = px.rule(lambda x: x.clone()).becomes(lambda m, x: x)
NO_NEG = px.rule(lambda x: torch.neg(x)).becomes(lambda m, x: x)
COPY = px.rule(lambda x: torch.t(x)).becomes(lambda m, x: x.clone())
VIEWS = px.rule(lambda x: x.view([2]).view([2])).becomes(lambda m, x: x.view([2]))
LESS = px.rule(lambda x: functional.dropout(x, 0.5)).becomes(
    lambda m, x: functional.dropout(x, 0.25)
)
EITHER = px.rule(lambda x: torch.neg(px.any_of(torch.relu(x), torch.exp(x)))).becomes(
    lambda m, x: torch.tanh(x)
)
OUTSIDE = px.rule(lambda x, shape: torch.relu(px.through(x.exp(), shape))).becomes(
    lambda m, x, shape: shape(torch.clamp_min(x.exp(), 0))
)
GATED = px.rule(lambda x: (either := px.any_of(torch.relu(x), torch.exp(x))) * either).becomes(
    lambda m, x: torch.tanh(x)
)
DRAWN_ONCE = px.rule(lambda x: (y := functional.dropout(x, 0.5)) + y).becomes(
    lambda m, x: functional.dropout(x, 0.5) * 2
)
DRAWN_TWICE = px.rule(lambda x: functional.dropout(x, 0.5) + functional.dropout(x, 0.5)).becomes(
    lambda m, x: functional.dropout(x, 0.5) * 2
)
DOUBLED = px.rule(lambda x: torch.relu(x) + torch.relu(x)).becomes(lambda m, x: torch.relu(x) * 2)


def further(m: px.Match) -> Any:
    """Look behind an operand for two draws."""
    found = m.match(
        lambda y: functional.dropout(y, 0.5) + functional.dropout(y, 0.5), m.arguments["self"]
    )
    return None if found is None else functional.dropout(found[0], 0.5) * 2


LOOKS = px.rule(lambda x: torch.relu(x)).becomes(
    lambda m, x: torch.sin(x) if m.match(lambda y: torch.exp(y), x) is None else torch.cos(x)
)
SAME = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(lambda m, x: (y := torch.tanh(x), y))
VIEW = px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(
    lambda m, x: (y := torch.tanh(x), y.t())
)
ONE_COPY = px.rule(lambda x: (x.t(), x.view([2]))).becomes(lambda m, x: (x.clone(), x.t()))
WIDER = px.rule(lambda x: x.double()).becomes(
    lambda m, x: m.call(torch.ops.aten._to_copy, x, dtype=torch.float64)
)
VIEWED = px.rule(lambda x: x.reshape([2])).becomes(lambda m, x: x.view([2]))
OF_ANOTHER = px.rule(lambda x: torch.neg(x).reshape([2])).becomes(
    lambda m, x: torch.exp(x).reshape([2])
)
LARGEST = px.rule(lambda x: ((y := torch.max(x, 0))[0], y[1])).becomes(
    lambda m, x: (x.amax(0), x.argmax(0))
)
DRAWS = px.rule(at=torch.relu, any_effects=True)(further)
TWO = px.rule(lambda x, y: (torch.add(x, y), torch.atan2(x, y))).becomes(
    lambda m, x, y: (torch.mul(x, y), torch.sub(x, y))
)
THREE = px.rule(lambda x, y: (torch.sin(x), torch.sin(x) * y, torch.cos(y))).becomes(
    lambda m, x, y: (torch.tanh(x), torch.tanh(x) + y, torch.exp(y))
)
INNER = px.rule(lambda x: (torch.sin(x), torch.sin(x).neg()), keeps_inner=True).becomes(
    lambda m, x: (torch.tanh(x), torch.exp(x))
)
PARTS = px.rule(lambda x: torch.neg(x)).becomes(lambda m, x: torch.exp(x))
WHOLE = px.rule(lambda x: torch.relu(torch.neg(x))).becomes(lambda m, x: torch.tanh(x))
LONGER = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(torch.exp(x)))
LISTED = px.rule(lambda x: torch.cat(x), once=True).becomes(
    lambda m, x: torch.cat([torch.neg(one) for one in x])
)
EXP, AND = "y = aten.exp.default(x)", "w = aten.add_.Tensor"
SIN, COS = "a = aten.sin.default(x)", "b = aten.cos.default(x)"
TANH = "tanh = aten.tanh.default(x)"
OPEN, SHUT = "o = toy.open() ! opens", "c = toy.shut() ! closes"
DROP = "aten.dropout.default(x, 0.5, True)"
CLONE = "a = aten.clone.default(x)"
OF_THREE = f"{TANH}; tanh_1 = aten.tanh.default(x); add = aten.add.Tensor(tanh_1, z); exp = aten.exp.default(z); tanh, add, exp"
OF_TWO = "mul = aten.mul.Tensor(x, z); sub = aten.sub.Tensor(x, z)"

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
    ("one that looks further, two times", LOOKS, f"{EXP}; r = aten.relu.default(y); s = aten.relu.default(z); r, s",
     f"{EXP}; cos = aten.cos.default(y); sin = aten.sin.default(z); cos, sin"),
    ("larger ones first", POSITIVE + RELU, f"{EXP}; b = aten.relu.default(y); e = aten.relu.default(b); e",
     f"{TANH}; tanh_1 = aten.tanh.default(tanh); tanh_1"),
    ("smaller ones first", RELU + POSITIVE, f"{EXP}; b = aten.relu.default(y); e = aten.relu.default(b); e",
     f"{EXP}; tanh = aten.tanh.default(y); tanh_1 = aten.tanh.default(tanh); tanh_1"),
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
    ("its operand is written between", POSITIVE, f"{EXP}; {AND}(x, 1); r = aten.relu.default(y); r"),
    ("the inner value is written", POSITIVE, f"{EXP}; {AND}(y, 1); r = aten.relu.default(y); r"),
    ("the inner value is returned", POSITIVE, f"{EXP}; r = aten.relu.default(y); r, y"),
    ("another uses the inner value", POSITIVE, f"{EXP}; r = aten.relu.default(y); s = aten.neg.default(y); r, s"),
    ("a view of what is kept is written", KEEPS,
     f"{EXP}; t = aten.t.default(y); u = aten.add_.Tensor(t, 1); r = aten.relu.default(y); r, y"),
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


def given(text: str) -> px.Program:
    """Return a valid program of nodes, and of what it returns behind the last of them."""
    *nodes, results = text.split("; ")
    count = results.count(",") + 1
    gives = "  gives {\n" + "    user\n" * count + "  }\n"
    body = "\n".join(nodes).replace(" in m", "  in m")
    program = px.parse(
        f'{HEAD}{gives}  graph @""(x, z) {{\n{body}\nreturn ({results}{"," if count == 1 else ""})\n}}\n}}'
    )
    assert px.verify(program) == ()
    return px.infer(program)


def text_of(program: px.Program) -> str:
    """Return its nodes and its results as they were written."""
    lines = [" ".join(line.split()) for line in str(program.main).splitlines()[1:-1]]
    return "; ".join(
        [*lines[:-1], lines[-1].removeprefix("return (").removesuffix(")").removesuffix(",")]
    )


@pytest.mark.parametrize(
    ("name", "rule", "before", "after"), BECOMES, ids=[case[0] for case in BECOMES]
)
def test_what_becomes_of_it(name: str, rule: px.RuleSet, before: str, after: str) -> None:
    made = rule(given(before))
    assert text_of(made) == after, name
    assert px.verify(made, infer=True) == ()


@pytest.mark.parametrize(("name", "rule", "before"), LEFT, ids=[case[0] for case in LEFT])
def test_it_stays_as_it_is(name: str, rule: px.RuleSet, before: str) -> None:
    program = given(before)
    assert rule(program) is program, name


NARROW = px.rule(lambda x: torch.relu(x), where=lambda m: m.dtype("x") == torch.int8).becomes(
    lambda m, x: x
)
KEPT = "keeps_inner=True keeps these values for them"

WHY: list[tuple[px.RuleSet, str, str]] = [
    (POSITIVE, f"{EXP}; r = aten.relu.default(y); s = aten.neg.default(y); r, s",
     f"other nodes use its inner values: y by s; {KEPT}"),
    (POSITIVE, f"{EXP}; r = aten.relu.default(y); r, y", f"other nodes use its inner values: y by the caller; {KEPT}"),
    (POSITIVE, f"{EXP}; {AND}(x, 1); r = aten.relu.default(y); r",
     "a node between its nodes, or a write to their operands, cannot be moved"),
    (NO_COPY, "a = aten.clone.default(x); a", "the new value would alias other memory than the old one, and this is observable"),
    (NARROW, "r = aten.relu.default(x); r", "its condition is false or not proven"),
    (px.rule(at=torch.relu)(lambda m: None), "r = aten.relu.default(x); r", "the replacement returned None"),
    (DRAWN_ONCE, f"a = {DROP}; e = {DROP}; b = aten.add.Tensor(a, e); b",
     "one value of the pattern matches two nodes, and these have side effects"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "before", "why"), WHY)
def test_explain_says_why_it_stays(rule: px.RuleSet, before: str, why: str) -> None:
    program = given(before)
    report = rule.explain(program)
    assert report.program is program and [left.why for left in report.left] == [why]
    assert str(report).startswith("nothing was replaced\nleft: ") and str(report).endswith(why)


@pytest.mark.parametrize(("between", "moves"), [("", True), (f"{SIN}; ", False)])
def test_a_wait_does_not_move_behind_a_read_of_its_memory(between: str, moves: bool) -> None:
    wait = torch.ops._c10d_functional.wait_tensor
    waiting = px.rule(lambda x: torch.neg(x), any_effects=True).becomes(lambda m, x: wait(x))
    program = waiting(given(f"w = aten.neg.default(x); {between}r = aten.relu.default(w); r"))
    later = px.rule(lambda x: torch.relu(wait(x))).becomes(lambda m, x: torch.tanh(wait(x)))(
        program
    )
    assert (later is not program) is moves


def test_explain_counts_what_was_replaced() -> None:
    report = NO_NEG.explain(
        program := given(
            "a = aten.neg.default(x); b = aten.neg.default(a); e = aten.exp.default(b); e"
        )
    )
    assert (report.program, report.left, str(report)) == (
        NO_NEG(program),
        (),
        "replaced: <lambda> 2 times",
    )
    assert (
        px.rule(at=px.op(torch.ops.aten.neg.default))(lambda m: next(iter(m.arguments.values())))(
            program
        )
        != program
    )


def test_explain_says_that_functions_are_not_operators() -> None:
    program = px.import_fx(torch.fx.symbolic_trace(lambda x: torch.nn.functional.relu(x)))
    assert "rules match operators, not torch.nn.functional.relu; export" in str(
        NO_NEG.explain(program)
    )


BODY = """
    graph @""(x) {
      y = call @f(x, ARG) as m
      return (y,)
    }
    graph @f(a, b) {
      e = aten.exp.default(a)
      w = aten.add_.Tensor(b, 1)
      r = aten.relu.default(e)
      return r
    }
"""


def test_a_write_in_a_body_may_be_to_any_of_its_inputs() -> None:
    below = (
        BODY.replace("aten.add_.Tensor(b, 1)", "call @g(b) as n")
        + "graph @g(b) {\n w = aten.add_.Tensor(b, 1)\n return w\n}"
    )
    for body in (BODY, below):
        program = px.infer(tree(body.replace("ARG", "x")))
        assert POSITIVE(program) is program
    apart = px.infer(
        tree(BODY.replace("aten.add_.Tensor(b, 1)", "aten.add.Tensor(b, 1)").replace("ARG", "x"))
    )
    assert [node.do.name for node in POSITIVE(apart).graphs["f"].nodes if type(node.do) is px.Op][
        -1
    ] == "aten.tanh.default"


def test_a_call_of_a_body_that_returns_another_size_is_inferred_again() -> None:
    body = BODY.replace("aten.relu.default(e)", "aten.view.default(e, [2, 1])").replace(
        "w = aten.add_.Tensor(b, 1)", ""
    )
    made = px.rule(lambda x, size: x.view(size)).becomes(lambda m, x, size: x)(
        px.infer(tree(body.replace("ARG", "x")))
    )
    assert len(made.graphs["f"].nodes) == 1 and px.verify(made, infer=True) == ()
