"""The rules of attention, each on a module that has what it looks for, and on those that almost do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from purefx import rules
from purefx.ir.torch_private import SAFE_SOFTMAX
from tests.models import imported
from tests.transforms.rulesets import Function, Plain, applied, assert_equal, soft, turned

INF = math.inf
LOWEST_HALF = torch.finfo(torch.float16).min

torch.manual_seed(0)
Q, K, V, BIAS = (
    torch.randn(2, 3, 5, 8),
    torch.randn(2, 3, 5, 8),
    torch.randn(2, 3, 5, 8),
    torch.randn(2, 1, 5, 5),
)
QKV = (Q, K, V, BIAS)


def half(function: Function) -> Function:
    return lambda m, q, k, v, b: function(m, q.half(), k.half(), v.half(), b.half())


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
    program = imported(Plain(function), *QKV)
    assert rules.attention(program) is program


ATTEND = functional.scaled_dot_product_attention

BACKWARDS: list[tuple[str, Function]] = [
    ("scaled_before", lambda m, q, k, v, b: ATTEND(q * -2.0, k, v)),
    ("scaled_before", lambda m, q, k, v, b: ATTEND(q, k / -2.0, v, m.seen)),
    ("scaled_before", lambda m, q, k, v, b: ATTEND(q * 2.0, k, v, is_causal=True)),
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
    result, names = applied(rules.attention, imported(model, *QKV))
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
        return (
            soft(
                torch.where(b > 1, fill, scores) if is_hidden else torch.where(b > -1, scores, fill)
            )
            @ v
        )

    model = Plain(half(attended))
    result, names = applied(rules.attention, imported(model, *QKV))
    assert names
    assert_equal(result, model, QKV, 3e-3)
