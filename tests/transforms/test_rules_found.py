"""What patterns find: one operator of a program written in several ways, arguments by default, numbers, lists, sizes, indices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from tests.transforms.test_rules_by_hand import given, text_of

FOUND: list[tuple[Callable[..., Any], str]] = [
    (lambda x: torch.where(x > 0, True, x), "g = aten.gt.Scalar(x, 0); a = aten.where.ScalarSelf(g, True, x)"),
    (lambda x: functional.scaled_dot_product_attention(y := x.view(1, 2), y, y, scale=1),
     "b = aten.view.default(x, [1, 2]); a = aten.scaled_dot_product_attention.default(b, b, b, scale=1.0)"),
    (lambda x: x * 2j, "a = aten.mul.Tensor(x, complex(0.0, 2.0))"),
    (lambda x: torch.add(x, 1), "a = aten.add.Tensor(x, 1)"),
    (lambda x: torch.add(x, 1), "a = aten.add.Scalar(x, 1)"),
    (lambda x: torch.add(x, 1), "a = aten.add.Tensor(x, 1, alpha=1)"),
    (lambda x: torch.add(x, -0.0), "a = aten.add.Tensor(x, -0.0)"),
    (lambda x: torch.add(x, 2**53), "a = aten.add.Tensor(x, 9007199254740992.0)"),
    (lambda x: torch.add(x, x), "a = aten.add.Tensor(x, x)"),
    (lambda x, y: torch.mul(x, y) * x, "m = aten.mul.Tensor(x, z); a = aten.mul.Tensor(x, m)"),
    (lambda x: torch.sum(x, 0), "a = aten.sum.dim_IntList(x, [0])"),
    (lambda x, t: torch.sum(x, dtype=t), "a = aten.sum.default(x, dtype=torch.float32)"),
    (lambda x, t: torch.sum(x, dtype=t), "a = aten.sum.default(x)"),
    (lambda x: torch.transpose(x, 0, 0), "a = aten.transpose.int(x, 0, 0)"),
    (lambda x: torch.transpose(x.view(2, 1), 0, 1), "v = aten.view.default(x, [2, 1]); a = aten.transpose.int(v, 1, 0)"),
    (lambda x: torch.max(x, 0)[0], "m = aten.max.dim(x, 0); a = operator.getitem(m, 0)"),
    (lambda x: torch.relu(torch.max(x, 0)[0]),
     ("m = aten.max.dim(x, 0); b = operator.getitem(m, 1); r = operator.getitem(m, 0); a = aten.relu.default(r)")),
    (lambda x: functional.gelu(x), 'a = aten.gelu.default(x, approximate="none")'),
    (lambda x, how: functional.gelu(x, approximate=how), 'a = aten.gelu.default(x, approximate="tanh")'),
    (lambda x: functional.layer_norm(x, (2,)), "a = aten.layer_norm.default(x, [2], None, None, 1e-05, False)"),
    (lambda x, w: functional.layer_norm(x, (2,), w), "a = aten.layer_norm.default(x, [2], None, None)"),
    (lambda x: torch.cat([x, x]), "a = aten.cat.default([x, x])"),
    (lambda x: torch.cat(x), "a = aten.cat.default([x, x, x])"),
    (lambda x, y: torch.cat([x, y]), "a = aten.cat.default([x, z], 0)"),
    (lambda x, y: torch.cat([x, torch.relu(y)]), "r = aten.relu.default(z); a = aten.cat.default([x, r])"),
    (lambda x: x[0:1], "a = aten.slice.Tensor(x, 0, 0, 1, 1)"),
    (lambda x: x[:, None], "a = aten.unsqueeze.default(x, 1)"),
    (lambda x: x.view(2, 1), "a = aten.view.default(x, [2, 1])"),
    (lambda x, n: x.view(n), "a = aten.view.default(x, [2])"),
    (lambda x, n: x.view([n]), "a = aten.view.default(x, [2])"),
    (lambda x, n: x**n, "a = aten.pow.Tensor_Scalar(x, 2)"),
    (lambda x, n: x**n, "a = aten.pow.Tensor_Tensor(x, z)"),
    (lambda x: x.clamp(0), "a = aten.clamp.default(x, 0, None)"),
    (lambda x: torch.zeros_like(x) + x, "o = aten.zeros_like.default(x, pin_memory=False); a = aten.add.Tensor(o, x)"),
    (lambda x: px.any_of(x.exp(), x.sin()) * 2, "o = aten.sin.default(x); a = aten.mul.Tensor(o, 2)"),
    (lambda x: px.through(x.exp()) * 2, "e = aten.exp.default(x); o = aten.view.default(e, [2]); a = aten.mul.Tensor(o, 2)"),
    (lambda x: px.through(x.exp(), casts=True) * 2,
     "e = aten.exp.default(x); o = aten.to.dtype(e, torch.float64); a = aten.mul.Tensor(o, 2)"),
    (lambda x: torch.batch_norm(x.view(2, 1), None, None, None, None, True, 0.1, 1e-5, True),
     ("v = aten.view.default(x, [2, 1]); a = aten.batch_norm.default(v, None, None, None, None, True, 0.1, 1e-05, False)")),
    (lambda x: x.short().exp(), "i = aten.to.dtype(x, torch.int16); a = aten.exp.default(i)"),
    (lambda x: ~(x > 0), "i = aten.gt.Scalar(x, 0); a = aten.bitwise_not.default(i)"),
    (lambda x: torch.nn.functional.leaky_relu(x), "a = aten.leaky_relu.default(x)"),
    (lambda x: torch.nn.functional.one_hot(x.long(), 9), "i = aten.to.dtype(x, torch.int64); a = aten.one_hot.default(i, 9)"),
    (lambda x: x.to(torch.float64), "a = aten.to.dtype(x, torch.float64, False, False)"),
    (lambda x: x.flatten(), "a = aten.flatten.using_ints(x)"),
    (lambda x, e: torch.sqrt(x + e), "p = aten.add.Tensor(x, 1e-05); a = aten.sqrt.default(p)"),
    (lambda x, e: torch.sqrt((x + e) * e), "p = aten.add.Tensor(x, 2); o = aten.mul.Tensor(p, 2); a = aten.sqrt.default(o)"),
    (lambda x: px.any_of(x * 2, x + x), "a = aten.add.Tensor(x, x)"),
    (lambda x: torch.gather(x, 0, (x > 5).long()),
     "g = aten.gt.Scalar(x, 5); i = aten.to.dtype(g, torch.int64); a = aten.gather.default(x, 0, i)"),
]  # fmt: skip
"""The pattern, and nodes that it finds all of, on ``x``."""

PARTLY: list[tuple[Callable[..., Any], str, str]] = [
    (lambda x: functional.max_pool1d(x, 2), "v = aten.view.default(x, [1, 1, 2]); a = aten.max_pool1d.default(v, [2])",
     "v = aten.view.default(x, [1, 1, 2]); tan = aten.tan.default(v)"),
    (lambda x: torch.exp(x) + 1, "i = aten.to.dtype(x, torch.int64); e = aten.exp.default(i); a = aten.add.Tensor(e, 1.0)",
     "i = aten.to.dtype(x, torch.int64); tan = aten.tan.default(i)"),
    (lambda x, y: torch.add(x, torch.neg(y)), "p = aten.neg.default(x); a = aten.add.Tensor(p, z)", "tan = aten.tan.default(z)"),
    (lambda x, y: torch.add(x, torch.neg(y), alpha=2), "p = aten.neg.default(x); a = aten.add.Tensor(z, p, alpha=2)",
     "tan = aten.tan.default(z)"),
    (lambda x, y: torch.sub(x, torch.neg(y)), "p = aten.neg.default(x); a = aten.sub.Tensor(z, p)", "tan = aten.tan.default(z)"),
    (lambda x: x & x, "i = aten.gt.Scalar(x, 0); a = aten.__and__.Tensor(i, i)",
     "i = aten.gt.Scalar(x, 0); tan = aten.tan.default(i)"),
    (lambda x: px.any_of(x.exp(), x) * 2, "o = aten.sin.default(x); a = aten.mul.Tensor(o, 2)",
     "o = aten.sin.default(x); tan = aten.tan.default(o)"),
    (lambda x, y: torch.logaddexp(x, torch.neg(y)), "p = aten.neg.default(x); a = aten.logaddexp.default(p, z)",
     "tan = aten.tan.default(z)"),
    (lambda x, w: functional.linear(x, w), "m = aten.view.default(z, [1, 2]); a = aten.linear.default(x, m, None)",
     "m = aten.view.default(z, [1, 2]); tan = aten.tan.default(x)"),
    (lambda x, w, b: functional.linear(x, w, b),
     ("m = aten.view.default(z, [1, 2]); b = aten.sum.dim_IntList(z, [0], True); a = aten.linear.default(x, m, b)"),
     "m = aten.view.default(z, [1, 2]); b = aten.sum.dim_IntList(z, [0], True); tan = aten.tan.default(x)"),
]  # fmt: skip
"""The pattern, nodes, and what becomes of them."""

NOT_FOUND: list[tuple[Callable[..., Any], str]] = [
    (lambda x: functional.scaled_dot_product_attention(y := x.view(1, 2), y, y, scale=1),
     "b = aten.view.default(x, [1, 2]); a = aten.scaled_dot_product_attention.default(b, b, b)"),
    (lambda x: torch.add(x, 1), "a = aten.add.Tensor(x, 1, alpha=2)"),
    (lambda x: torch.add(x, 2**53 + 2), "a = aten.add.Tensor(x, 9007199254740994.0)"),
    (lambda x, y: torch.add(x, torch.neg(y), alpha=2), "p = aten.neg.default(x); a = aten.add.Tensor(p, z, alpha=2)"),
    (lambda x, y: torch.sub(x, torch.neg(y)), "p = aten.neg.default(x); a = aten.sub.Tensor(p, z)"),
    (lambda x: torch.add(x, x), "a = aten.add.Tensor(x, z)"),
    (lambda x: torch.sum(x, [0]), "a = aten.sum.dim_IntList(x, [0], True)"),
    (lambda x: torch.sum(x), "a = aten.sum.default(x, dtype=torch.float32)"),
    (lambda x: torch.max(x, 0)[0], "m = aten.max.dim(x, 0, True); a = operator.getitem(m, 0)"),
    (lambda x: functional.softmax(x, -1), "a = aten.softmax.int(x, 0)"),
    (lambda x: functional.gelu(x), 'a = aten.gelu.default(x, approximate="tanh")'),
    (lambda x: functional.layer_norm(x, (2,)), "a = aten.layer_norm.default(x, [2], None, None, 1e-06)"),
    (lambda x: torch.cat([x, x]), "a = aten.cat.default([x, z])"),
    (lambda x: x.view(x.size(1)), "a = aten.view.default(x, [2])"),
    (lambda x: x.exp().to(x.dtype), "e = aten.exp.default(x); a = aten.to.dtype(e, torch.float64)"),
    (lambda x: x.double(), "a = aten.to.dtype(x, torch.float64, True)"),
    (lambda x: 1 - x, "a = aten.rsub.Scalar(x, 1, 2)"),
    (lambda x: torch.zeros_like(x) + x, "o = aten.zeros_like.default(x, dtype=torch.float32); a = aten.add.Tensor(o, x)"),
    (lambda x: torch.arange(2) + x, "o = aten.arange.start(0, 2); a = aten.add.Tensor(o, x)"),
    (lambda x: px.any_of(x.exp(), 3) * 2, "a = aten.mul.Tensor(3, x)"),
    (lambda x: px.through(x.exp()) * 2,
     "e = aten.exp.default(x); o = aten.to.dtype(e, torch.float64); a = aten.mul.Tensor(o, 2)"),
    (lambda x: px.through(x.exp(), casts=True, views=False) * 2,
     "e = aten.exp.default(x); o = aten.view.default(e, [2]); a = aten.mul.Tensor(o, 2)"),
    (lambda x, y: torch.lt(x, torch.neg(y)), "p = aten.neg.default(x); a = aten.lt.Tensor(p, z)"),
    (lambda x: torch.zeros(2) + x, "o = aten.zeros.default([1]); a = aten.add.Tensor(o, x)"),
    (lambda x, w: functional.linear(x, w),
     ("m = aten.view.default(z, [1, 2]); b = aten.sum.dim_IntList(z, [0], True); a = aten.linear.default(x, m, b)")),
    (lambda x: x.to(torch.float64), "a = aten._to_copy.default(x, dtype=torch.float64)"),
    (lambda x: torch.sqrt(x + 1e-6), "p = aten.add.Tensor(x, 1e-05); a = aten.sqrt.default(p)"),
    (lambda x, e: torch.sqrt((x + e) * e), "p = aten.add.Tensor(x, 2); o = aten.mul.Tensor(p, 2.0); a = aten.sqrt.default(o)"),
    (lambda x: px.through(x.exp(), casts=True) * 2,
     ('e = aten.exp.default(x); o = aten._to_copy.default(e, device=device("cpu")); a = aten.mul.Tensor(o, 2)')),
]  # fmt: skip


def rule(pattern: Callable[..., Any]) -> px.Rule:
    """Return a rule that puts a tangent of the first variable in the place of a pattern."""

    def tangent(m: px.Match, x: Any, *_: Any) -> Any:
        return m.call(torch.ops.aten.tan, x[0] if isinstance(x, list | tuple) else x)

    several = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("m", *inspect.signature(pattern).parameters)
    ]
    tangent.__signature__ = inspect.Signature(several)  # type: ignore[attr-defined]  variables are found by their names
    return px.rule(pattern).becomes(tangent)


ALL = [*[(*each, "") for each in FOUND], *PARTLY, *[(*each, None) for each in NOT_FOUND]]


@pytest.mark.parametrize("number", range(len(ALL)))
def test_what_a_pattern_finds(number: int) -> None:
    pattern, nodes, rest = ALL[number]
    program = given(f"{nodes}; n = aten.cos.default(a); n")
    made = rule(pattern)(program)
    assert px.verify(made, infer=True) == ()
    if rest is None:
        assert made is program
    else:
        assert (
            text_of(made) == f"{rest or 'tan = aten.tan.default(x)'}; n = aten.cos.default(tan); n"
        )
