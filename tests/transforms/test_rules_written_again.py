"""How often a replacement is called: once for all matches that are alike, and for each of them where something else decides.

Calls are counted from outside, by the interpreter, so that the replacement is what it would be without a count.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from tests.transforms.test_rules_by_hand import given, text_of

FOUR = "; ".join(
    [f"r{number} = aten.relu.default({used})" for number, used in enumerate(["x", "r0", "z", "r2"])]
    + ["s = aten.add.Tensor(r1, r3); s"]
)

FACTOR, TYPE, BOTH = 2.5, torch.float32, (1, (2, "a", None))

NUMBERS = [1]

CHOICE: dict[str, Any] = {"a": 1}


def calls_of(rule: px.Rule, program: px.Program) -> tuple[int, px.Program]:
    """Return how often a rule called its replacement, and the program after it."""
    code, counted = rule.replacement.__code__, []  # type: ignore[union-attr]

    def count(frame: Any, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is code:
            counted.append(1)

    sys.setprofile(count)
    try:
        made = rule(program)
    finally:
        sys.setprofile(None)
    return len(counted), made


def helper(x: Any, by: float = 2.0) -> Any:
    """Call a function of torch, and another one of this module."""
    return other(torch.exp(x)) * by


def other(x: Any) -> Any:
    """Use what stands around it."""
    return x * FACTOR


def helper_of_a_list(x: Any) -> Any:
    """Look at a list, which may change."""
    return x * NUMBERS[0]


def recursive(x: Any, depth: int = 2) -> Any:
    """Call itself."""
    return x if depth == 0 else recursive(torch.exp(x), depth - 1)


def by_name(x: Any, *, by: float = 2.0) -> Any:
    """Have a default that may be assigned."""
    return x * by


def around(factor: Any) -> Callable[..., Any]:
    """Return a replacement that closes over a value."""
    return lambda m, x: torch.exp(x) * factor


def with_an_inner_function(m: Any, x: Any) -> Any:
    """Define a function, and call it."""

    def inner(y: Any) -> Any:
        return torch.exp(y) * FACTOR

    return inner(x)


def looping(m: Any, x: Any) -> Any:
    """Use builtins."""
    for number in range(len(BOTH)):
        x = x + sum([abs(-number), max(1, 2)])
    return x


ONCE: list[Callable[..., Any]] = [
    lambda m, x: torch.exp(x),
    lambda m, x: x.exp() * 2 + 1,
    lambda m, x: m.call(torch.ops.aten.exp, x),
    lambda m, x: m.call(torch.ops.aten.exp.default, x),
    lambda m, x: functional.softmax(x, -1),
    lambda m, x: torch.nn.functional.gelu(x),
    lambda m, x: torch.exp(x) * FACTOR,
    lambda m, x: torch.exp(x) * math.pi + math.sqrt(4.0),
    lambda m, x: operator.mul(torch.exp(x), BOTH[0]),
    lambda m, x: helper(x),
    lambda m, x: helper(helper(x)),
    lambda m, x: recursive(x),
    around(3),
    around(2.5),
    with_an_inner_function,
    looping,
]

EACH: list[Callable[..., Any]] = [
    lambda m, x: torch.exp(x) * (2 if m.path == "" else 3),
    lambda m, x: torch.exp(x) * len(m.place),
    lambda m, x: torch.exp(x) if x.dtype is TYPE else x,
    lambda m, x: torch.exp(x) * x.shape[0],
    lambda m, x: torch.exp(x) * x.numel(),
    lambda m, x: torch.exp(x) * m.nodes[0].args.__len__(),
    lambda m, x: torch.exp(x) * NUMBERS[0],
    lambda m, x: torch.exp(x) * CHOICE["a"],
    lambda m, x: helper_of_a_list(x),
    lambda m, x: by_name(x),
    lambda m, x: torch.exp(x) * len(sys.argv[:0] or [1]),
]


@pytest.mark.parametrize("number", range(len(ONCE)))
def test_a_function_of_operands_is_called_once(number: int) -> None:
    rule = px.rule(lambda x: torch.relu(x)).becomes(ONCE[number])
    count, made = calls_of(rule, given(FOUR))
    assert count == 1
    assert px.verify(made, infer=True) == ()
    asked = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: (m.path, ONCE[number](m, x))[1])
    assert calls_of(asked, given(FOUR)) == (4, made)


@pytest.mark.parametrize("number", range(len(EACH)))
def test_what_may_see_more_is_called_each_time(number: int) -> None:
    count, made = calls_of(px.rule(lambda x: torch.relu(x)).becomes(EACH[number]), given(FOUR))
    assert count == 4
    assert px.verify(made, infer=True) == ()


MULTIPLIED = px.rule(lambda x, n: torch.mul(x, n)).becomes(lambda m, x, n: torch.add(torch.add(x, n), n))
LISTED = px.rule(lambda n: torch.cat(n)).becomes(lambda m, n: torch.stack(n).flatten())
SUMMED = px.rule(lambda x, n: torch.sum(x, n)).becomes(lambda m, x, n: torch.mean(x, n))
RELU = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.exp(x))


@pytest.mark.parametrize(
    ("rule", "nodes", "count"),
    [
        (MULTIPLIED, "a = aten.mul.Tensor(x, 2); b = aten.mul.Tensor(z, 2); a, b", 1),
        (MULTIPLIED, "a = aten.mul.Tensor(x, 2); b = aten.mul.Tensor(z, 3); a, b", 2),
        (MULTIPLIED, "a = aten.mul.Tensor(x, 2); b = aten.mul.Tensor(z, 2.0); a, b", 2),
        (MULTIPLIED, "a = aten.mul.Tensor(x, 1); b = aten.mul.Tensor(z, True); a, b", 2),
        (MULTIPLIED, "a = aten.mul.Tensor(x, 0.0); b = aten.mul.Tensor(z, -0.0); a, b", 2),
        (MULTIPLIED, "a = aten.mul.Tensor(x, 0.5); b = aten.mul.Tensor(z, 0.5); a, b", 1),
        (MULTIPLIED, "a = aten.mul.Tensor(x, nan); b = aten.mul.Tensor(z, nan); a, b", 1),
        (MULTIPLIED, "a = aten.mul.Tensor(x, z); b = aten.mul.Tensor(z, x); a, b", 1),
        (MULTIPLIED, "a = aten.mul.Tensor(x, z); b = aten.mul.Tensor(x, x); a, b", 2),
        (MULTIPLIED, "a = aten.mul.Tensor(x, x); b = aten.mul.Tensor(z, z); a, b", 1),
        (LISTED, "a = aten.cat.default([x, z]); b = aten.cat.default([x, x]); a, b", 2),
        (LISTED, "a = aten.cat.default([x, z]); b = aten.cat.default([x, z, x]); a, b", 2),
        (SUMMED, "a = aten.sum.dim_IntList(x, [0]); b = aten.sum.dim_IntList(z, [0]); a, b", 1),
        (SUMMED, "a = aten.sum.dim_IntList(x, [0]); b = aten.sum.dim_IntList(z, [-1]); a, b", 2),
        (RELU, "d = aten.to.dtype(z, torch.float64); a = aten.relu.default(x); b = aten.relu.default(d); a, b", 2),
        (RELU, "d = aten.unsqueeze.default(z, 0); a = aten.relu.default(x); b = aten.relu.default(d); a, b", 2),
    ],
)
def test_what_is_alike(rule: px.Rule, nodes: str, count: int) -> None:
    """Values are alike where their types are, literals to the last bit, and one value in two places is not two values."""
    found, made = calls_of(rule, given(nodes))
    assert found == count
    assert px.verify(made, infer=True) == ()
    asked: Callable[..., Any] = rule.replacement  # type: ignore[assignment]
    if rule.variables == ("x", "n"):
        again = px.rule(rule.written).becomes(lambda m, x, n: (m.path, asked(m, x, n))[1])
        assert text_of(made) == text_of(again(given(nodes)))


def test_a_global_that_changes_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x * FACTOR)
    program = given("r = aten.relu.default(x); r")
    assert text_of(rule(program)) == "mul = aten.mul.Tensor(x, 2.5); mul"
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 7)
    assert text_of(rule(program)) == "mul = aten.mul.Tensor(x, 7); mul"


def test_state_and_tensors_are_brought_for_each_match() -> None:
    new = px.rule(lambda x: torch.relu(x), once=True).becomes(lambda m, x: x * m.buffer("b", torch.ones(2)))
    count, made = calls_of(new, given(FOUR))
    assert (count, sorted(made.state.slots)) == (4, ["b", "b_1", "b_2", "b_3"])
    constant = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x * torch.ones(2))
    assert calls_of(constant, given(FOUR))[0] == 4
