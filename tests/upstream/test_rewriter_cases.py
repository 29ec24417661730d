"""The documented cases of torch.fx's ``subgraph_rewriter``, each as a small program of our own and a rule.

What a matcher has to get right: matches back to back, lists, several results, results that are given, overlap, arguments by
name, filters, calls of modules.  Each is compared with eager on what the rule means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from tests.transforms.test_rules import Plain, names_of_operators

Function = Callable[..., Any]

X = torch.randn(3, 4)


def of(pattern: Function, replacement: Function, **options: Any) -> px.Rule:
    return px.rule(**options)(pattern).becomes(replacement)


def applied(rule: px.RuleSet, function: Function, *args: Tensor) -> tuple[list[str], Any]:
    """Return the operators after a rule, and what the program gives."""
    program = px.import_ep(torch.export.export(Plain(function), args))
    result = rule(program)
    assert not px.verify(result, infer=True)
    assert rule(result) is result
    names = [name.split(".")[1] for name in names_of_operators(result)]
    return (names if result is not program else []), px.lower(px.transform(result))(*args)


relu_to_tanh = of(lambda x: torch.relu(x), lambda m, x: torch.tanh(x))
doubled = of(lambda x: x + x, lambda m, x: x * 3)


def two_sums(m: Any, x: Tensor) -> Tensor:
    return torch.sum(torch.cat([x, x])) + torch.sum(torch.cat([x, x]))


CASES: list[tuple[str, px.RuleSet, Function, Function, str]] = [
    ("back to back", relu_to_tanh, lambda m, x: x.relu().relu().relu(), lambda x: x.tanh().tanh().tanh(), "tanh tanh tanh"),
    (
        "overlapping", of(lambda x: x.sin().sin(), lambda m, x: x.cos()), lambda m, x: x.sin().sin().sin(),
        lambda x: x.cos().sin(), "cos sin",
    ),
    (
        "a list", of(lambda x: torch.cat([x, x]), lambda m, x: torch.stack([x, x])), two_sums,
        lambda x: 2 * torch.stack([x, x]).sum(), "stack sum stack sum add",
    ),
    (
        "a constant in a list", of(lambda x: x.sum([0, 1]), lambda m, x: x.amax([0, 1])), lambda m, x: x.sum([0, 1]) + x.sum([1]),
        lambda x: x.amax() + x.sum(1), "amax sum add",
    ),
    (
        "a result that is given", of(lambda x: x.relu(), lambda m, x: x), lambda m, x: x.sin().relu() + 1,
        lambda x: x.sin() + 1, "sin add",
    ),
    ("an operand used twice", doubled, lambda m, x: x + x, lambda x: x * 3, "mul"),
    (
        "by name", of(lambda x: functional.leaky_relu(x, negative_slope=0.5), lambda m, x: x * 2),
        lambda m, x: functional.leaky_relu(x, 0.5) + functional.leaky_relu(x), lambda x: x * 2 + functional.leaky_relu(x),
        "mul leaky_relu add",
    ),
    (
        "a filter", of(lambda x, n: x * n, lambda m, x, n: x - n, where=lambda m: m["n"] == 2), lambda m, x: (x * 2) * 3,
        lambda x: (x - 2) * 3, "sub mul",
    ),
    (
        "one result twice", of(lambda x: (x.sin(), x.cos()), lambda m, x: (y := x.exp(), y)),
        lambda m, x: x.sin() * 2 + x.cos() * 3, lambda x: x.exp() * 5, "exp mul mul add",
    ),
    (
        "an inner value is used twice inside", of(lambda x: (y := x.sin()) * y.cos(), lambda m, x: x.exp()),
        lambda m, x: (y := x.sin()) * y.cos() + 1, lambda x: x.exp() + 1, "exp add",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "function", "meant", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_case(name: str, rule: px.RuleSet, function: Function, meant: Function, wanted: str) -> None:
    names, given = applied(rule, function, X)
    assert names == wanted.split()
    torch.testing.assert_close(given, meant(X))


def test_calls_of_modules() -> None:
    """A call of a module is matched by what is in it, and the module stays."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    program = px.transform(px.import_ep(torch.export.export(model, (X,))))
    result = relu_to_tanh(program)
    wanted = nn.Sequential(model[0], nn.Tanh(), model[2], nn.Tanh())
    torch.testing.assert_close(px.lower(result)(X), wanted(X))
    assert len(result.graphs) == len(program.graphs)
