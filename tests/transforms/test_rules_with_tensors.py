"""Rules whose patterns mention tensors: they match constants of the program with the same contents, that nobody writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.models import exported, parent
from tests.transforms.rulesets import OF_RESULTS
from tests.transforms.test_rules import X, rewritten

Function = Callable[..., Any]

ROW = torch.tensor([1.0, 2.0, 3.0, 4.0])

shifted = px.rule(lambda x: x.sin() + torch.tensor(1.0)).becomes(lambda m, x: x.sin() + 1)
seen = px.rule(lambda x: x.exp() * torch.ones(3, 4)).becomes(lambda m, x: x.exp())
row = px.rule(lambda x: x.sin() * ROW).becomes(lambda m, x: x.neg().sin().neg() * ROW)


def _written_later(m: Any, x: Tensor) -> Tensor:
    found = x.exp() * m.seen
    m.seen.add_(1)
    return found + 1


def _made_and_written(m: Any, x: Tensor) -> Tensor:
    one = torch.tensor(0.0)
    one.add_(1)
    return (x.sin() + one) * 2


MATCHES: list[tuple[str, px.Rule, Function, str]] = [
    ("made in the program", shifted, lambda m, x: (x.sin() + torch.tensor(1.0)) * 2, "sin add mul"),
    (
        "captured",
        row,
        lambda m, x: x.sin() * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1,
        "neg sin neg mul add",
    ),
]


@pytest.mark.parametrize(
    ("name", "rule", "function", "wanted"), MATCHES, ids=[case[0] for case in MATCHES]
)
def test_matches(name: str, rule: px.Rule, function: Function, wanted: str) -> None:
    for names in rewritten(rule, function, X):
        assert [each.split(".")[1] for each in names] == wanted.split()


LEFT: list[tuple[str, px.Rule, Function]] = [
    ("other contents", shifted, lambda m, x: (x.sin() + torch.tensor(2.0)) * 2),
    ("another type", shifted, lambda m, x: (x.sin() + torch.tensor(1)) * 2),
    ("other sizes", shifted, lambda m, x: (x.sin() + torch.tensor([1.0])) * 2),
    ("a number", shifted, lambda m, x: (x.sin() + 1.0) * 2),
    ("a computed value", shifted, lambda m, x: (x.sin() + torch.full((), 1.0)) * 2),
    ("an operand", shifted, lambda m, x: (x.sin() + x) * 2),
    ("a buffer that others are loaded into", seen, lambda m, x: x.exp() * m.seen + 1),
    ("a buffer that is written", seen, _written_later),
    ("written before it is used", shifted, _made_and_written),
]


@pytest.mark.parametrize(("name", "rule", "function"), LEFT, ids=[case[0] for case in LEFT])
def test_left_alone(name: str, rule: px.Rule, function: Function) -> None:
    assert rewritten(rule, function, X) == [[], []]


class Shifted(nn.Module):
    """Adds a parameter, a buffer, or neither."""

    def __init__(self, kind: str, by: Any = None) -> None:
        super().__init__()
        self.by: Any
        if by is not None:
            self.register_buffer("by", by, persistent=False)
        elif kind == "parameter":
            self.by = nn.Parameter(torch.zeros(4))
        elif kind == "view of a parameter":
            self.trained = nn.Parameter(torch.zeros(4))
            self.by = self.trained.detach()
        else:
            self.register_buffer("by", torch.zeros(4), persistent=kind == "buffer")

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.by).sin()


@pytest.mark.parametrize(
    "kind", ["parameter", "view of a parameter", "buffer", "buffer of no state_dict"]
)
def test_only_what_nobody_can_replace_is_a_constant(kind: str) -> None:
    plain = px.rule(lambda x: x + torch.zeros(4)).becomes(lambda m, x: x.clone())
    program = px.import_ep(torch.export.export(Shifted(kind), (X,)))
    for stage in (program, px.transform(program)):
        assert (plain(stage) is stage) == (kind != "buffer of no state_dict")


class Returned(Shifted):
    """Returns a view of what it adds, which the caller may write."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), self.by[:2]


def test_what_the_caller_may_write_is_no_constant() -> None:
    plain = px.rule(lambda x: x + torch.zeros(4)).becomes(lambda m, x: x.clone())
    program = px.import_ep(torch.export.export(Returned("buffer of no state_dict"), (X,)))
    for stage in (program, px.transform(program), px.lift_state(program)):
        assert plain(stage) is stage


def test_a_rule_says_that_buffers_and_parameters_are_constants() -> None:
    def is_zero(**options: bool) -> Callable[[px.Match], bool]:
        return lambda m: (held := m.constant("by", **options)) is not None and not held.any()

    for kind, needed in (("parameter", "parameters"), ("buffer", "buffers")):
        program = px.import_ep(torch.export.export(Shifted(kind), (X,)))
        for given in ("parameters", "buffers"):
            plain = px.rule(lambda x, by: x + by, where=is_zero(**{given: True})).becomes(
                lambda m, x, by: x.clone()
            )
            assert (plain(program) is not program) == (given == needed)


def test_modules_that_share_a_body_are_asked_one_by_one() -> None:
    model = nn.Sequential(*[Shifted("buffer", by) for by in (ROW.clone(), ROW + 1, ROW.clone())])
    program = px.transform(px.import_ep(torch.export.export(model, (X,))))
    assert len(program.graphs) == 2
    result = px.rule(lambda x: (x + ROW).sin()).becomes(lambda m, x: (x + 2).sin())(program)
    assert len(result.graphs) == 3
    model[0].by, model[2].by = torch.full((4,), 2.0), torch.full((4,), 2.0)
    torch.testing.assert_close(px.lower(result)(X), model(X))


def test_laws() -> None:
    right = px.rule(
        lambda x: x.exp() * torch.tensor(1.0), where=lambda m: m.dtype("x") == torch.float32
    )
    right.becomes(lambda m, x: x.exp().clone())
    assert check_rule(right, laws=OF_RESULTS, examples=share(4)).changed >= 2
    wrong = px.rule(lambda x: x * torch.tensor(2.0)).becomes(lambda m, x: x * 3)
    with pytest.raises(AssertionError, match="breaks the law 'meaning'"):
        check_rule(wrong, examples=4)


class Written(parent(n=lambda: torch.ones(4), k=lambda: torch.ones(4))):
    """Works on a copy of one buffer, and reads copies of two."""

    def forward(self, x: Tensor) -> Tensor:
        mine, other = self.n.clone(), self.k.clone()
        mine.add_(1)
        return (x * mine) * other


def test_a_copy_that_is_written_is_no_constant() -> None:
    found: set[tuple[str, bool]] = set()
    looks = px.rule(
        lambda x, w: x * w,
        where=lambda m: found.add((m.root.name, m.constant("w", buffers=True) is not None)),
    )
    program = px.inplace_mutations(px.import_ep(exported(Written(), X)))
    assert looks.becomes(lambda m, x, w: x)(program) is program
    assert found == {
        ("mul", False),
        ("mul_1", False),
        ("mul_1", True),
    }  # operands are tried in both orders


aten: Any = torch.ops.aten

FACTORIES: dict[str, tuple[Function, Any, tuple[Any, ...]]] = {
    "arange": (torch.arange, aten.arange.default, (4,)),
    "arange with a start": (torch.arange, aten.arange.start, (1, 5)),
    "zeros": (torch.zeros, aten.zeros.default, ([3, 4],)),
    "ones": (torch.ones, aten.ones.default, ([3, 4],)),
    "full": (torch.full, aten.full.default, ([3, 4], 0.5)),
    "eye": (torch.eye, aten.eye.m, (3, 4)),
    "linspace": (torch.linspace, aten.linspace.default, (0, 1, 4)),
    "scalar_tensor": (torch.scalar_tensor, aten.scalar_tensor.default, (2.0,)),
    "hann_window": (torch.hann_window, aten.hann_window.default, (4,)),
}


def _after_relu(replacement: Function) -> tuple[px.Program, nn.Module]:
    class Relu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    program = px.import_ep(torch.export.export(Relu(), (X,)))
    result = px.rule(lambda x: torch.relu(x)).becomes(replacement)(program)
    return result, px.lower(result)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_replacement_that_returns_a_factory_is_the_call_of_its_operator(name: str) -> None:
    function, overload, args = FACTORIES[name]
    result, module = _after_relu(lambda m, x: function(*args))
    called, _ = _after_relu(lambda m, x: m.call(overload, *args))
    assert [node.do for node in result.main.nodes] == [node.do for node in called.main.nodes]
    assert px.verify(result) == ()
    for _ in range(2):
        torch.testing.assert_close(module(X), function(*args))
        module(X).zero_()


def _written_row(m: px.Match, x: Any) -> Tensor:
    row = torch.zeros(4)
    row[1] = 2
    return row


CONTENTS: dict[str, tuple[Function, Tensor]] = {
    "of a list": (lambda m, x: torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    "a factory that is written": (_written_row, torch.tensor([0.0, 2.0, 0.0, 0.0])),
    "computed of factories": (lambda m, x: torch.arange(4) * 2, torch.arange(4) * 2),
    "a view of a factory": (lambda m, x: torch.arange(4).view(2, 2), torch.arange(4).view(2, 2)),
    "from outside": (lambda m, x: ROW, ROW),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_replacement_that_returns_another_tensor_is_a_copy_of_a_constant(name: str) -> None:
    replacement, wanted = CONTENTS[name]
    result, module = _after_relu(replacement)
    assert px.verify(result) == ()
    for program in (result, px.transform(result)):
        module = px.lower(program)
        for _ in range(2):
            assert torch.equal(module(X), wanted)
            module(X).zero_()  # the result is not the constant
    assert torch.equal(ROW, torch.tensor([1.0, 2.0, 3.0, 4.0]))


def test_a_replacement_that_returns_random_numbers_draws_them_in_the_program() -> None:
    with pytest.raises(px.errors.RuleError, match="draws random numbers"):
        _after_relu(lambda m, x: torch.rand(3, 4))
    program = px.import_ep(torch.export.export(nn.ReLU(), (X,)))
    drawn = px.rule(lambda x: torch.relu(x), any_effects=True)
    module = px.lower(drawn.becomes(lambda m, x: torch.rand(3, 4))(program))
    assert not torch.equal(module(X), module(X))


CALLS: dict[str, Function] = {
    "the old value": lambda m: m.call(aten.exp.default, m.value),
    "the old value, twice": lambda m: m.call(aten.add.Tensor, m.value, other=m.value),
    "the old value in the function": lambda m: m.call(lambda: m.value + 0),
    "an argument in the function": lambda m: m.call(lambda: m.arguments["self"] + m.value),
    "a call in the function": lambda m: m.call(lambda: m.call(aten.exp.default, m.value)),
    "an operator of the program": lambda m: m.call(px.op(aten.exp.default), m.value),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_accepts_each_value_of_the_match(name: str) -> None:
    program = px.import_ep(torch.export.export(nn.ReLU(), (X,)))
    result = px.rule(at=aten.relu, once=True)(CALLS[name])(program)
    assert px.verify(result) == ()
    old = X.relu()
    wanted = {
        "the old value, twice": old + old,
        "the old value in the function": old,
        "an argument in the function": X + old,
    }.get(name, old.exp())
    torch.testing.assert_close(px.lower(result)(X), wanted)


def test_a_call_accepts_the_argument_that_a_variable_matched() -> None:
    class Joined(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x.exp(), x])

    program = px.import_ep(torch.export.export(Joined(), (X,)))
    rule = px.rule(lambda x, y: torch.cat([x, y]), once=True).becomes(
        lambda m, x, y: m.call(aten.cat.default, [y, x]) + m.call(aten.sum.default, m["x"])
    )
    result = rule(program)
    wanted = torch.cat([X, X.exp()]) + X.exp().sum()
    torch.testing.assert_close(px.lower(result)(X), wanted)
