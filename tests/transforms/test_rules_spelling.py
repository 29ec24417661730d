"""Patterns of plain torch code: each finds the same code in what torch exports of it, and not what computes something else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
    shapes = ([{0: size} for _ in args],) if dynamic else None
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
    ("x | y", lambda x, y: x | y, (X > 0, X < 1)),
    ("x ^ y", lambda x, y: x ^ y, (X > 0, X < 1)),
    ("x & 1", lambda x: x & 1, (WHOLE,)),
    ("1 & x", lambda x: 1 & x, (WHOLE,)),
    ("x << 1", lambda x: x << 1, (WHOLE,)),
    ("x >> y", lambda x, y: x >> y, (WHOLE, WHOLE % 3)),
    ("1 << x", lambda x: 1 << x, (WHOLE,)),
    ("2 ** x", lambda x: 2**x, (X,)),
    ("2 % x", lambda x: 2 % x, (X,)),
    ("2 // x", lambda x: 2 // x, (X,)),
    ("+x", lambda x: +x, (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), OPERATORS, ids=[case[0] for case in OPERATORS])
def test_operators_of_python(name: str, function: Function, args: tuple[Tensor, ...]) -> None:
    assert finds(function, function, *args)


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
