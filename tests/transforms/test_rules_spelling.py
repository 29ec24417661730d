"""Patterns of plain torch code: each finds the same code in what torch exports of it, and not what computes something else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px

Function = Callable[..., Any]

X = torch.arange(12.0).reshape(3, 4) - 5
WHOLE = torch.arange(1, 13).reshape(3, 4)


class Plain(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def exported(function: Function, *args: Tensor, dynamic: bool = False) -> px.Program:
    size = torch.export.Dim("size", min=2, max=64)
    shapes = (tuple([{0: size} for _ in args]),) if dynamic else None
    return px.import_ep(torch.export.export(Plain(function), args, dynamic_shapes=shapes))


def matches(pattern: Function, program: px.Program) -> int:
    """Return how often a pattern matches in a program."""
    found: list[px.Match] = []
    rule = px.rule(pattern, where=lambda m: found.append(m) is not None)

    def kept(m: px.Match, *given: Any) -> Any:
        return m.value

    names = ["m", *rule.variables]
    kept.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])  # type: ignore[attr-defined]
    rule.becomes(kept)(program)
    return len({match.root.name for match in found})


def finds(pattern: Function, function: Function, *args: Tensor, dynamic: bool = False) -> bool:
    return matches(pattern, exported(lambda *given: function(*given) + 1, *args, dynamic=dynamic)) == 1


OPERATORS: list[tuple[str, Function, tuple[Tensor, ...]]] = [
    ("x & y", lambda x, y: x & y, (WHOLE, WHOLE + 1)),
    ("x & 1", lambda x: x & 1, (WHOLE,)),
    ("x >> y", lambda x, y: x >> y, (WHOLE, WHOLE % 3)),
    ("1 << x", lambda x: 1 << x, (WHOLE,)),
    ("2 ** x", lambda x: 2**x, (X,)),
    ("2 % x", lambda x: 2 % x, (X,)),
    ("+x", lambda x: +x, (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), OPERATORS, ids=[case[0] for case in OPERATORS])
def test_operators_of_python(name: str, function: Function, args: tuple[Tensor, ...]) -> None:
    assert finds(function, function, *args)


FUNCTIONS: list[tuple[str, Function, tuple[Tensor, ...]]] = [
    ("normalize", lambda x: functional.normalize(x), (X,)),
    ("norm of 1", lambda x: torch.norm(x, 1, dim=(0, 1), keepdim=True), (X,)),
    ("norm in double", lambda x: torch.norm(x, dtype=torch.float64), (X,)),
    ("glu", lambda x: functional.glu(x), (X,)),
    ("dropout", lambda x: functional.dropout(x, 0.25), (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), FUNCTIONS, ids=[case[0] for case in FUNCTIONS])
def test_functions_that_torch_writes_in_python(name: str, function: Function, args: tuple[Tensor, ...]) -> None:
    assert finds(function, function, *args)


def test_a_check_of_torch_that_asks_a_variable_is_refused() -> None:
    for pattern in (lambda x, p: functional.dropout(x, p), lambda x: functional.group_norm(x, 2)):
        with pytest.raises(px.errors.RuleError, match="Write the operator that it calls in the program, such as"):
            px.rule(pattern)


SIZES: list[tuple[str, Function]] = [
    ("size", lambda x: x / x.size(0)),
    ("shape", lambda x: (y := x.exp()) / y.shape[0]),
    ("numel", lambda x: x / x.numel()),
    ("type", lambda x, y: x.to(y.dtype) * y),
    ("batchmean", lambda x, y: functional.kl_div(x, y, reduction="batchmean")),
    ("view", lambda x: x.view(x.size(0), -1)),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("name", "function"), SIZES, ids=[case[0] for case in SIZES])
def test_what_is_known_of_a_value(name: str, function: Function, dynamic: bool) -> None:
    args = (X,) if "y" not in inspect.signature(function).parameters else (X, X.double())
    assert finds(function, function, *args, dynamic=dynamic)


def test_another_size_is_another_one() -> None:
    for dynamic in (False, True):
        assert not finds(lambda x: x / x.size(1), lambda x: x / x.size(0), X, dynamic=dynamic)
        assert not finds(lambda x: x / x.numel(), lambda x: x / x.size(0), X, dynamic=dynamic)
    assert not finds(lambda x, y: x.to(y.dtype) * y, lambda x, y: x.to(torch.float16) * y, X, X.double())
    assert finds(lambda x: x / x.size(-2), lambda x: x / x.size(0), X, dynamic=True)
    with pytest.raises(px.errors.RuleError, match=r"nothing but size\(y, 0\) says what y is"):
        px.rule(lambda x, y: x / y.size(0))
    with pytest.raises(px.errors.RuleError, match=r"take one, x.shape\[0\]"):
        px.rule(lambda x: x.reshape(len(x.shape)))


def test_a_size_is_left_for_those_who_use_it_too() -> None:
    rule = px.rule(lambda x: (y := x.exp()) / y.size(0)).becomes(lambda m, x: x.exp().neg())
    for dynamic in (False, True):
        program = exported(lambda x: ((y := x.exp()) / y.size(0)) * x.size(0), X, dynamic=dynamic)
        names = [node.do.name for node in rule(program).main.nodes if type(node.do) is px.Op]
        assert names[-2:] == ["aten.neg.default", "aten.mul.Tensor"]
        assert not px.verify(rule(program), infer=True)


DEVICES: list[tuple[str, Function, tuple[Tensor, ...]]] = [
    ("to a device", lambda x: x.to("cpu"), (X,)),
    ("cpu", lambda x: x.exp().cpu(), (X,)),
    ("to a device and a type", lambda x: x.to("cpu", torch.float16), (X,)),
    ("to a type", lambda x: x.to(torch.float16), (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), DEVICES, ids=[case[0] for case in DEVICES])
def test_devices(name: str, function: Function, args: tuple[Tensor, ...]) -> None:
    assert finds(function, function, *args)


def test_a_device_says_nothing_of_the_type() -> None:
    for function in (lambda x: x.to("cpu", torch.float16), lambda x: x.to("meta"), lambda x: x.to(torch.float16)):
        assert not finds(lambda x: x.to("cpu"), function, X)


FACTORIES: list[tuple[str, Function]] = [
    ("zeros", lambda x: x + torch.zeros(4)),
    ("full", lambda x: x + torch.full((4,), 0.5)),
    ("arange", lambda x: x + torch.arange(4)),
    ("what is made of it", lambda x: x.masked_fill(torch.ones(3, 4, dtype=torch.bool).triu(1), 0.0)),
    ("drawn", lambda x: x + torch.rand(4)),
]


@pytest.mark.parametrize(("name", "function"), FACTORIES, ids=[case[0] for case in FACTORIES])
def test_tensors_that_are_made(name: str, function: Function) -> None:
    assert finds(function, function, X)


def test_a_made_tensor_is_that_operator_or_a_constant() -> None:
    zeros = torch.zeros(4)
    assert finds(lambda x: x + torch.zeros(4), lambda x: x + zeros, X)
    for other in (lambda x: x + torch.ones(4), lambda x: x + torch.zeros(3, 4), lambda x: x + torch.zeros(4, dtype=torch.int64)):
        assert not finds(lambda x: x + torch.zeros(4), other, X)
    assert finds(lambda x: x + torch.ops.aten.zeros.default([4]), lambda x: x + torch.zeros(4), X)
    assert not finds(lambda x: x + torch.ops.aten.zeros.default([4]), lambda x: x + zeros, X)
    assert finds(lambda x, n: x + torch.zeros(n), lambda x: x + torch.zeros(4), X)
    assert finds(lambda x, n, value: x + torch.full((n,), value), lambda x: x + torch.full((4,), 0.5), X)
    assert finds(lambda x: x + torch.full((x.shape[0], 1), 0.5), lambda x: x + torch.full((x.shape[0], 1), 0.5), X, dynamic=True)


def test_further_matches_ask_what_terms_bring_with_them() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * torch.tensor(2.0)).exp() + 1

    found: list[Any] = []

    @px.rule(at=torch.exp, once=True)
    def asked(m: px.Match) -> Any:
        found.append(m.match(lambda x: x * torch.tensor(2.0), m.arguments["self"]) is not None)
        found.append(m.match(lambda x: x * torch.tensor(3.0), m.arguments["self"]) is not None)

    asked(exported(function, X))
    assert found == [True, False]


def test_a_number_of_another_type_is_the_same_to_a_floating_point_tensor() -> None:
    for pattern, function in ((lambda x: x * 2, lambda x: x * 2.0), (lambda x: 2.0 - x, lambda x: 2 - x)):
        assert finds(pattern, function, X)
        assert finds(pattern, function, X.half())
        assert not finds(pattern, function, WHOLE)
    assert finds(lambda x: x**2, lambda x: x**2.0, X)
    assert finds(lambda x: x.clamp(0.0, 6.0), lambda x: x.clamp(0, 6), X)
    assert not finds(lambda x: x * 2, lambda x: x * 2.5, X)
    assert not finds(lambda x: x + 0, lambda x: x + -0.0, X)
    assert not finds(lambda x: x * 1, lambda x: x * True, X)
    assert not finds(lambda x: torch.full_like(x, 2), lambda x: torch.full_like(x, 2.0), WHOLE)
    assert not finds(lambda x: torch.where(x > 0, 1, 2), lambda x: torch.where(x > 0, 1.0, 2.0), WHOLE)


INDICES: list[tuple[str, Function, tuple[Tensor, ...]]] = [
    ("[:, 0]", lambda x: x[:, 0], (X,)),
    ("[::2]", lambda x: x[::2], (X,)),
    ("[:, 1:3]", lambda x: x[:, 1:3], (X,)),
    ("[None, 1:, -1]", lambda x: x[None, 1:, -1], (X,)),
    ("[0] of what is computed", lambda x: x.exp()[0], (X,)),
    ("[tensor]", lambda x, i: x[i, :], (X, torch.tensor([0, 1]))),
    ("[:, tensor]", lambda x, i: x[:, i], (X, torch.tensor([0, 1]))),
    ("[mask]", lambda x: x[x > 0], (X,)),
    ("a part of a part", lambda x: x.chunk(2, -1)[1][:, 0], (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), INDICES, ids=[case[0] for case in INDICES])
def test_indices(name: str, function: Function, args: tuple[Tensor, ...]) -> None:
    assert finds(function, function, *args)


def test_an_index_that_depends_on_the_value() -> None:
    assert not finds(lambda x: x[:, 1], lambda x: x[:, 0], X)
    assert finds(lambda x, i: x.select(1, i), lambda x: x[:, 2], X)
    with pytest.raises(px.errors.RuleError, match=r"write an operator:\ntorch.select"):
        px.rule(lambda x: x[..., x > 0])
    with pytest.raises(px.errors.RuleError, match=r"write x.select\(0, -1\)"):
        px.rule(lambda x: x[-1])


def test_names_of_one_computation() -> None:
    assert finds(lambda x, y: torch.bitwise_and(x, y), lambda x, y: x & y, WHOLE, WHOLE + 1)
    assert finds(lambda x, y: x & y, torch.bitwise_and, WHOLE, WHOLE + 1)
    assert not finds(lambda x, y: torch.ops.aten.bitwise_and.Tensor(x, y), lambda x, y: x & y, WHOLE, WHOLE + 1)
    turned = px.rule(lambda x, y: x.abs() & y).becomes(lambda m, x, y: y & x.abs())
    program = turned(exported(lambda x, y: (x & y.abs()) + 1, WHOLE, WHOLE + 1), fuel=1)
    assert [node.do.name for node in program.main.nodes if type(node.do) is px.Op][1] == "aten.bitwise_and.Tensor"


def _commuting() -> list[Any]:
    whole = [torch.gcd, torch.lcm, torch.bitwise_or]
    return [torch.logaddexp, torch.logaddexp2, torch.hypot, torch.fmax, torch.fmin, *whole]


@pytest.mark.parametrize("function", _commuting(), ids=lambda one: one.__name__)
def test_operands_that_commute(function: Function) -> None:
    given = (WHOLE, WHOLE + 1) if function in _commuting()[-3:] else (X, X + 1)
    assert finds(lambda x, y: function(x.abs(), y), lambda x, y: function(x, y.abs()), *given)


def test_operands_that_do_not() -> None:
    assert not finds(lambda x, y: torch.isclose(x.abs(), y), lambda x, y: torch.isclose(x, y.abs()), X, X + 1)
    assert not finds(lambda x, y: torch.add(x.abs(), y, alpha=2), lambda x, y: torch.add(x, y.abs(), alpha=2), X, X + 1)
