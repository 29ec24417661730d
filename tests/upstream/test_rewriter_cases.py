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


CASES: list[tuple[str, px.RuleSet, Function, Function, tuple[Tensor, ...], str]] = [
    ("one match", relu_to_tanh, lambda m, x: x.neg().relu(), lambda x: x.neg().tanh(), (X,), "neg tanh"),
    ("back to back", relu_to_tanh, lambda m, x: x.relu().relu().relu(), lambda x: x.tanh().tanh().tanh(), (X,), "tanh tanh tanh"),
    (
        "overlapping", of(lambda x: x.sin().sin(), lambda m, x: x.cos()), lambda m, x: x.sin().sin().sin(),
        lambda x: x.cos().sin(), (X,), "cos sin",
    ),
    (
        "a list", of(lambda x: torch.cat([x, x]), lambda m, x: torch.stack([x, x])), two_sums,
        lambda x: 2 * torch.stack([x, x]).sum(), (X,), "stack sum stack sum add",
    ),
    (
        "a constant in a list", of(lambda x: x.sum([0, 1]), lambda m, x: x.amax([0, 1])), lambda m, x: x.sum([0, 1]) + x.sum([1]),
        lambda x: x.amax() + x.sum(1), (X,), "amax sum add",
    ),
    (
        "a result that is given", of(lambda x: x.relu(), lambda m, x: x), lambda m, x: x.sin().relu() + 1,
        lambda x: x.sin() + 1, (X,), "sin add",
    ),
    ("an operand used twice", doubled, lambda m, x: x + x, lambda x: x * 3, (X,), "mul"),
    (
        "by name", of(lambda x: functional.leaky_relu(x, negative_slope=0.5), lambda m, x: x * 2),
        lambda m, x: functional.leaky_relu(x, 0.5) + functional.leaky_relu(x), lambda x: x * 2 + functional.leaky_relu(x), (X,),
        "mul leaky_relu add",
    ),
    (
        "literals are variables", of(lambda x, n: x * n, lambda m, x, n: x - n), lambda m, x: (x * 2) * 3,
        lambda x: x - 2 - 3, (X,), "sub sub",
    ),
    (
        "a filter", of(lambda x, n: x * n, lambda m, x, n: x - n, where=lambda m: m["n"] == 2), lambda m, x: (x * 2) * 3,
        lambda x: (x - 2) * 3, (X,), "sub mul",
    ),
    (
        "several results", of(lambda x: (x.sin(), x.cos()), lambda m, x: (x.exp(), x.neg())),
        lambda m, x: x.sin() * 2 + x.cos() * 3, lambda x: x.exp() * 2 - x * 3, (X,), "exp neg mul mul add",
    ),
    (
        "one result twice", of(lambda x: (x.sin(), x.cos()), lambda m, x: (y := x.exp(), y)),
        lambda m, x: x.sin() * 2 + x.cos() * 3, lambda x: x.exp() * 5, (X,), "exp mul mul add",
    ),
    (
        "an inner value has other users", of(lambda x: x.sin().cos(), lambda m, x: x.exp()),
        lambda m, x: (y := x.sin()).cos() + y, lambda x: x.sin().cos() + x.sin(), (X,), "",
    ),
    (
        "an inner value is used twice inside", of(lambda x: (y := x.sin()) * y.cos(), lambda m, x: x.exp()),
        lambda m, x: (y := x.sin()) * y.cos() + 1, lambda x: x.exp() + 1, (X,), "exp add",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "function", "meant", "args", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_case(name: str, rule: px.RuleSet, function: Function, meant: Function, args: tuple[Tensor, ...], wanted: str) -> None:
    names, given = applied(rule, function, *args)
    assert names == wanted.split()
    torch.testing.assert_close(given, meant(*args))


def test_an_inner_value_that_is_returned_stays() -> None:
    rule = of(lambda x: x.sin().cos(), lambda m, x: x.exp())
    names, given = applied(rule, lambda m, x: ((y := x.sin()), y.cos()), X)
    assert names == []
    torch.testing.assert_close(given, (X.sin(), X.sin().cos()))


def test_calls_of_modules() -> None:
    """A call of a module is matched by what is in it, and the module stays."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    program = px.transform(px.import_ep(torch.export.export(model, (X,))))
    result = relu_to_tanh(program)
    wanted = nn.Sequential(model[0], nn.Tanh(), model[2], nn.Tanh())
    torch.testing.assert_close(px.lower(result)(X), wanted(X))
    assert len(result.graphs) == len(program.graphs)


def test_what_was_replaced_is_said() -> None:
    """The rewrites and their places are the labels of the fuel, and what is new knows the source line of what it stands for."""
    program = px.import_ep(torch.export.export(Plain(lambda m, x: x.relu().sin().relu()), (X,)))
    fuel = px.Fuel(9)
    result = relu_to_tanh.transformation.spend(program, fuel)
    assert fuel.labels == ("apply <lambda> at relu", "apply <lambda> at relu_1")
    lines = [program.main.nodes[number].meta["stack_trace"] for number in (0, 2)]
    assert [node.meta["stack_trace"] for node in result.main.nodes if "tanh" in node.name] == lines
