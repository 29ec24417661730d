"""Errors in the functions of a rule: each keeps its type, and says which rule it was and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


def stages() -> list[px.Program]:
    flat = px.import_ep(torch.export.export(nn.Sequential(nn.Tanh(), Layer(), nn.Tanh()), (X,)))
    return [flat, px.transform(flat)]


def fails(m: px.Match) -> bool:
    raise KeyError(m["x"])


def failing(m: px.Match, x: Any) -> Any:
    raise ZeroDivisionError(x)


def notes_of(rule: px.Rule, program: px.Program, kind: type[Exception], said: str | None = None) -> str:
    with pytest.raises(kind, match=said) as caught:
        rule(program)
    return "\n".join(caught.value.__notes__)


def test_an_error_of_the_user_says_the_rule_and_the_place() -> None:
    condition = px.rule(lambda x: torch.relu(x), where=fails).becomes(lambda m, x: x)
    replacement = px.rule(lambda x: torch.relu(x)).becomes(failing)
    for program, where in zip(stages(), ("", " in the body '1'"), strict=True):
        for rule, kind in ((condition, KeyError), (replacement, ZeroDivisionError)):
            note = notes_of(rule, program, kind)
            assert note.startswith("in rule <lambda>, at node") and "relu (" in note and note.endswith(where)


def test_a_condition_that_is_asked_for_a_match_over_modules_says_it_too() -> None:
    rule = px.rule(lambda x: torch.relu(torch.tanh(x)), where=fails).becomes(lambda m, x: x)
    assert notes_of(rule, stages()[1], KeyError).startswith("in rule <lambda>, at node 1 / relu (")


def test_a_program_that_is_not_valid_afterwards_says_which_rule_wrote_it() -> None:
    wrong = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.mm(x, x))
    turned = px.rule(lambda x: torch.tanh(x)).becomes(lambda m, x: x.sum())
    for program in stages():
        assert "rule <lambda> wrote node mm, in the place of node" in notes_of(wrong, program, px.errors.InvalidProgram)
    late = px.import_ep(torch.export.export(Weighted(), (X,)))
    assert "after rule <lambda>, at last at node tanh" in notes_of(turned, late, px.errors.InvalidProgram)


class Weighted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x).transpose(0, 1)


def assigned(m: px.Match, x: Any) -> Any:
    x[0] = 1
    return x


def forgotten(m: px.Match, x: Any) -> Any:
    x.add_(1)
    return x.sin()


WRITING: list[tuple[Callable[..., Any], str]] = [
    (assigned, r"\[0\] = \.\.\. writes into a value, and a rule writes none"),
    (forgotten, "add_ writes into its arguments"),
    (lambda m, x: m.call(torch.ops.aten.add_.Tensor, x, 1), "add_ writes into its arguments"),
    (lambda m, x: torch.sin(x, out=torch.cos(x)), r"sin\(out=\.\.\.\) writes into a value"),
]


@pytest.mark.parametrize(("replacement", "said"), WRITING)
def test_a_replacement_that_writes_says_what_to_do(replacement: Callable[..., Any], said: str) -> None:
    rule = px.rule(lambda x: torch.relu(x)).becomes(replacement)
    for program in stages():
        note = notes_of(rule, program, px.errors.RuleError, f"{said}.*compute a new one")
        assert note.startswith("in rule <lambda>, at node")


def _adapted(m: px.Match, x: Any) -> Any:
    return torch.relu(x) @ m.parameter("a", torch.randn(4, 4)) * torch.tensor(2.0) + m.buffer("b", torch.rand(4))


def test_numbers_that_are_drawn_while_a_replacement_is_written_are_refused() -> None:
    drawn = [
        lambda m, x: x.sin() * torch.rand(3, 4),
        lambda m, x: m.buffer("b", torch.rand(4)) + torch.ones(4).bernoulli(0.5) * x,
    ]
    for replacement in drawn:
        rule = px.rule(lambda x: torch.relu(x)).becomes(replacement)
        for program in stages():
            note = notes_of(rule, program, px.errors.RuleError, "each run would have the same numbers.*\n.*torch.rand_like")
            assert note.startswith("in rule <lambda>, at node")
    for replacement in (_adapted, lambda m, x: x.sin() * torch.ones(3, 4)):
        rule = px.rule(lambda x: torch.relu(x), once=True).becomes(replacement)
        for program in stages():
            assert rule(program) is not program
    live = px.rule(lambda x: torch.relu(x), any_effects=True)
    live.becomes(lambda m, x: x.sin() * m.call(torch.ops.aten.rand, [3, 4]))
    for program in stages():
        module = px.lower(live(program))
        assert not torch.equal(module(X), module(X))
