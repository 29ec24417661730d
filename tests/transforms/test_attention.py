"""Attention that is written out, in each of the families that inductor looks for, becomes ``scaled_dot_product_attention``.

The numbers are those of ``_sfdp_pattern_*`` in ``torch/_inductor/fx_passes/fuse_attention.py``; what each computes is beside it.
The result is compared with eager over two calls, with numbers drawn alike.
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
from tests.models import imported, parent
from tests.transforms.rulesets import Function, applied, assert_equal, soft, turned

INF = math.inf
SINGLE, HALF = 1e-5, 5e-3
"""How far results may be from eager, as docs/rules.md says."""

torch.manual_seed(0)
Q, K, V = (torch.randn(2, 3, 5, 8) for _ in range(3))
BIAS = torch.randn(2, 1, 5, 5)
KEPT = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]])


class Attention(
    parent(
        causal=lambda: torch.ones(5, 5, dtype=torch.bool).tril(), bias=BIAS.clone, kept=KEPT.clone
    )
):
    """Attention as a function of queries, keys and values, with masks."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.function(self, q, k, v)


def heads(*several: Tensor) -> list[Tensor]:
    """The heads of what has them behind the positions."""
    return [x.reshape(2, 5, 3, 8).permute(0, 2, 1, 3) for x in several]


def turned_heads(k: Tensor) -> Tensor:
    return k.permute(0, 1, 3, 2)


def drop(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.4)


def hidden(m: Any, scores: Tensor) -> Tensor:
    """The scores of keys that are kept."""
    return scores.masked_fill(
        (m.kept == 0).view(2, 1, 1, 5).expand_as(scores), torch.full((), -INF, dtype=scores.dtype)
    )


def seen(m: Any, scores: Tensor) -> Tensor:
    """The scores of earlier positions, the lowest number elsewhere."""
    scores = scores / torch.full([], 3.0, dtype=scores.dtype)
    return torch.where(
        m.causal, scores, torch.full((), torch.finfo(scores.dtype).min, dtype=scores.dtype)
    )


def over_heads(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.reshape(6, 5, 8) for x in (q, k, v))
    scores = (torch.bmm(q, k.transpose(1, 2)).view(2, 3, 5, 5) + m.bias).view(6, 5, 5)
    return torch.bmm(functional.softmax(scores, dim=-1), v).view(2, 3, 5, 8)


def on_heads(function: Function) -> Function:
    return lambda m, q, k, v: function(m, *heads(q, k, v))


def wide(scores: Tensor) -> Tensor:
    return soft(scores.to(torch.float32))


FAMILIES: dict[str, Function] = {
    "1 scores divided": lambda m, q, k, v: soft((q @ turned(k)).div(3.0)) @ v,
    "2 scores multiplied": lambda m, q, k, v: soft((q @ turned(k)).mul(0.4)) @ v,
    "3 divided, dropped": lambda m, q, k, v: drop(soft((q @ turned(k)).div(3.0))) @ v,
    "4 multiplied, dropped": lambda m, q, k, v: drop(soft((q @ turned(k)).mul(0.4))) @ v,
    "5 divided, a bias": lambda m, q, k, v: soft(q @ turned(k) / 3.0 + m.bias) @ v,
    "6 divided, a bias, dropped": lambda m, q, k, v: torch.dropout(soft(q @ turned(k) / 3.0 + m.bias), 0.4, True) @ v,
    "7 heads, divided, wide softmax, dropped": on_heads(lambda m, q, k, v: torch.dropout(wide(q @ turned(k) / 3.0), 0.4, True).to(q.dtype) @ v),
    "8 heads, divided, wide softmax": on_heads(lambda m, q, k, v: wide(q @ turned(k) / 3.0).to(q.dtype) @ v.to(q.dtype)),
    "9 heads, queries divided, wide softmax, dropped": on_heads(lambda m, q, k, v: torch.dropout(wide(q / 3.0 @ turned(k)), 0.4, True).to(q.dtype) @ v),
    "10 heads, queries divided, wide softmax": on_heads(lambda m, q, k, v: wide(q / 3.0 @ turned(k)).to(q.dtype) @ v),
    "11 heads, divided": on_heads(lambda m, q, k, v: soft((q @ turned(k)).div(3.0)) @ v),
    "12 heads, divided, dropped": on_heads(lambda m, q, k, v: drop(soft((q @ turned(k)).div(3.0))) @ v),
    "13 three dimensions, dropped": lambda m, q, k, v: torch.bmm(drop(soft(torch.bmm(q[0], k[0].transpose(1, 2)))), v[0]),
    "14 heads, divided, a bias": on_heads(lambda m, q, k, v: soft((q @ turned(k)).div(3.0) + m.bias) @ v),
    "15 heads, divided, keys hidden": on_heads(lambda m, q, k, v: soft(hidden(m, (q @ turned(k)).div(3.0))) @ v),
    "16 heads, divided, a bias, dropped, cast": on_heads(lambda m, q, k, v: drop(soft((q @ turned(k)).div(3.0) + m.bias)).to(q.dtype) @ v),
    "17 heads, divided, keys hidden, dropped": on_heads(lambda m, q, k, v: drop(soft(hidden(m, (q @ turned(k)).div(3.0)))) @ v),
    "18 heads, divided by a tensor, causal, dropped, keys returned": on_heads(lambda m, q, k, v: (drop(soft(seen(m,
     q @ turned_heads(k)))) @ v, k, v)),
    "19 divided by a tensor, causal, a bias, dropped": lambda m, q, k, v: drop(soft(seen(m, q @ turned_heads(k)) + m.bias).type(v.dtype)) @ v,
    "20 heads, queries divided, keys hidden, dropped": on_heads(lambda m, q, k, v: drop(soft(hidden(m, q.div(3.0) @ turned(k)))) @ v),
    "21 heads, a bias, wide softmax": on_heads(lambda m, q, k, v: soft((q @ turned_heads(k) + m.bias).type_as(q).float()).type_as(q) @ v),
    "22 heads, a bias, wide softmax, keys returned": on_heads(lambda m, q, k,
     v: (soft((q @ turned_heads(k) + m.bias).type_as(q).float()).type_as(q) @ v, k, v)),
    "23 heads, cast there and back, wide softmax, keys returned": on_heads(lambda m, q, k,
     v: (soft((q @ turned_heads(k)).float().type_as(q).float()).type_as(q) @ v, k, v)),
    "24 over all heads at once, a bias": over_heads,
    "25 heads, a bias, wide softmax, dropped": on_heads(lambda m, q, k, v: drop(soft((q @ turned_heads(k) + m.bias).float()).type_as(q)) @ v),
    "26 heads, a bias, wide softmax, dropped, keys returned": on_heads(lambda m, q, k,
     v: (drop(soft((q @ turned_heads(k) + m.bias).float()).type_as(q)) @ v, k, v)),
    "27 heads, wide softmax, dropped, keys returned": on_heads(lambda m, q, k,
     v: (drop(soft((q @ turned_heads(k)).float()).type_as(q)) @ v, k, v)),
    "28 strided operands, multiplied, dropped": lambda m, q, k,
     v: (drop(soft((turned(turned(q).contiguous()) @ turned(k)).mul(0.4))) @ turned(turned(v).contiguous())),
    "29 heads, both scaled, a bias, safe softmax": on_heads(lambda m, q, k, v: SAFE_SOFTMAX(q.mul(0.6) @ (turned(k) * 0.6) + m.bias, -1) @ v),
    "30 heads, both scaled, safe softmax": on_heads(lambda m, q, k, v: SAFE_SOFTMAX(q.mul(0.6) @ (turned(k) * 0.6), -1) @ v),
}  # fmt: skip
"""What each family computes, by its number."""


DTYPE = (torch.float32, torch.float16)
HALVES = [7, 9, 16, 18, 19, 21, 23, 25, 29]
"""Families that cast, or whose masks depend on the type; these run in half precision too."""

DTYPES = {family: DTYPE[: 1 + (int(family.split()[0]) in HALVES)] for family in FAMILIES}
CASES = [(family, dtype) for family, dtypes in DTYPES.items() for dtype in dtypes]


@pytest.mark.parametrize(
    ("family", "dtype"), CASES, ids=[f"{family}-{dtype}" for family, dtype in CASES]
)
def test_a_family_of_inductor(family: str, dtype: torch.dtype) -> None:
    model, args = (
        Attention(FAMILIES[family]).to(dtype),
        tuple([each.to(dtype) for each in (Q, K, V)]),
    )
    result, _ = applied(rules.attention, imported(model, *args))
    names = [node.do.name for _, node in result.nodes() if isinstance(node.do, px.Op)]
    assert not [name for name in names if "softmax" in name or "matmul" in name or "bmm" in name]
    assert names.count("aten.scaled_dot_product_attention.default") == 1
    assert_equal(result, model, args, SINGLE if dtype is torch.float32 else HALF)
