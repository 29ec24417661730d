"""Rules that keep inner values: what shared memory with a value that stays does so afterwards, and nothing else does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from tests.transforms.test_rules import X, of

Function = Callable[..., Any]


def kept(pattern: Function, replacement: Function) -> px.Rule:
    return of(pattern, replacement, keeps_inner=True, once=True)


TURNED = kept(lambda x: x.sin().t(), lambda m, x: x.t().sin())
FIRST = kept(lambda x: x.sin()[:1], lambda m, x: x[:1].sin())
FLAT = kept(lambda x: x.sin().reshape(-1), lambda m, x: x.reshape(-1).sin())
VIEWED = kept(lambda x: x.t().unsqueeze(0), lambda m, x: x.unsqueeze(0).transpose(1, 2))
LARGEST = kept(lambda x: x.max(1)[0].unsqueeze(0), lambda m, x: x.amax(1).unsqueeze(0))
PAIR = kept(
    lambda x: ((y := x.sin()).exp(), y.t().unsqueeze(0)),
    lambda m, x: (x.sin().exp(), x.t().sin().unsqueeze(0)),
)
OF_A_RESULT = kept(
    lambda x: (y := x.sin(), y.t().exp()), lambda m, x: (y := x.sin() * 1, y.t().exp())
)


@px.rule(at=torch.clone, keeps_inner=True)
def spared(m: px.Match) -> Any:
    """Drop a copy of a value that is computed beside it."""
    x = m.arguments["self"]
    return None if m.match(lambda y: torch.sin(y), x) is None else x


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class Twice(nn.Module):
    """Two modules that share a body."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.one, self.two = Of(function), Of(function)

    def forward(self, x: Tensor) -> Any:
        return self.one(x), self.two(x + 1)


def written(x: Tensor) -> Any:
    z = x.sin()
    z.t().add_(1)
    return z


def view_written(x: Tensor) -> Any:
    z = x.sin()
    z[:1].view(-1).mul_(3)
    return z * 2


def copied_into(x: Tensor) -> Any:
    z = x.sin()
    y = z.t()
    y.copy_(x.t())
    return z, y


def inner_written(x: Tensor) -> Any:
    z = x.sin()
    y = z.t()
    z.view(-1).add_(1)
    return y


def written_into_a_view(x: Tensor) -> Any:
    y = (z := x.t()).unsqueeze(0)
    y.add_(1)
    return z.clone(), y.clone()


def largest_written(x: Tensor) -> Any:
    largest, index = x.max(1)
    y = largest.unsqueeze(0)
    y.add_(1)
    return y, index


def largest_kept(x: Tensor) -> Any:
    largest, index = x.max(1)
    y = largest.unsqueeze(0)
    y.add_(1)
    return largest * 2, index


def result_written(x: Tensor) -> Any:
    y = x.sin()
    z = y.t()
    out = z.exp()
    y.add_(1)
    return z, out, y


STAYS: dict[str, tuple[px.RuleSet, Function]] = {
    "the result is written": (TURNED, written),
    "a view of the result is written": (FIRST, view_written),
    "the result is copied into": (TURNED, copied_into),
    "the inner value is written through a view": (TURNED, inner_written),
    "the caller gets both": (TURNED, lambda x: ((z := x.sin()).t(), z)),
    "the caller gets a view of each": (TURNED, lambda x: ((z := x.sin()).t()[:1], z.view(-1))),
    "the result may be a view": (FLAT, lambda x: ((z := x.sin()).reshape(-1), z)),
    "one of several results is written": (LARGEST, largest_kept),
    "two results, and the caller gets both": (
        PAIR,
        lambda x: ((z := x.sin()).exp(), z.t().unsqueeze(0), z),
    ),
    "the result would be the inner value": (spared, lambda x: ((z := x.sin()).clone(), z)),
}  # fmt: skip
GOES: dict[str, tuple[px.RuleSet, Function]] = {
    "the caller gets only the result": (TURNED, lambda x: ((z := x.sin()).t(), z.sum())),
    "the caller gets only the inner value": (TURNED, lambda x: ((z := x.sin()).t().exp(), z)),
    "both are views of an operand": (VIEWED, written_into_a_view),
    "another of several results stays": (LARGEST, largest_written),
    "two results, and the caller gets no view": (
        PAIR,
        lambda x: ((z := x.sin()).exp(), z.t().unsqueeze(0), z * 2),
    ),
    "the inner value is a view of a result": (OF_A_RESULT, result_written),
    "nothing else uses the inner value": (spared, lambda x: x.sin().clone()),
}  # fmt: skip


def called(module: nn.Module, number: int) -> list[Tensor]:
    """Return the results of a call, after the caller wrote into one of them."""
    result = module(X + number)
    values = list(result) if isinstance(result, tuple) else [result]
    leaves = [leaf for value in values for leaf in (value if type(value) is tuple else (value,))]
    if leaves[number % len(leaves)].is_floating_point():
        leaves[number % len(leaves)].add_(5)
    return leaves


@cache
def captured(make: Callable[[Function], nn.Module], function: Function) -> px.Program:
    return px.capture(make(function), (X,))


@pytest.mark.parametrize("make", [Of, Twice])
@pytest.mark.parametrize("is_tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("name", [*STAYS, *GOES])
def test_a_match_is_replaced_only_if_no_write_can_tell(
    name: str, is_tree: bool, make: Callable[[Function], nn.Module]
) -> None:
    rule, function = {**STAYS, **GOES}[name]
    program = captured(make, function)
    program = px.transform(program) if is_tree else program
    result = rule(program)
    assert (result is not program) == (name in GOES)
    assert not px.verify(result, infer=True)
    mine, theirs = px.lower(result), copy.deepcopy(make(function))
    for number in range(4):
        torch.testing.assert_close(called(mine, number), called(theirs, number))


def test_what_is_written_is_no_constant_in_another_rule() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.arange(3.0), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            copied = self.count.clone()
            copied.view(-1).add_(1)
            return x * copied

    @px.rule(at=torch.mul, once=True)
    def folded(m: px.Match) -> Any:
        args = m.arguments
        return None if m.constant(args["other"], buffers=True) is None else args["self"].neg()

    again = px.rule(lambda x: x.clone(), once=True).becomes(lambda m, x: x.clone())
    program = px.capture(Counted(), (torch.ones(3),))
    for each in (program, px.transform(program)):
        report = (again + folded).explain(each)
        assert [hit.rule for hit in report.replaced] == ["<lambda>"]
