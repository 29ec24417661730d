"""Sizes that only a run knows, operator by operator: what replacements compute with them, and what is proven.

One program, whose first size is 2 to 64 and whose second is 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.transforms.test_rules_by_hand import text_of


class Two(nn.Module):
    """An operator, and one behind it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply them."""
        return torch.relu(x).exp()


@cache
def program() -> px.Program:
    """Return it with a first size of 2 to 64."""
    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    return px.import_ep(torch.export.export(Two(), (torch.ones(6, 4),), dynamic_shapes=sizes))


WRITTEN: list[tuple[Callable[..., Any], str]] = [
    (lambda m, x: x.view(x.shape[0] * 4) * 1,
     ("sym_size = aten.sym_size.int(x, 0); mul = operator.mul(sym_size, 4); view = aten.view.default(x, [mul]); "
     "mul_1 = aten.mul.Tensor(view, 1)")),
    (lambda m, x: x * (m.call(torch.ops.aten.sym_size.int, x, 0) + 1),
     "sym_size = aten.sym_size.int(x, 0); add = operator.add(sym_size, 1); mul = aten.mul.Tensor(x, add)"),
    (lambda m, x: x * (m.call(torch.ops.aten.sym_size.int, x, 0) * m.call(torch.ops.aten.sym_size.int, x, 1) - 2),
     ("sym_size = aten.sym_size.int(x, 0); sym_size_1 = aten.sym_size.int(x, 1); mul = operator.mul(sym_size, sym_size_1); "
     "sub = operator.sub(mul, 2); mul_1 = aten.mul.Tensor(x, sub)")),
    (lambda m, x: x * (10 - x.shape[0]),
     "sym_size = aten.sym_size.int(x, 0); sub = operator.sub(10, sym_size); mul = aten.mul.Tensor(x, sub)"),
    (lambda m, x: x * (x.shape[0] // 2),
     ("sym_size = aten.sym_size.int(x, 0); floordiv = operator.floordiv(sym_size, 2); mul = aten.mul.Tensor(x, floordiv)")),
    (lambda m, x: x * (x.shape[0] % 3),
     "sym_size = aten.sym_size.int(x, 0); mod = operator.mod(sym_size, 3); mul = aten.mul.Tensor(x, mod)"),
    (lambda m, x: x * (x.shape[0] / 2),
     ("sym_size = aten.sym_size.int(x, 0); truediv = operator.truediv(sym_size, 2); mul = aten.mul.Tensor(x, truediv)")),
    (lambda m, x: x * x.size(0) + x * x.size()[0] + x * m.shape("x")[0] + x * m.val("x").shape[0],
     ("sym_size = aten.sym_size.int(x, 0); mul = aten.mul.Tensor(x, sym_size); "
     "mul_1 = aten.mul.Tensor(x, sym_size); add = aten.add.Tensor(mul, mul_1); "
     "mul_2 = aten.mul.Tensor(x, sym_size); add_1 = aten.add.Tensor(add, mul_2); "
     "mul_3 = aten.mul.Tensor(x, sym_size); add_2 = aten.add.Tensor(add_1, mul_3)")),
    (lambda m, x: x * x.size(-2), "sym_size = aten.sym_size.int(x, 0); mul = aten.mul.Tensor(x, sym_size)"),
    (lambda m, x: x * m.val("x").stride()[0], "mul = aten.mul.Tensor(x, 4)"),
    (lambda m, x: x * (x.shape[0] + x.shape[0] * x.shape[0]),
     ("sym_size = aten.sym_size.int(x, 0); mul = operator.mul(sym_size, sym_size); "
     "add = operator.add(sym_size, mul); mul_1 = aten.mul.Tensor(x, add)")),
    (lambda m, x: x.new_zeros([x.shape[0], 1]) + x,
     ("sym_size = aten.sym_size.int(x, 0); new_zeros = aten.new_zeros.default(x, [sym_size, 1]); "
     "add = aten.add.Tensor(new_zeros, x)")),
]  # fmt: skip


PROVEN: list[Callable[[Any], Any]] = [
    lambda m: m.shape("x")[0] + 1 >= 3,
    lambda m: m.shape("x")[0] // 2 >= 1,
    lambda m: m.shape("x")[0] % 3 < 3,
    lambda m: m.shape("x")[0] / 2 >= 1,
    lambda m: m.shape("x")[0] < 65,
    lambda m: m.shape("x")[0] == m.shape("x")[0],
    lambda m: m.shape("x") == (m.shape("x")[0], 4),
    lambda m: m.val("x").size(0) == m.val("x").shape[0],
    lambda m: m.val("x").stride(0) == 4,
    lambda m: m.val("x").size() == m.shape("x"),
    lambda m: m.val("x").numel() == 4 * m.shape("x")[0],
    lambda m: m.val("x").element_size() == 4,
    lambda m: 0 < m.shape("x")[0],  # noqa: SIM300  the operand that is no size is the left one
    lambda m: repr(m.shape("x")[0]).startswith("s"),
    lambda m: m.shape(3) is None,
    lambda m: m.val(3) == 3,
    lambda m: repr(m.val("x")).startswith("FakeTensor"),
]

OPEN: list[Callable[[Any], Any]] = [
    lambda m: 1 + m.shape("x")[0] > 3,
    lambda m: m.shape("x")[0] % 3 == 1,
    lambda m: m.shape("x")[0] != m.shape("x")[0],
    lambda m: m.shape("x")[0] == m.shape("x")[1],
    lambda m: 3 > m.shape("x")[0],  # noqa: SIM300  the operand that is no size is the left one
    lambda m: not m.shape("x")[0],
    lambda m: m.shape("x")[0] - 2,
    lambda m: m.shape("x")[0] in (3, 4),
]


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_what_is_written(number: int) -> None:
    replacement, wanted = WRITTEN[number]
    made = px.rule(lambda x: torch.relu(x), once=True).becomes(replacement)(program())
    *nodes, last, _ = text_of(made).split("; ")
    assert "; ".join(nodes) == wanted
    assert last == f"exp = aten.exp.default({nodes[-1].split(' = ')[0]})"
    assert px.verify(made, infer=True) == ()


@pytest.mark.parametrize("number", range(len(PROVEN)))
def test_what_is_proven(number: int) -> None:
    rule = px.rule(lambda x: torch.relu(x), where=PROVEN[number]).becomes(lambda m, x: torch.tanh(x))
    assert text_of(rule(program())) == "tanh = aten.tanh.default(x); exp = aten.exp.default(tanh); exp"


@pytest.mark.parametrize("number", range(len(OPEN)))
def test_what_is_not_proven(number: int) -> None:
    rule = px.rule(lambda x: torch.relu(x), where=OPEN[number]).becomes(lambda m, x: torch.tanh(x))
    assert rule(program()) is program()
