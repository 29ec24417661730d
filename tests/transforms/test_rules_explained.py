"""``explain``: what rules replaced and skipped, and where a rule that replaced nothing nearly matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx import rules
from purefx.errors import RuleError
from purefx.transforms.rules.rule import RuleSet

Function = Callable[..., Any]
X, WHOLE = torch.randn(2, 4), torch.arange(8).reshape(2, 4)


class Plain(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def captured(function: Function, *args: Tensor) -> px.Program:
    return px.capture(Plain(function), args or (X,))


# -- errors ---------------------------------------------------------------------------------------------------------------------


def only_floats(m: px.Match, x: Any) -> Any:
    if not x.is_floating_point():
        raise ValueError("only floating-point numbers")
    return x.clamp_min(0)


def both(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(x).exp(), torch.relu(n)


def relu_rule() -> px.Rule:
    return px.rule(lambda x: torch.relu(x)).becomes(only_floats)


def test_an_error_of_a_users_rule_names_the_match() -> None:
    with pytest.raises(RuleError, match="only floating-point numbers") as caught:
        relu_rule()(captured(both, X, WHOLE))
    (note,) = caught.value.__notes__
    assert "in rule <lambda>, at node relu_1" in note


def test_explain_goes_on_after_an_error_of_a_rule() -> None:
    report = relu_rule().explain(captured(both, X, WHOLE))
    assert [hit.root.name for hit in report.replaced] == ["relu"]
    (left,) = report.left
    assert left.root.name == "relu_1" and "only floating-point numbers" in left.why


@pytest.mark.parametrize("name", ["algebra", "attention", "fusions"])
def test_an_error_of_any_shipped_rule_skips_the_match(name: str) -> None:
    def fails(m: px.Match) -> bool:
        raise IndexError("this place is not as the rule expects it")

    shipped = getattr(rules, name).rules
    assert all(rule.is_shipped for rule in shipped)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((q @ k.transpose(-1, -2)) / 2.0, -1) @ v

    q = torch.randn(2, 2, 5, 4)
    program = captured(lambda x, q: ((x * 1 + 1).log(), attention(q, q, q)), X, q)
    failing = RuleSet(tuple([evolve(rule, where=fails) for rule in shipped]))
    report = failing.explain(program)
    assert report.program is program and report.left
    assert all("this place is not as the rule expects it" in left.why for left in report.left)
    others = failing + px.rule(lambda x: torch.log(x)).becomes(lambda m, x: torch.log2(x))
    names = [node.do.name for node in others(program).main.nodes if isinstance(node.do, px.Op)]
    assert "aten.log2.default" in names


def test_attention_with_a_mask_of_one_dimension_is_left_with_a_reason() -> None:
    q, mask = torch.randn(2, 2, 5, 4), torch.randn(5)

    def two(q: Tensor, mask: Tensor) -> Tensor:
        first = ((q @ q.mT) / 2 + mask).softmax(-1) @ q
        return ((first @ q.mT) / 2).softmax(-1) @ q

    program = captured(two, q, mask)
    report = rules.attention.explain(program)
    assert len(report.replaced) == 1 and any("IndexError" in left.why for left in report.left)
    torch.testing.assert_close(px.lower(rules.attention(program))(q, mask), two(q, mask))


# -- the given program ----------------------------------------------------------------------------------------------------------


def small(m: px.Match, x: Any, w: Any, b: Any) -> Any:
    weight = m.buffer("small", m.tensor(w).round().to(torch.int8))
    m.drop(w)
    return functional.linear(x, weight.to(torch.float32), b)


def linear(x: Any, w: Any, b: Any) -> Any:
    return functional.linear(x, w, b)


def has_weight(m: px.Match) -> bool:
    return m.tensor("w") is not None


def linears(count: int) -> nn.Module:
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(count)])


OWN_RESULTS: dict[str, tuple[px.RuleSet, nn.Module]] = {
    "a condition": (px.rule(linear, where=has_weight).becomes(small), linears(2)),
    "another rule of the set": (
        px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x.sin())
        + px.rule(lambda x: torch.sin(x), where=lambda m: False).becomes(lambda m, x: x.cos()),
        nn.ReLU(),
    ),
}


@pytest.mark.parametrize("name", OWN_RESULTS)
def test_explain_lists_only_matches_of_the_given_program(name: str) -> None:
    own, model = OWN_RESULTS[name]
    flat = px.capture(model, (X,))
    for program in (flat, px.transform(flat)):
        report = own.explain(program)
        assert report.replaced and report.left == (), str(report)


def test_matches_of_results_are_counted_apart() -> None:
    own = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x.sin())
    own += px.rule(lambda x: torch.sin(x)).becomes(lambda m, x: x.cos())
    report = own.explain(captured(lambda x: torch.relu(x)))
    assert [hit.is_given for hit in report.replaced] == [True, False]
    words = "replaced: <lambda> once\nreplaced in results of rules: <lambda> once"
    assert str(report) == words


def test_on_a_tree_explain_counts_bodies_and_modules() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.one(x).relu())

    tree = px.transform(px.capture(nn.Sequential(*[Layer() for _ in range(3)]), (X,)))
    rule = px.rule(at=torch.ops.aten.linear, once=True)(lambda m: m.value * 2)
    assert str(rule.explain(tree)) == "replaced: <lambda> 2 times (2 bodies, 6 modules)"
    left = px.rule(at=torch.ops.aten.relu)(lambda m: None).explain(tree).left[0]
    assert left.modules == ("0", "1", "2") and "in 'Layer' (3 modules)" in str(left)
    by_path = px.rule(at=torch.ops.aten.relu, once=True)(
        lambda m: m.value * 2 if m.path == "1" else None
    )
    report = by_path.explain(tree)
    assert str(report).startswith("replaced: <lambda> once (1 body, 1 module)\nleft: ")
    assert [each.modules for each in report.left] == [("0", "2")]


# -- near misses ----------------------------------------------------------------------------------------------------------------

W, B = torch.randn(4, 4), torch.randn(4)


def gelu(x: Any) -> Any:
    return functional.gelu(x)


def gelu_of_linear(x: Any, w: Any, b: Any) -> Any:
    return functional.gelu(functional.linear(x, w, b))


Row = tuple[Function, Function, tuple[Tensor, ...], str]

NEAR: dict[str, Row] = {
    "a literal": (
        gelu, lambda x: functional.gelu(x, approximate="tanh"), (X,),
        "at node gelu: argument 'approximate' is 'tanh', but the pattern needs 'none'",
    ),
    "a literal in a larger pattern": (
        gelu_of_linear,
        lambda x, w, b: functional.gelu(functional.linear(x, w, b), approximate="tanh"), (X, W, B),
        "at node gelu: argument 'approximate' is 'tanh', but the pattern needs 'none'",
    ),
    "an inner operator": (
        gelu_of_linear, lambda x, w, b: functional.gelu(x @ w + b), (X, W, B),
        "at node gelu: argument 'self' is aten.add.Tensor, but the pattern needs linear(x, w, b)",
    ),
    "the outer operator": (
        gelu_of_linear, lambda x, w, b: functional.linear(x, w, b).tanh(), (X, W, B),
        "at node linear: its user is aten.tanh.default, but the pattern needs gelu(linear(x, w, b))",
    ),
    "the better of two places": (
        gelu_of_linear, lambda x, w, b: functional.gelu(x) + functional.linear(x, w, b).relu().exp()
        + functional.gelu(functional.linear(x, w, b), approximate="tanh"), (X, W, B),
        "at node gelu_1: argument 'approximate' is 'tanh', but the pattern needs 'none'",
    ),
    "a variable": (
        lambda x, d: x.softmax(d).sum(d), lambda x: x.softmax(0).sum(1), (X,),
        "at node sum_1: argument 'dim' is [1], but the pattern needs 0 as in the other place of 'd'",
    ),
    "a list": (
        lambda a, b: torch.cat([a, b]), lambda x: torch.cat([x, x, x]), (X,),
        "at node cat: argument 'tensors' is [x, x, x], but the pattern needs [a, b]",
    ),
    "commuting operands": (
        lambda x: 2 * x, lambda x: x * 3, (X,),
        "at node mul: argument 'other' is 3, but the pattern needs 2",
    ),
    "a keyword": (
        lambda x: x.sum(-1, keepdim=True), lambda x: x.sum(-1), (X,),
        "at node sum_1: argument 'keepdim' is False, but the pattern needs True",
    ),
    "an item": (
        lambda x: x.chunk(2, -1)[1].exp(), lambda x: x.chunk(2, -1)[0].exp(), (X,),
        "at node getitem: its item is 0, but the pattern needs 1",
    ),
    "another result": (
        lambda x: (x.exp(), x.mean()), lambda x: (x.exp(), x.sum()), (X,),
        "at node exp: another result is missing, but the pattern needs mean(x)",
    ),
    "behind views": (
        lambda x: px.through(x.exp()).relu(), lambda x: x.sin().view(4, 2).relu(), (X,),
        "at node relu: argument 'self' is aten.view.default, but the pattern needs exp(x)",
    ),
}  # fmt: skip


class Named(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, w: Tensor = W, b: Tensor = B) -> Any:
        return self.function(x) if w is W else self.function(x, w, b)


@pytest.mark.parametrize("name", NEAR)
def test_a_rule_that_matched_nothing_has_a_near_miss(name: str) -> None:
    pattern, function, args, words = NEAR[name]
    rule = px.rule(pattern)
    arguments = ", ".join(("m", *rule.variables))
    # It is never called.
    rule.becomes(eval(f"lambda {arguments}: None"))
    report = rule.explain(px.capture(Named(function), args))
    assert report.replaced == report.left == ()
    (near,) = report.near
    place = near.node.meta["stack_trace"]
    assert place and f"node {near.node.name}" in str(near)
    assert f"at node {near.node.name}: {str(near).rpartition('): ')[2]}" == words
    assert str(report) == f"nothing was replaced\nnear: {near}"


def test_a_rule_that_matched_has_no_near_miss() -> None:
    program = captured(lambda x: (functional.gelu(x), functional.gelu(x, approximate="tanh")))
    done = px.rule(gelu).becomes(lambda m, x: x.sin()).explain(program)
    left = px.rule(gelu, where=lambda m: False).becomes(lambda m, x: x.sin()).explain(program)
    assert done.replaced and left.left and done.near == left.near == ()
    nothing = px.rule(lambda x: torch.erf(x)).becomes(lambda m, x: x).explain(program)
    assert nothing.near == () and str(nothing) == "nothing was replaced"


def test_a_near_miss_in_a_body_names_its_modules() -> None:
    tree = px.transform(px.capture(linears(3), (X,)))
    rule = px.rule(lambda x, w: functional.linear(x, w)).becomes(lambda m, x, w: x @ w.mT)
    (near,) = rule.explain(tree).near
    assert (near.modules, near.given, near.wanted) == (("0", "1", "2"), "a read of 'bias'", "None")
    assert "in 'Linear' (3 modules): argument 'bias' is" in str(near)


@pytest.mark.parametrize("name", ["algebra", "attention", "fusions"])
def test_each_shipped_rule_that_matched_nothing_has_at_most_one_near_miss(name: str) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True).eval()
    report = getattr(rules, name).explain(px.capture(layer, (X[None],)))
    assert len(str(report).splitlines()) < 30 + len(report.left)
    for near in report.near:
        assert 0 < near.matched <= near.size and near.wanted != near.given, str(near)
