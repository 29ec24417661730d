"""Rules and edits that are written wrong: the error, a few words of it, and the notes that name the rule and the place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx.errors import InvalidProgram, NamingError, RuleError
from tests.programs import exported, parent
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


def dynamic() -> px.Program:
    return px.import_ep(exported(nn.ReLU(), torch.ones(4, 4), dynamic_shapes=({0: torch.export.Dim("d", min=2, max=64)},)))


def relu(replacement: Function, **options: Any) -> px.Rule:
    """Return a rule of one operator."""
    return px.rule(lambda x: torch.relu(x), **options).becomes(replacement)


PATTERNS: list[tuple[Function, str]] = [
    (lambda x: x.shape, "must be an operator"),
    (lambda x: (x, x.sin()), "must be an operator"),
    (lambda x: px.through(x.exp()), "would match everywhere"),
    (lambda x, y, z: torch.relu(y), "does not use x, z"),
    (lambda x: -x if x else x, "cannot branch"),
    (lambda x: x.relu() if x.shape[0] > 1 else x, "cannot branch"),
    (lambda *x: torch.relu(x[0]), "each parameter of a rule is a variable"),
    (lambda x: list(x.chunk(2)), r"write parts\[0\]"),
    (lambda x, y: (x.sin(), y.sin()), "shares no value with the other results: write two rules"),
    (lambda x: (y := x.sin(), y), "returns one value twice"),
    (lambda x: x.relu_(), "relu_ writes into its arguments"),
    (lambda x: torch.ops.aten.relu.default(x, 3), "no overload of relu takes"),
    (lambda x: functional.interpolate(x, scale_factor=2.0), "interpolate depends on facts"),
    (lambda x: torch.norm(x), "norm depends on facts"),
    (lambda x: x.stride(0), "'stride' is not an operator"),
    (lambda x: x.norm(), "no 'norm'"),
    (lambda x: px.any_of(torch.relu(x), len), "any_of takes values"),
    (lambda x, y: torch.relu(px.through(x, y.exp())), "must be a variable of the pattern"),
]


@pytest.mark.parametrize(("pattern", "words"), PATTERNS)
def test_a_wrong_pattern(pattern: Function, words: str) -> None:
    with pytest.raises((RuleError, AttributeError), match=f"(?s){words}"):
        px.rule(pattern)


BOTH = px.rule(lambda x: (torch.sin(x), torch.cos(x)))

WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: px.rule(lambda x: torch.relu(x))(program()), RuleError, "has no replacement: write one as"),
    (lambda: px.rule(lambda x: torch.relu(x)).becomes(lambda x: x), RuleError, r"takes \(m, x\), not \(x\)"),
    (lambda: relu(lambda m, x: x).becomes(lambda m, x: x), RuleError, "has a replacement already"),
    (lambda: px.module(3), RuleError, "takes the path of a module"),
    (lambda: relu(lambda m, x: None)(program()), RuleError, "a replacement returns an operand"),
    (lambda: BOTH.becomes(lambda m, x: x)(given("s = aten.sin.default(x); c = aten.cos.default(x); s, c")),
     RuleError, "of 2 results returns a tuple of 2 values"),
    (lambda: relu(lambda m, x: m.call(torch.ops.aten.add_.Tensor, x, 1))(program()), RuleError, "neither may write"),
    (lambda: relu(lambda m, x: torch.mm(x, x))(program()), RuleError, "the replacement raised RuntimeError: "),
    (lambda: relu(lambda m, x: x if x.sum() > 0 else -x)(program()), RuleError, "known only at run time"),
    (lambda: relu(lambda m, x: torch.rand_like(x))(program()), RuleError, "the replacement\ndraws random numbers"),
    (lambda: relu(lambda m, x: torch.ops._c10d_functional.wait_tensor(x))(program()), RuleError,
     "the match is pure, but the replacement\ncompletes;"),
    (lambda: relu(lambda m, x: m.parameter("a.b", torch.ones(1)))(program()), RuleError, "cannot be the name of state"),
    (lambda: relu(lambda m, x: m.parameter("a", 3))(program()), RuleError, "is a tensor with numbers, not 3"),
    (lambda: relu(lambda m, x: m.read("lin"))(tree()), RuleError, "the program has no state 'a.act.lin'"),
    (lambda: relu(lambda m, x: m.drop(x))(program()), RuleError, "reads no state"),
    (lambda: relu(lambda m, x: m["xx"])(program()), NamingError, "has no variable 'xx'; did you mean 'x'"),
    (lambda: relu(lambda m, x: x, where=lambda m: m.dtype("X"))(program()), NamingError, "the rule has no variable"),
    (lambda: relu(lambda m, x: x.tanh() if x.shape[0] == 4 else x)(dynamic()), RuleError, "at run time.*where="),
    (lambda: relu(lambda m, x: x.reshape(int(x.shape[0]), 4))(dynamic()), RuleError, "at run time"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "kind", "words"), WRONG)
def test_a_wrong_rule_or_edit(wrong: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=f"(?s){words}"):
        wrong()


def fails(m: px.Match) -> bool:
    raise KeyError(m["x"])


def failing(m: px.Match, x: Any) -> Any:
    raise ZeroDivisionError(x)


def notes_of(rule: px.Rule, program: px.Program, kind: type[Exception], words: str | None = None) -> str:
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


def test_a_program_that_is_not_valid_afterwards_names_the_rule_that_wrote_it() -> None:
    class Turned(parent(act=nn.ReLU)):
        def forward(self, x: Tensor) -> Tensor:
            return self.act(x).transpose(0, 1)

    turned = px.import_ep(exported(Turned(), X))
    assert "after rule <lambda>, last applied at node act / relu" in notes_of(relu(lambda m, x: x.sum()), turned, InvalidProgram)


def _adapted(m: px.Match, x: Any) -> Any:
    return torch.relu(x) @ m.parameter("a", torch.randn(4, 4)) * torch.tensor(2.0) + m.buffer("b", torch.rand(4))


def test_numbers_that_are_drawn_while_a_replacement_is_written_are_refused() -> None:
    drawn = [
        lambda m, x: x.sin() * torch.rand(2, 4),
        lambda m, x: m.buffer("b", torch.rand(4)) + torch.ones(4).bernoulli(0.5) * x,
    ]
    for replacement in drawn:
        notes_of(relu(replacement), tree(), RuleError, "every run would use the same ones")
    for replacement in (_adapted, lambda m, x: x.sin() * torch.ones(2, 4)):
        assert relu(replacement, once=True)(tree()) is not tree()
    module = px.lower(relu(lambda m, x: x.sin() * m.call(torch.ops.aten.rand, [2, 4]), any_effects=True)(tree()))
    assert not torch.equal(module(X), module(X))
