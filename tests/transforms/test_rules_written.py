"""What replacements write: which overloads torch's functions and Python's operators become, with which arguments and names.

Each replacement stands in the place of ``relu`` in a program of two nodes; what it computes was compared with eager once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import purefx as px
from tests.transforms.test_rules_by_hand import given, text_of

WRITTEN: list[tuple[Callable[..., Any], str]] = [
    (lambda m, x: x.view(x.shape) * 1, "view = aten.view.default(x, [2]); mul = aten.mul.Tensor(view, 1)"),
    (lambda m, x: x.sum(0, True).expand(x.size()),
     "sum = aten.sum.dim_IntList(x, [0], True); expand = aten.expand.default(sum, [2])"),
    (lambda m, x: x * 2.5 - 1 + 3 / x, ("mul = aten.mul.Tensor(x, 2.5); sub = aten.sub.Tensor(mul, 1); "
     "reciprocal = aten.reciprocal.default(x); mul_1 = aten.mul.Tensor(reciprocal, 3); add = aten.add.Tensor(sub, mul_1)")),
    (lambda m, x: x / 2 // 3 % 4, ("div = aten.div.Tensor(x, 2); floor_divide = aten.floor_divide.Scalar(div, 3); "
     "remainder = aten.remainder.Scalar(floor_divide, 4)")),
    (lambda m, x: x.pow(2) + 2**x + x**x, ("pow = aten.pow.Tensor_Scalar(x, 2); pow_1 = aten.pow.Scalar(2, x); "
     "add = aten.add.Tensor(pow, pow_1); pow_2 = aten.pow.Tensor_Tensor(x, x); add_1 = aten.add.Tensor(add, pow_2)")),
    (lambda m, x: (x < 0).to(x.dtype), "lt = aten.lt.Scalar(x, 0); to = aten.to.dtype(lt, torch.float32)"),
    (lambda m, x: +x, "positive = aten.positive.default(x)"),
    (lambda m, x: x.clamp(0, 1) * x.clamp(min=x),
     ("clamp = aten.clamp.default(x, 0, 1); clamp_1 = aten.clamp.Tensor(x, min=x); mul = aten.mul.Tensor(clamp, clamp_1)")),
    (lambda m, x: torch.max(x, 0)[0].expand(2),
     ("max = aten.max.dim(x, 0); getitem = operator.getitem(max, 0); expand = aten.expand.default(getitem, [2])")),
    (lambda m, x: m.value + m.value, "r_1 = aten.relu.default(x); add = aten.add.Tensor(r_1, r_1)"),
    (lambda m, x: x[None, 0].expand(2) * 1,
     ("unsqueeze = aten.unsqueeze.default(x, 0); select = aten.select.int(unsqueeze, 1, 0); "
     "expand = aten.expand.default(select, [2]); mul = aten.mul.Tensor(expand, 1)")),
    (lambda m, x: x.double().float(), "to = aten.to.dtype(x, torch.float64); to_1 = aten.to.dtype(to, torch.float32)"),
    (lambda m, x: torch.add(x, x, alpha=2), "add = aten.add.Tensor(x, x, alpha=2)"),
    (lambda m, x: torch.where(x > 0, x, 0), "gt = aten.gt.Scalar(x, 0); where = aten.where.ScalarOther(gt, x, 0)"),
    (lambda m, x: torch.zeros(2) + x, "add_constant = get _constant0; add = aten.add.Tensor(add_constant, x)"),
    (lambda m, x: m.call(torch.ops.aten.full, [2], 3.0) + x,
     "full = aten.full.default([2], 3.0); add = aten.add.Tensor(full, x)"),
    (lambda m, x: functional.softmax(x, -1, dtype=torch.float64).to(x.dtype),
     "softmax = aten.softmax.int(x, -1, dtype=torch.float64); to = aten.to.dtype(softmax, torch.float32)"),
    (lambda m, x: functional.layer_norm(x, [2], eps=1), "layer_norm = aten.layer_norm.default(x, [2], None, None, 1.0, True)"),
    (lambda m, x: torch.stack((x, x), 0).sum(0), "stack = aten.stack.default([x, x], 0); sum = aten.sum.dim_IntList(stack, [0])"),
    (lambda m, x: x.split(1)[1].expand(2) * 1, ("split = aten.split.Tensor(x, 1); getitem = operator.getitem(split, 1); "
     "expand = aten.expand.default(getitem, [2]); mul = aten.mul.Tensor(expand, 1)")),
    (lambda m, x: x.mean(0, keepdim=True).expand(2),
     "mean = aten.mean.dim(x, [0], keepdim=True); expand = aten.expand.default(mean, [2])"),
    (lambda m, x: x.norm(2, 0).expand(2), ("linalg_vector_norm = aten.linalg_vector_norm.default(x, 2, [0], False, dtype=None); "
     "expand = aten.expand.default(linalg_vector_norm, [2])")),
    (lambda m, x: torch.lerp(x, x, 0.5), "lerp = aten.lerp.Scalar(x, x, 0.5)"),
    (lambda m, x: m.call(torch.ops.aten.add.Scalar, x, 1), "add = aten.add.Scalar(x, 1)"),
    (lambda m, x: m.call(torch.ops.aten.sum.dim_IntList, x, 0).expand(2),
     "sum = aten.sum.dim_IntList(x, [0]); expand = aten.expand.default(sum, [2])"),
    (lambda m, x: x.roll(1, 0).flip(0), "roll = aten.roll.default(x, [1], [0]); flip = aten.flip.default(roll, [0])"),
    (lambda m, x: functional.pad(x, (0, 1))[0:2] * 1,
     ('pad = aten.pad.default(x, [0, 1], "constant", None); slice = aten.slice.Tensor(pad, 0, 0, 2); '
     "mul = aten.mul.Tensor(slice, 1)")),
    (lambda m, x: x[(x > 5).long()],
     "gt = aten.gt.Scalar(x, 5); to = aten.to.dtype(gt, torch.int64); index = aten.index.Tensor(x, [to])"),
    (lambda m, x: torch.remainder(5, x) * torch.rsub(x, 1),
     ("remainder = aten.remainder.Scalar_Tensor(5, x); rsub = aten.rsub.Scalar(x, 1); mul = aten.mul.Tensor(remainder, rsub)")),
    (lambda m, x: x.float_power(2).to(x.dtype),
     "float_power = aten.float_power.Tensor_Scalar(x, 2); to = aten.to.dtype(float_power, torch.float32)"),
    (lambda m, x: x.var(0, correction=0).expand(2),
     "var = aten.var.correction(x, [0], correction=0); expand = aten.expand.default(var, [2])"),
    (lambda m, x: torch.einsum("i,i->i", x, x), 'einsum = aten.einsum.default("i,i->i", [x, x])'),
    (lambda m, x: ((x > 0) & (x <= 1) | (x != 2) ^ ~(x >= 3)).to(x.dtype),
     ("gt = aten.gt.Scalar(x, 0); le = aten.le.Scalar(x, 1); "
     "bitwise_and = aten.bitwise_and.Tensor(gt, le); ne = aten.ne.Scalar(x, 2); "
     "ge = aten.ge.Scalar(x, 3); bitwise_not = aten.bitwise_not.default(ge); "
     "bitwise_xor = aten.bitwise_xor.Tensor(ne, bitwise_not); bitwise_or = aten.bitwise_or.Tensor(bitwise_and, bitwise_xor); "
     "to = aten.to.dtype(bitwise_or, torch.float32)")),
    (lambda m, x: x + True, "add = aten.add.Tensor(x, True)"),
    (lambda m, x: x.squeeze(0).unsqueeze(-1).flatten(),
     ("squeeze = aten.squeeze.dim(x, 0); unsqueeze = aten.unsqueeze.default(squeeze, -1); "
     "flatten = aten.flatten.using_ints(unsqueeze)")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_what_a_replacement_writes(number: int) -> None:
    replacement, wanted = WRITTEN[number]
    made = px.rule(lambda x: torch.relu(x), once=True).becomes(replacement)(
        given("r = aten.relu.default(x); n = aten.neg.default(r); n")
    )
    *nodes, last, result = text_of(made).split("; ")
    assert "; ".join(nodes) == wanted
    assert (last, result) == (f"n = aten.neg.default({nodes[-1].split(' = ')[0]})", "n")
    assert px.verify(made, infer=True) == ()
