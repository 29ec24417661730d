"""Patterns of plain torch code: each finds the same code in what torch exports of it, and not what computes something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.rulesets import OF_RESULTS

Function = Callable[..., Any]

X, Z = torch.arange(24.0).reshape(4, 6) - 5, torch.randn(4, 2, 6)
WHOLE = torch.arange(1, 25).reshape(4, 6)


class Plain(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def names_of(program: px.Program) -> list[str]:
    return [node.do.name.split(".")[1] for node in program.main.nodes if type(node.do) is px.Op]


def _unpacked(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return functional.silu(a) * b


def _rotated(x: Tensor) -> Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


FOUND: list[tuple[Function, Tensor]] = [
    (lambda x: x & 1, WHOLE), (lambda x: 2**x, X), (lambda x: 2 % x, X), (lambda x: +x, X),
    (lambda x: 2 - x, X), (lambda x: 2 / x, X), (lambda x: x.mT, X), (lambda x: x.double(), X),
    (lambda x: functional.dropout(x, 0.25), X), (lambda x: functional.softmax(x, -1), X), (_unpacked, X), (_rotated, X),
    (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), Z), (lambda x: x.to("cpu", torch.float16), X),
    (lambda x: x / x.size(0), X), (lambda x: (y := x.exp()) / y.shape[0], X), (lambda x: x / x.numel(), X),
    (lambda x: x.view(x.size(0), -1), X), (lambda x: x.reshape(x.shape[0] * 2, -1), X), (lambda x: x * (x.shape[0] % 3 + 6), X),
    (lambda x: x.reshape(x.numel() // 2, 2), X), (lambda x: x * x.shape[-1] ** -0.5, X), (lambda x: x.exp().reshape(x.shape), X),
    (lambda x: x.view(*x.shape[:-1], 2, 3), X), (lambda x: x.view(-1, *x.shape[1:]), Z),
    (lambda x: x.reshape(-1, *x.shape[-2:]), Z), (lambda x: x[..., 0], X), (lambda x: x[..., -1, :], Z),
    (lambda x: x[0, ..., 1], Z), (lambda x: x[..., ::2], X), (lambda x: x[..., None, :], X), (lambda x: x[:, 1::2], X),
    (lambda x: x[:, 0], X), (lambda x: x[None, :, -1], X), (lambda x: x.exp()[0], X), (lambda x: x[0], X), (lambda x: x[-1], X),
    (lambda x: x.chunk(2, -1)[1][:, 0], X), (lambda x: x * (1 / x.shape[-1] ** 0.5), X), (lambda x: x * (7 - x.size(dim=1)), X),
    (lambda x: x.exp().to(x.device, torch.float64), X), (lambda x: x + torch.ones(6, device=x.device), X),
]  # fmt: skip


ALIKE: list[tuple[Function, Function, tuple[Tensor, ...]]] = [
    (lambda x, y: torch.bitwise_and(x, y), lambda x, y: x & y, (WHOLE, WHOLE + 1)),
    (lambda x, y: x & y, torch.bitwise_and, (WHOLE, WHOLE + 1)),
    (lambda x, y: torch.fmax(x.abs(), y), lambda x, y: torch.fmax(x, y.abs()), (X, X + 1)),
    (lambda x, y: x.to(y.dtype) * y, lambda x, y: x.to(y.dtype) * y, (X, X.double())),
    (lambda x: x * 2, lambda x: x * 2.0, (X,)), (lambda x: 2.0 - x, lambda x: 2 - x, (X.half(),)),
    (lambda x: x**2, lambda x: x**2.0, (X,)), (lambda x: x.clamp(0.0, 6.0), lambda x: x.clamp(0, 6), (X,)),
    (lambda x, n: x[:, :n] * n, lambda x: x[:, :3] * 3, (X,)), (lambda x, i: x.select(1, i), lambda x: x[:, 2], (X,)),
    (lambda x, n: x.reshape(n, -1).repeat(n * 2, 1), lambda x: x.reshape(x.shape[0], -1).repeat(x.shape[0] * 2, 1), (X,)),
    (lambda xs, y: torch.cat([*xs, y.exp()]), lambda x: torch.cat([x.sin(), x, x.exp()]), (X,)),
    (lambda x, xs, y: torch.cat([x.sin(), *xs, y.exp()]), lambda x: torch.cat([x.sin(), x, x, x.exp()]), (X,)),
]  # fmt: skip

OTHER: list[tuple[Function, Function, tuple[Tensor, ...]]] = [
    (lambda x: x / x.size(1), lambda x: x / x.size(0), (X,)), (lambda x: x / x.numel(), lambda x: x / x.size(0), (X,)),
    (lambda x: x.reshape(x.shape[0] * 2, -1), lambda x: x.reshape(x.shape[0] * 3, -1), (X,)),
    (lambda x: x.exp().reshape(x.shape), lambda x: x.exp().reshape(x.shape[0], 3, 2), (X,)),
    (lambda x: x[..., 0], lambda x: x[0], (X,)), (lambda x: x[:, 1], lambda x: x[:, 0], (X,)),
    (lambda x: x[..., : x.shape[-1] // 2], lambda x: x[..., : x.shape[-1] // 3], (X,)),
    (lambda x, y: x.to(y.dtype) * y, lambda x, y: x.to(torch.float16) * y, (X, X.double())),
    (lambda x: x * 2, lambda x: x * 2.0, (WHOLE,)), (lambda x: x * 2, lambda x: x * 2.5, (X,)),
    (lambda x: x + 0, lambda x: x + -0.0, (X,)), (lambda x: x * 1, lambda x: x * True, (X,)),
    (lambda x: torch.full_like(x, 2), lambda x: torch.full_like(x, 2.0), (WHOLE,)),
    (lambda x, y: torch.ops.aten.bitwise_and.Tensor(x, y), lambda x, y: x & y, (WHOLE, WHOLE + 1)),
    (lambda x, y: torch.isclose(x.abs(), y), lambda x, y: torch.isclose(x, y.abs()), (X, X + 1)),
    (lambda x, y: torch.add(x.abs(), y, alpha=2), lambda x, y: torch.add(x, y.abs(), alpha=2), (X, X + 1)),
    (lambda x: (x + torch.tensor(1.0)) * torch.tensor(1.0), lambda x: (x + torch.tensor(1.0)) * torch.tensor(5.0), (X,)),
    (lambda xs, y: torch.cat([*xs, y.exp()]), lambda x: torch.cat([x.sin(), x, x.neg()]), (X,)),
    (lambda x, xs, y: torch.cat([x, *xs, y]), lambda x: torch.cat([x]), (X,)),
]  # fmt: skip


CASES = [
    *[(each, each, (x,), True) for each, x in FOUND],
    *[(*each, True) for each in ALIKE],
    *[(*each, False) for each in OTHER],
]


class Every(nn.Module):
    """All code, each on inputs of its own, and one more operator behind each."""

    def forward(self, *args: Tensor) -> Any:
        rest = iter(args)
        return tuple([code(*[next(rest) for _ in given]) + 1 for _, code, given, _ in CASES])


@cache
def every(dynamic: bool) -> px.Program:
    return exported(
        Every(), *tuple([arg for _, _, given, _ in CASES for arg in given]), dynamic=dynamic
    )


def exported(module: nn.Module, *args: Tensor, dynamic: bool = False) -> px.Program:
    size = torch.export.Dim("size", min=2, max=64)
    shapes = (tuple([{0: size} for _ in args]),) if dynamic else None
    return px.import_ep(torch.export.export(module, args, dynamic_shapes=shapes))


def roots_of(pattern: Function, program: px.Program) -> set[str]:
    """Return the values that a pattern matches."""
    found: set[str] = set()
    rule = px.rule(pattern, where=lambda m: found.update([m.root.name]))
    unused = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x)
    evolve(rule, replacement=unused.replacement)(program)
    return found


@pytest.mark.parametrize("number", range(len(CASES)))
def test_code_is_found_where_it_was_exported(number: int) -> None:
    pattern, _, _, is_found = CASES[number]
    for dynamic in (False, True):
        program = every(dynamic)
        (value,) = program.main.by_name[program.main.output[number].name].refs()
        assert (value in roots_of(pattern, program)) is is_found


def test_what_computes_sizes_goes_with_the_match() -> None:
    program = exported(Plain(lambda x: x.reshape(x.shape[0] * 2, -1).exp() + 1), X, dynamic=True)
    rule = px.rule(lambda x: x.reshape(x.shape[0] * 2, -1).exp()).becomes(
        lambda m, x: x.exp().view(-1, x.shape[1] // 2)
    )
    assert names_of(rule(program)) == ["exp", "view", "add"]
    shared = exported(
        Plain(lambda x: x.reshape(x.shape[0] * 2, -1).exp() + x.shape[0] * 2), X, dynamic=True
    )
    assert names_of(rule(shared)) == ["sym_size", "mul", "exp", "view", "add"]
    for each, function in (
        (program, lambda x: x.exp().view(-1, 3) + 1),
        (shared, lambda x: x.exp().view(-1, 3) + 2 * len(x)),
    ):
        assert not px.verify(rule(each), infer=True)
        for x in (X, torch.randn(7, 6)):
            torch.testing.assert_close(px.lower(rule(each))(x), function(x))


def test_laws() -> None:
    doubled = px.rule(lambda x: x.exp().reshape(x.shape[0] * 2, -1)).becomes(
        lambda m, x: x.reshape(x.shape[0] * 2, -1).exp()
    )
    assert check_rule(doubled, laws=OF_RESULTS, examples=share(5)).changed
    joined = px.rule(
        lambda x, rest: torch.cat([x, *rest], 0).neg(),
        where=lambda m: {*map(m.dtype, m["rest"])} <= {m.dtype("x")},
    )
    joined.becomes(lambda m, x, rest: torch.cat([x.neg(), *[each.neg() for each in rest]], 0))
    assert check_rule(joined, laws=OF_RESULTS, examples=share(5)).changed
    wrong = px.rule(lambda x: x[..., : x.shape[-1] // 2].neg()).becomes(
        lambda m, x: x[..., x.shape[-1] // 2 :].neg()
    )
    with pytest.raises(AssertionError, match="breaks the law"):
        check_rule(wrong, examples=share(20))


def test_a_replacement_is_recorded_once_for_operands_that_are_alike() -> None:
    recorded: list[Any] = []

    def replacement(m: px.Match, x: Tensor) -> Tensor:
        recorded.append(x)
        return functional.silu(x)

    rule = px.rule(lambda x: torch.relu(x)).becomes(replacement)
    layers = nn.Sequential(
        nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3), nn.ReLU()
    )
    assert names_of(rule(px.capture(layers, (X,)))).count("silu") == 3
    assert [tuple(x.shape) for x in recorded] == [(4, 6), (4, 3)]


class Scaled(nn.Module):
    """Scales its input by a buffer and by a Python number."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number
        self.register_buffer("w", torch.full((6,), number), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * self.w * self.number)


READS: list[Callable[[px.Match, Any], Any]] = [
    lambda m, w: m.constant(w), lambda m, w: m.constant("w"), lambda m, w: m.tensor(w), lambda m, w: m.read("w"),
    lambda m, w: m.buffer("v", m.tensor(w)), lambda m, w: m.parameter("v", m.tensor("w")), lambda m, w: m["n"],
    lambda m, w: m.val("n"), lambda m, w: 2.0 + int(m.path),
    lambda m, w: m.match(lambda x, w, n: x * w * n, m.arguments["self"])[2],  # type: ignore[index]
    lambda m, w: m.call(torch.ops.aten.full, [6], m["n"]), lambda m, w: m.scope.pending.tensor(m.root.stack[-1].path + ".w"),
]  # fmt: skip
"""What the replacement may read of one place: all of it has the number of the module."""


@pytest.mark.parametrize("number", range(len(READS)))
def test_a_replacement_that_reads_the_match_is_recorded_at_each(number: int) -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    rule = px.rule(lambda x, w, n: torch.relu(x * w * n)).becomes(
        lambda m, x, w, n: (x * w * READS[number](m, w)).clamp_min(0)
    )
    made = rule(px.capture(model, (X,)))
    assert names_of(made).count("clamp_min") == 2
    assert torch.equal(px.lower(made)(X), model(X))


ONE_DIMENSION = [
    "sum",
    "mean",
    "amax",
    "amin",
    "var",
    "std",
    "nansum",
    "logsumexp",
    "flip",
    "all",
    "any",
    "squeeze",
]
"""Methods whose operators have a list of dimensions, where torch code may have a number."""


@pytest.mark.parametrize("name", ONE_DIMENSION)
def test_a_number_and_its_list_of_one_are_the_same_variable(name: str) -> None:
    def within(x: Tensor, d: Any) -> Any:
        return getattr(x.softmax(d), name)(d)

    def around(x: Tensor, d: Any) -> Any:
        return getattr(x.unsqueeze(d), name)(d).unsqueeze(d).cumsum(d)

    for function in (within, around):
        program = px.capture(Plain(lambda x, f=function: f(x, 1)), (X,))
        dimensions: list[Any] = []
        rule = px.rule(function, where=lambda m, seen=dimensions: seen.append(m["d"]) or True)
        rule.becomes(lambda m, x, d: x.cumsum(d).softmax(d))  # they accept a number only
        rule.explain(program)
        assert dimensions and set(map(type, dimensions)) == {int}


def test_a_list_of_two_and_another_number_are_not_the_same_variable() -> None:
    rule = px.rule(lambda x, d: x.softmax(d).sum(d)).becomes(lambda m, x, d: x.sum(d))
    for function in (lambda x: x.softmax(1).sum([0, 1]), lambda x: x.softmax(1).sum(0)):
        program = px.capture(Plain(function), (X,))
        assert rule(program) is program
