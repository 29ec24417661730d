"""What rules say of a tree of modules, word for word: which module, which body and which of several values is meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx.ir.effects.declared import Effects
from tests.programs import exported, flat, node, parent
from tests.transforms.test_rules_by_hand import given

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Inner(parent(lin=lambda: nn.Linear(4, 4), act=nn.ReLU)):
    """Gives two values."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.act(self.lin(x)), x + 1


class Outer(parent(a=Inner, b=Inner, act=nn.Tanh)):
    """Two modules that share a body, and an activation."""

    def forward(self, x: Tensor) -> Tensor:
        y, z = self.a(x)
        y, z = self.b(y * z)
        return self.act(y) + z


@cache
def tree() -> px.Program:
    """Return it as bodies."""
    return px.transform(px.import_ep(exported(Outer(), X)))


def relu(replacement: Callable[..., Any], **options: Any) -> px.Rule:
    """Return a rule of one operator."""
    return px.rule(lambda x: torch.relu(x), **options).becomes(replacement)


def linear_relu(**options: Any) -> px.Rule:
    """Return a rule of two operators, which stand in two modules."""
    found = px.rule(lambda x, w, b: torch.relu(functional.linear(x, w, b)), **options)
    return found.becomes(lambda m, x, w, b: functional.linear(x, w, b))


def without_files(text: str) -> str:
    """Return a message without the places of torch that it names."""
    return re.sub(r' \(File "[^"]*", line \d+, in \w+\)', "", text)


IN_RELU = "in rule <lambda>, at node relu in the body 'ReLU'"

SAID: list[tuple[Callable[[], object], str, str]] = [
    (
        lambda: px.rule(lambda x: px.through(torch.relu(x), views=False)),
        "px.through looks through views, casts or both: say views=True or casts=True",
        "",
    ),
    (
        lambda: px.rule(lambda x, y: px.through(torch.relu(x), torch.exp(y))),
        "the chain of px.through is a variable of the pattern, and exp(y) is none",
        "",
    ),
    (
        lambda: px.module(3),
        "px.module takes the path of a module, with * for any characters, or a class of modules, not 3",
        "",
    ),
    (lambda: relu(lambda m, x: 1 / 0)(tree()), "division by zero", IN_RELU),
    (lambda: relu(lambda m, x: m.drop(m.value))(tree()), "m.value reads no state, so there is none to drop", IN_RELU),
    (lambda: relu(lambda m, x: x, where=lambda m: 1 / 0)(tree()), "division by zero", IN_RELU),
    (lambda: relu(lambda m, x: m.read("lin"))(tree()), "there is no state 'a.act.lin' to read", IN_RELU),
    (
        lambda: relu(lambda m, x: x, where=lambda m: m.val("nix"))(tree()),
        "the rule has no variable 'nix', and the body 'ReLU' no value",
        IN_RELU,
    ),
    (lambda: relu(lambda m, x: x, where=lambda m: m["y"])(tree()), "the rule has no variable 'y'", IN_RELU),
    (
        lambda: relu(lambda m, x: x.sin().to(x.sin().dtype))(tree()),
        "node relu: dtype(sin(linear)) is not known where a replacement is written; m.dtype(...) says what is",
        IN_RELU,
    ),
    (
        lambda: relu(lambda m, x: m.call(torch.ops.aten.add, x, [1]))(tree()),
        "node relu: no overload of add takes what stands here, add(linear, [1])",
        IN_RELU,
    ),
    (
        lambda: relu(lambda m, x: x + torch.rand(2, 4))(tree()),
        (
            "a tensor of the replacement was drawn while that was written, so each run would have the same numbers.\n"
            "Draw when the program runs: torch.rand_like(x), or m.call(torch.ops.aten.rand, [3, 4]), with any_effects=True; or "
            "bring it as\nnew state that is drawn once, m.buffer(name, tensor)."
        ),
        IN_RELU,
    ),
    (
        lambda: px.rule(lambda x: (torch.sin(x), torch.cos(x))).becomes(lambda m, x: (x, x, x))(
            given("s = aten.sin.default(x); c = aten.cos.default(x); s, c")
        ),
        "node c: a replacement for 2 results returns a tuple of 2 values, not (x, x, x)",
        "in rule <lambda>, at node c",
    ),
    (lambda: px.editing(tree(), "a").__enter__()["nix"], "Inner has no value called 'nix'", ""),
    (lambda: px.editing(tree(), "c").__enter__(), "no module 'c' is called in this program", ""),
    (
        lambda: px.rule(lambda x: x.__setitem__(0, 1)),
        (
            "[0] = ... writes into a value, and a rule writes none: compute a new one (x + 1 for x.add_(1), torch.where or "
            "index_put for x[i] = y), and use that"
        ),
        "",
    ),
]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_what_is_said_of_a_tree(number: int) -> None:
    wrong, said, note = SAID[number]
    with pytest.raises((px.errors.PurefxError, ZeroDivisionError)) as caught:
        wrong()
    notes = [without_files(each) for each in getattr(caught.value, "__notes__", [])]
    assert (without_files(str(caught.value)), notes) == (said, [note] if note else [])


def test_a_match_over_modules_is_told_with_both_places() -> None:
    assert linear_relu()(tree()) is tree()
    told = linear_relu().explain(tree())
    assert [without_files(each) for each in told.across] == [
        "<lambda> at node a.act / relu with node a.lin / linear",
        "<lambda> at node b.act / relu_1 with node b.lin / linear_1",
    ]


def test_a_condition_is_asked_of_a_match_over_modules() -> None:
    assert linear_relu(where=lambda m: m.shape("w") == (5, 5)).explain(tree()).across == ()
    assert len(linear_relu(where=lambda m: m.shape("w") == (4, 4)).explain(tree()).across) == 2
    assert len(linear_relu(where=lambda m: m.path == "b.act").explain(tree()).across) == 1


def test_rules_without_an_end_in_a_body_name_it_and_show_what_they_made() -> None:
    with pytest.raises(px.errors.RuleError) as caught:
        relu(lambda m, x: torch.relu(x) + 1)(tree())
    assert str(caught.value).startswith(
        "the rules come to no end in the body 'ReLU': <lambda> matched 256 times, 256 in a row on\n"
    )
    many = relu(lambda m, x: torch.relu(torch.relu(torch.relu(torch.relu(torch.relu(x) + 1)))))
    with pytest.raises(px.errors.RuleError) as several:
        many(given("r = aten.relu.default(x); r"))
    shown = re.sub(r"_\d+", "", str(several.value)).splitlines()
    assert shown[2:8] == [
        "  relu = aten.relu.default(x)",
        "  became, by <lambda>,",
        "    relu = aten.relu.default(x)",
        "    add = aten.add.Tensor(relu, 1)",
        "    relu = aten.relu.default(add)",
        "    and 3 more",
    ]


def test_long_nodes_are_cut_in_messages() -> None:
    grows = px.rule(lambda n: torch.cat(n)).becomes(lambda m, n: torch.cat([n[0]] * 30))
    with pytest.raises(px.errors.RuleError) as caught:
        grows(given("c = aten.cat.default([x, z]); c"))
    lines = [line for line in str(caught.value).splitlines() if " = aten.cat" in line]
    assert lines and all(len(line.strip()) == 100 and line.endswith(" ...") for line in lines)


def test_what_is_left_in_a_body_says_which() -> None:
    same = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: m.given(px.Ref(m.root.name)))
    told = same.explain(tree())
    assert [(left.graph, left.root.name, left.why) for left in told.left] == [("ReLU", "relu", "the rule leaves it as it is")]
    assert without_files(str(told)) == "nothing was replaced\nleft: <lambda> at node relu in 'ReLU': the rule leaves it as it is"


def test_variables_of_a_replacement_are_told() -> None:
    with pytest.raises(px.errors.RuleError) as caught:
        px.rule(lambda x, y: torch.add(x, y)).becomes(lambda m, x, z: x)
    assert str(caught.value) == "<lambda>.becomes takes (m, x, y), not (m, x, z)"


def test_what_writes_is_not_replaced_whatever_a_rule_says() -> None:
    op = px.Op("aten.exp.default", Effects(unknown=True), target=torch.ops.aten.exp.default)
    program = flat([node("exp", op, "x")], px.Ref("exp"), "x")
    for options in ({}, {"any_effects": True}):
        with pytest.raises(px.errors.RuleError, match="<lambda> at node exp: what it matched writes,"):
            px.rule(lambda x: torch.exp(x), **options).becomes(lambda m, x: torch.sin(x))(program)


def test_what_becomes_a_value_that_is_there_says_so() -> None:
    there = px.rule(lambda x: torch.neg(x)).becomes(lambda m, x: x)
    (hit,) = there.explain(given("n = aten.neg.default(x); e = aten.exp.default(n); e")).replaced
    assert str(hit) == "  n = aten.neg.default(x)\n  became, by <lambda>,\n    a value that is there"
    assert (hit.rule, hit.root.name, hit.made, hit.depth, [node.name for node in hit.gone]) == ("<lambda>", "n", (), 1, ["n"])


def test_a_node_that_is_not_valid_is_told_with_its_rule() -> None:
    with pytest.raises(px.errors.InvalidProgram) as caught:
        relu(lambda m, x: torch.mm(x, x))(tree())
    notes = [without_files(each) for each in caught.value.__notes__]
    assert notes == ["rule <lambda> wrote node mm, in the place of node relu"]


def test_what_a_caller_cannot_take_any_more_is_not_said_of_a_rule_that_wrote_nothing_there() -> None:
    class Turned(parent(act=nn.ReLU)):
        def forward(self, x: Tensor) -> Tensor:
            return self.act(x).transpose(0, 1)

    turned = px.transform(px.import_ep(exported(Turned(), X)))
    with pytest.raises(px.errors.InvalidProgram, match="Dimension out of range") as caught:
        relu(lambda m, x: x.sum())(turned)
    assert not getattr(caught.value, "__notes__", [])


def test_a_rule_is_a_transformation_with_laws() -> None:
    step = (relu(lambda m, x: x) + linear_relu()).transformation
    assert (step.name, step.forgets) == ("<lambda> + <lambda>", frozenset({"deduplicated"}))
    assert step.laws == (
        "nothing that the rule looks for and may replace is left",
        "values of new nodes are those that their operators compute",
    )


def test_branches_that_would_differ_are_told_with_what_to_write() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: torch.relu(x.sin()), lambda x: torch.relu(x.cos()), (x,))

    program = px.import_ep(exported(Chosen(), X))
    with pytest.raises(px.errors.RuleError) as caught:
        px.rule(lambda x: torch.relu(x.sin())).becomes(lambda m, x: x.sin().double())(program)
    said = without_files(str(caught.value))
    assert said.startswith(
        "<lambda> at node relu in the body '$true_graph_0': what stands there instead is of another type or size. Of node cond"
    )
    assert said.endswith(
        ". Write a replacement that gives what the pattern gave (`.to(x.dtype)`), or a rule that\n"
        "matches in each of the branches."
    )
