"""The rules of attention, each on a module that has what it looks for, and on those that almost do.

The families of inductor are in ``test_attention.py``.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purefx as px
from purefx import rules
from purefx.ir.torch_private import SAFE_SOFTMAX
from tests.transforms.rulesets import Function, Plain, applied, assert_equal, exported

INF = math.inf
LOWEST = torch.finfo(torch.float32).min
LOWEST_HALF = torch.finfo(torch.float16).min

torch.manual_seed(0)
Q, K, V, BIAS = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 5)
QKV = (Q, K, V, BIAS)


def turned(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


def soft(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def drop(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.4)


def half(function: Function) -> Function:
    return lambda m, q, k, v, b: function(m, q.half(), k.half(), v.half(), b.half())


FILL = torch.full

ATTENTION: list[tuple[str, Function]] = [
    ("attention", lambda m, q, k, v, b: soft(q @ k.mT) @ v),
    ("attention_scaled", lambda m, q, k, v, b: soft(torch.bmm(q[0], k[0].transpose(1, 2)) / 3.0) @ v[0]),
    ("attention_scaled_dropped", half(lambda m, q, k, v, b: drop(soft((q @ turned(k) / 8.0).float())).half() @ v)),
    ("attention times_before", half(lambda m, q, k, v, b: soft(((q * 0.3) @ turned(k)).float()).half() @ v)),
    ("attention over_before", lambda m, q, k, v, b: soft((q / 8.0) @ turned(k)) @ v),
    ("attention times_before over_before", lambda m, q, k, v, b: soft((q / 2.0) @ turned(k * 0.5)) @ v),
    ("attention_scaled_biased", half(lambda m, q, k, v, b: functional.softmax(q @ turned(k) * 0.3 + b, -1, dtype=torch.float32).to(q.dtype) @ v)),
    ("attention_scaled_biased_dropped", lambda m, q, k, v, b: drop(soft(b + q @ k.transpose(2, 3) / 8.0)) @ v),
    ("attention_biased", lambda m, q, k, v, b: (s := q @ k.permute(0, 1, 3, 2) + b).float().softmax(-1).type_as(s) @ v),
    ("attention_scaled_biased", half(lambda m, q, k, v, b: ((s := q @ k.mT * 0.3) + b).type_as(s).softmax(-1) @ v)),
    ("attention_scaled_hidden", lambda m, q, k, v, b: soft((q @ turned(k) / 8.0).masked_fill((m.seen == 0).expand(2, 3, 5, 5), -INF)) @ v),
    ("attention_scaled_hidden_dropped", lambda m, q, k, v, b: drop(soft((q @ turned(k) / 8.0).masked_fill(~m.seen, -1e9))) @ v),
    ("attention_hidden_dropped over_before", lambda m, q, k, v, b: drop(soft((q / 8.0 @ turned(k)).masked_fill(~m.seen, -INF))) @ v),
    ("attention_hidden", lambda m, q, k, v, b: soft(torch.where(m.seen == 0, -INF, q @ turned(k))) @ v),
    ("attention_scaled_seen causal", lambda m, q, k, v, b: soft(torch.where(m.seen, q @ turned(k) * 0.3, -INF)) @ v),
    ("attention_scaled_seen_dropped", lambda m, q, k, v, b: (
        drop(soft(torch.where(m.seen, q @ k.permute(0, 1, 3, 2) / FILL([], 8.0), FILL((), LOWEST)))) @ v, k + 1)),
    ("attention_scaled_seen_biased", lambda m, q, k, v, b: soft(torch.where(m.seen, q @ turned(k) / FILL([], 8.0), LOWEST) + b) @ v),
    ("attention_scaled_biased causal", lambda m, q, k, v, b: soft(q @ turned(k) * 0.3 + m.bias) @ v),
    ("attention", lambda m, q, k, v, b: soft(q.transpose(1, 2) @ turned(k.transpose(1, 2))) @ v.permute(0, 2, 1, 3)),
    ("attention_scaled_hidden", lambda m, q, k, v, b: soft((q @ turned(k) / 8.0).masked_fill(torch.ones_like(m.seen), LOWEST)) @ v),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "function"), ATTENTION, ids=[f"{number}-{each[0]}" for number, each in enumerate(ATTENTION)])
def test_attention(wanted: str, function: Function) -> None:
    model = Plain(function)
    program = exported(model, QKV)
    result, names = applied(rules.attention, program)
    assert names == wanted.split()
    assert_equal(result, model, QKV, 5e-3 if _has_half(program) else 1e-5)


def _has_half(program: px.Program) -> bool:
    return any(getattr(node.meta.get("val"), "dtype", None) is torch.float16 for node in program.main.nodes)


LEFT: list[tuple[str, Function]] = [
    ("another dimension", lambda m, q, k, v, b: torch.softmax(q @ turned(k), -2) @ v),
    ("keys are not turned", lambda m, q, k, v, b: soft(q @ k.transpose(1, 2).reshape(2, 3, 8, 5)) @ v),
    ("other dimensions are turned", lambda m, q, k, v, b: soft(q.reshape(2, 5, 3, 8) @ k.reshape(2, 8, 5, 3).transpose(1, 2)[..., :1]) @ v[:, :1, :1]),
    ("the scale is a tensor", lambda m, q, k, v, b: soft(q @ turned(k) * b) @ v),
    ("the scale is zero", lambda m, q, k, v, b: soft(q @ turned(k) / 0.0) @ v),
    ("scores are used", lambda m, q, k, v, b: (soft(s := q @ turned(k)) @ v, s)),
    ("weights are used", lambda m, q, k, v, b: ((w := soft(q @ turned(k))) @ v, w)),
    ("the mask is a number", lambda m, q, k, v, b: soft(q @ turned(k) + 2.0) @ v),
    ("a boolean mask is added", lambda m, q, k, v, b: soft(q @ turned(k) + m.seen) @ v),
    ("the mask makes it larger", lambda m, q, k, v, b: soft(q[:1] @ turned(k[:1]) + b) @ v[:1]),
    ("the fill hides little", lambda m, q, k, v, b: soft((q @ turned(k)).masked_fill(m.seen, -5.0)) @ v),
    ("doubles are made singles", lambda m, q, k, v, b: soft((q.double() @ turned(k.double())).float()).double() @ v.double()),
    ("other heads", lambda m, q, k, v, b: soft(q @ turned(k[:, :1])) @ v),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), LEFT, ids=[each[0] for each in LEFT])
def test_what_is_almost_attention_stays(name: str, function: Function) -> None:
    program = exported(Plain(function), QKV)
    assert rules.attention(program) is program


ATTEND = functional.scaled_dot_product_attention

BACKWARDS: list[tuple[str, Function]] = [
    ("times_before", lambda m, q, k, v, b: ATTEND(q * -2.0, k, v)),
    ("over_before", lambda m, q, k, v, b: ATTEND(q, k / -2.0, v, m.seen)),
    ("times_before", lambda m, q, k, v, b: ATTEND(q * 2.0, k, v, is_causal=True)),
    ("", lambda m, q, k, v, b: ATTEND(q * -2.0, k, v, is_causal=True)),
    ("", lambda m, q, k, v, b: ATTEND(q / -2.0, k, v, is_causal=True)),
    ("", lambda m, q, k, v, b: ATTEND(q, k, v, m.seen, scale=-0.5)),
    ("", lambda m, q, k, v, b: ATTEND(q, k, v, m.seen, scale=0.0)),
    ("attention_scaled_seen", lambda m, q, k, v, b: soft(torch.where(m.seen, q @ turned(k) * -0.3, -INF)) @ v),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "function"), BACKWARDS)
def test_a_factor_below_zero_goes_into_no_mask_of_torch(wanted: str, function: Function) -> None:
    """With ``is_causal``, torch hides by -inf times the factor: a factor that is not above zero gives NaN."""
    model = Plain(function)
    result, names = applied(rules.attention, exported(model, QKV))
    assert names == wanted.split()
    assert_equal(result, model, QKV, 1e-5)


def test_the_softmax_of_attention_gives_zeros() -> None:
    assert torch.equal(SAFE_SOFTMAX(torch.full((2,), -INF), -1), torch.zeros(2))


@pytest.mark.parametrize("fill", [2.0 * LOWEST_HALF, LOWEST_HALF, LOWEST_HALF * 1.0002])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_number_that_is_too_large_for_half_precision_hides(fill: float, is_hidden: bool) -> None:
    """``where`` makes it infinite, ``masked_fill`` refuses it."""

    def attended(m: Any, q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        scores = q @ turned(k) / 8.0
        return soft(torch.where(b > 1, fill, scores) if is_hidden else torch.where(b > -1, scores, fill)) @ v

    model = Plain(half(attended))
    result, names = applied(rules.attention, exported(model, QKV))
    assert names
    assert_equal(result, model, QKV, 3e-3)
