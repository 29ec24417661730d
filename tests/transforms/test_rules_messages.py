"""Errors of rules name the rule and the place; the messages are in ``tests/front/test_wrong_calls.py``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from purefx.errors import InvalidProgram, RuleError
from tests.models import exported, parent
from tests.transforms.small import relu
from tests.transforms.test_rules_by_hand import given

Function = Callable[..., Any]
X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Inner(parent(lin=lambda: nn.Linear(4, 4), act=nn.ReLU)):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.act(self.lin(x)), x + 1


class Outer(parent(a=Inner, b=Inner, act=nn.Tanh)):
    def forward(self, x: Tensor) -> Tensor:
        y, z = self.a(x)
        y, z = self.b(y * z)
        return self.act(y) + z


@cache
def tree() -> px.Program:
    """Return it as bodies."""
    return px.transform(px.import_ep(exported(Outer(), X)))


def program() -> px.Program:
    return given("exp = aten.exp.default(x); relu = aten.relu.default(exp); relu")


def fails(m: px.Match) -> bool:
    raise KeyError(m["x"])


def failing(m: px.Match, x: Any) -> Any:
    raise ZeroDivisionError(x)


def notes_of(
    rule: px.Rule, program: px.Program, kind: type[Exception], words: str | None = None
) -> str:
    with pytest.raises(kind, match=words) as caught:
        rule(program)
    return "\n".join(caught.value.__notes__)


def test_an_error_of_the_user_names_the_rule_and_the_place() -> None:
    for rule, words in (
        (relu(lambda m, x: x, where=fails), "where= raised KeyError: "),
        (relu(failing), "the replacement raised ZeroDivisionError: "),
    ):
        for one, where in ((program(), ""), (tree(), " in the body 'ReLU'")):
            note = notes_of(rule, one, RuleError, words)
            assert note.startswith("in rule <lambda>, at node") and note.endswith(where)


def test_the_slot_is_named_from_the_root() -> None:
    notes_of(
        relu(lambda m, x: m.read("lin")), tree(), RuleError, "the program has no state 'a.act.lin'"
    )


def test_a_program_that_is_not_valid_afterwards_names_the_rule_that_wrote_it() -> None:
    class Turned(parent(act=nn.ReLU)):
        def forward(self, x: Tensor) -> Tensor:
            return self.act(x).transpose(0, 1)

    turned = px.import_ep(exported(Turned(), X))
    assert "after rule <lambda>, last applied at node act / relu" in notes_of(
        relu(lambda m, x: x.sum()), turned, InvalidProgram
    )


def _adapted(m: px.Match, x: Any) -> Any:
    return torch.relu(x) @ m.parameter("a", torch.randn(4, 4)) * torch.tensor(2.0) + m.buffer(
        "b", torch.rand(4)
    )


def test_numbers_that_are_drawn_while_a_replacement_is_written_are_refused() -> None:
    drawn = [
        lambda m, x: x.sin() * torch.rand(2, 4),
        lambda m, x: m.buffer("b", torch.rand(4)) + torch.ones(4).bernoulli(0.5) * x,
    ]
    for replacement in drawn:
        notes_of(relu(replacement), tree(), RuleError, "every run would use the same ones")
    for replacement in (_adapted, lambda m, x: x.sin() * torch.ones(2, 4)):
        assert relu(replacement, once=True)(tree()) is not tree()
    module = px.lower(
        relu(lambda m, x: x.sin() * m.call(torch.ops.aten.rand, [2, 4]), any_effects=True)(tree())
    )
    assert not torch.equal(module(X), module(X))


def test_a_refusal_of_effects_names_the_option_that_helps() -> None:
    writing = [lambda m, x: x.add_(1), lambda m, x: torch.relu(x).mul_(2)]
    for replacement in writing:
        for options in ({}, {"any_effects": True}):
            with pytest.raises(RuleError) as caught:
                relu(replacement, **options)(program())
            words = str(caught.value)
            assert "also with any_effects=True" in words and "px.from_fx_pass" in words
    with pytest.raises(RuleError) as caught:
        relu(lambda m, x: torch.rand_like(x))(program())
    assert str(caught.value).endswith("or pass any_effects=True")
    assert "from_fx_pass" not in str(caught.value)


@torch.library.custom_op("purefx_messages::soften", mutates_args=())
def soften(x: Tensor) -> Tensor:
    return x * 0.5


@soften.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("purefx_messages::harden", mutates_args=())
def harden(x: Tensor) -> Tensor:
    return x * 2


@harden.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


SOFTEN, HARDEN = torch.ops.purefx_messages.soften, torch.ops.purefx_messages.harden
SAME_EFFECTS = (
    "both must have the same effects: declare them with px.declare, or pass any_effects=True"
)

EFFECTS: dict[str, tuple[Function, str]] = {
    "undeclared": (
        lambda m, x: SOFTEN(x),
        f"calls purefx_messages.soften.default, whose side effects are unknown; {SAME_EFFECTS}",
    ),
    "two undeclared": (
        lambda m, x: SOFTEN(HARDEN(SOFTEN(x))),
        (
            "calls purefx_messages.soften.default and purefx_messages.harden.default, whose side "
            f"effects are unknown; {SAME_EFFECTS}"
        ),
    ),
    "random and undeclared": (
        lambda m, x: SOFTEN(torch.rand_like(x)),
        (
            "draws random numbers and calls purefx_messages.soften.default, whose side effects are "
            f"unknown; {SAME_EFFECTS}"
        ),
    ),
    "random": (lambda m, x: torch.rand_like(x), f"draws random numbers; {SAME_EFFECTS}"),
    "write": (
        lambda m, x: m.call(torch.ops.aten.add_.Tensor, x, 1),
        (
            "writes; neither may write, also with any_effects=True: compute a new value, or edit the "
            "graph in an fx pass (px.from_fx_pass)"
        ),
    ),
}


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_replacement_with_other_effects_is_refused_in_one_sentence(effects: str) -> None:
    replace, expected = EFFECTS[effects]
    with pytest.raises(RuleError) as error:
        relu(replace)(program())
    assert str(error.value).endswith(f"the match is pure, but the replacement {expected}")
    assert "\n" not in str(error.value)
