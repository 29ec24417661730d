"""How often a replacement is called: once for all matches that are alike, and for each of them where something else decides.

Calls are counted from outside, by the interpreter, so that the replacement is what it would be without a count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px
from tests.transforms.test_rules_by_hand import given, text_of

FOUR = "; ".join(
    [f"r{number} = aten.relu.default({used})" for number, used in enumerate(["x", "r0", "z", "r2"])]
    + ["s = aten.add.Tensor(r1, r3); s"]
)

FACTOR, TYPE, BOTH = 2.5, torch.float32, (1, (2, "a", None))


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
