"""Rules for decomposed programs: a pattern of plain torch code, and what torch makes of it on an example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purefx as px
from purefx.laws.rules import check_rule
from purefx.laws.tiers import share
from tests.transforms.test_rules import Plain, names_of_operators

Function = Callable[..., Any]

ROWS = torch.ones(3, 4)
W, B = torch.ones(5, 4), torch.ones(5)


def normed(x: Any, size: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, size, w, b)


def attended(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v


silu = px.rule(lambda x: functional.silu(x), example=[ROWS]).becomes(lambda m, x: functional.silu(x))
linear = px.rule(lambda x, w, b: functional.linear(x, w, b), example=[ROWS, W, B])
linear.becomes(lambda m, x, w, b: functional.linear(x, w, b))
batched = px.rule(lambda x, w, b: functional.linear(x, w, b), example=[torch.ones(2, 3, 4), W, B])
batched.becomes(lambda m, x, w, b: functional.linear(x, w, b))
norm = px.rule(normed, example=[ROWS, [4], torch.ones(4), torch.ones(4)])
norm.becomes(lambda m, x, size, w, b: functional.layer_norm(x, size, w, b))
softmax = px.rule(lambda x, dim: torch.softmax(x * 2, dim), example=[ROWS, -1])
softmax.becomes(lambda m, x, dim: torch.softmax(x + x, dim))
attention = px.rule(attended, example=[torch.ones(2, 2, 3, 4)] * 3)
attention.becomes(lambda m, q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=1 / 8))
gelu = px.rule(lambda x: functional.gelu(x) * 2, example=[ROWS]).becomes(lambda m, x: functional.gelu(x) + functional.gelu(x))


def rewritten(rule: px.RuleSet, function: Function, *args: Tensor, dynamic: Any = None) -> list[str]:
    model = Plain(function)
    program = px.import_ep(torch.export.export(model, args, dynamic_shapes=dynamic).run_decompositions())
    result = rule(program)
    assert not px.verify(result, infer=True)
    torch.testing.assert_close(px.lower(px.transform(result))(*args), model(*args))
    return names_of_operators(result) if result is not program else []


X = torch.randn(5, 6)

MATCHES: list[tuple[str, px.RuleSet, Function, tuple[Tensor, ...], str]] = [
    ("silu", silu, lambda m, x: functional.silu(x) + 1, (X,), "silu add"),
    ("linear", linear, lambda m, x, w, b: functional.linear(x, w, b).sin(), (X, torch.ones(2, 6), torch.ones(2)), "linear sin"),
    ("sizes are in it", batched, lambda m, x, w, b: functional.linear(x, w, b), (torch.randn(2, 3, 4), W, B), "linear"),
    ("a list", norm, lambda m, x, w: functional.layer_norm(x, (6,), w, w).sin(), (X, torch.ones(6)), "layer_norm sin"),
    ("a number", softmax, lambda m, x: torch.softmax(x * 2, 0), (X,), "add softmax"),
    ("gelu", gelu, lambda m, x: functional.gelu(x) * 2, (X,), "gelu gelu add"),
    ("attention", attention, lambda m, *qkv: attended(*qkv), (*torch.randn(3, 2, 2, 3, 4),), "scaled_dot_product_attention"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "function", "args", "wanted"), MATCHES, ids=[case[0] for case in MATCHES])
def test_matches(name: str, rule: px.RuleSet, function: Function, args: tuple[Tensor, ...], wanted: str) -> None:
    assert [each.split(".")[1] for each in rewritten(rule, function, *args)] == wanted.split()


LEFT: list[tuple[str, px.RuleSet, Function, tuple[Tensor, ...]]] = [
    ("another type", silu, lambda m, x: functional.silu(x) + 1, (X.double(),)),
    ("more dimensions", silu, lambda m, x: functional.silu(x) + 1, (X[None],)),
    ("other sizes", batched, lambda m, x, w, b: functional.linear(x, w, b), (torch.randn(3, 2, 4), W, B)),
    ("something else", silu, lambda m, x: x * torch.sigmoid(x + 1), (X,)),
]


@pytest.mark.parametrize(("name", "rule", "function", "args"), LEFT, ids=[case[0] for case in LEFT])
def test_left_alone(name: str, rule: px.RuleSet, function: Function, args: tuple[Tensor, ...]) -> None:
    assert rewritten(rule, function, *args) == []


def test_sizes_that_only_a_run_knows() -> None:
    sizes = (({0: torch.export.Dim.DYNAMIC},),)
    assert rewritten(silu, lambda m, x: functional.silu(x) + 1, X, dynamic=sizes) != []
    three = px.rule(lambda x, w: functional.linear(x, w), example=[torch.ones(2, 3, 4), W])
    three.becomes(lambda m, x, w: functional.linear(x, w))
    assert rewritten(three, lambda m, x: functional.linear(x, torch.ones(5, 4)), torch.ones(2, 3, 4), dynamic=sizes) == []


def test_laws() -> None:
    assert check_rule(silu, examples=share(12), rtol=1e-5, atol=1e-5, finite=True).matched >= 6
    wrong = px.rule(lambda x: functional.silu(x), example=[ROWS]).becomes(lambda m, x: torch.sigmoid(x))
    with pytest.raises(AssertionError, match="breaks the law 'meaning'"):
        check_rule(wrong, examples=10)
