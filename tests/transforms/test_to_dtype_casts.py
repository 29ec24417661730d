"""``to_dtype`` on operators that refuse operands of several dtypes, with casts before them: eager mode says what is right.

The table has the operator, the dtype of the state, where the cast stands, the new dtype and the options.  A converted program
runs if the converted module does, and computes the same; what cannot run is refused at the conversion.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from tests.tables import Row, covering

ZERO = torch.tensor([0])
IDS = torch.tensor([[0, 1, 0], [1, 0, 1]])

OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, w: x + w[0],
    "linear": functional.linear,
    "linear bias": lambda x, w: functional.linear(x, x.new_ones(3, 3), w[0]),
    "matmul": lambda x, w: x @ w,
    "bmm": lambda x, w: torch.bmm(x[None], w[None]),
    "addmm": lambda x, w: torch.addmm(w[0], x, w),
    "dot": lambda x, w: torch.dot(x[0], w[0]),
    "einsum": lambda x, w: torch.einsum("ij,jk->ik", x, w),
    "conv1d": lambda x, w: functional.conv1d(x[:, None], w[:, None]),
    "conv_transpose1d": lambda x, w: functional.conv_transpose1d(x[:, None], w[None]),
    "layer_norm": lambda x, w: functional.layer_norm(x, (3,), w[0]),
    "layer_norm with bias": lambda x, w: functional.layer_norm(x, (3,), w[0], w[1]),
    "group_norm": lambda x, w: functional.group_norm(x[..., None], 1, w[0]),
    "batch_norm": lambda x, w: functional.batch_norm(x, w[0], w[1].abs() + 1, w[2], w[0]),
    "rms_norm": lambda x, w: functional.rms_norm(x, (3,), w[0]),
    "attention": lambda x, w: functional.scaled_dot_product_attention(x[None], w[None], w[None]),
    "attention mask": lambda x, w: functional.scaled_dot_product_attention(x, x, x, w[:2, :2]),
    "index_add": lambda x, w: x.index_add(0, ZERO, w[:1]),
    "index_copy": lambda x, w: x.index_copy(0, ZERO, w[:1]),
    "index_put": lambda x, w: x.index_put((ZERO,), w[:1]),
    "scatter": lambda x, w: x.scatter(0, IDS, w[:2]),
    "scatter_add": lambda x, w: x.scatter_add(0, IDS, w[:2]),
    "masked_scatter": lambda x, w: x.masked_scatter(IDS > 0, w),
    "lerp": lambda x, w: torch.lerp(x, w[:2], 0.5),
    "cross": lambda x, w: torch.linalg.cross(x, w[:2]),
    "prelu": lambda x, w: functional.prelu(x, w[0]),
    "embedding_bag": lambda x, w: functional.embedding_bag(
        IDS, w, mode="sum", per_sample_weights=x
    ),
    "bilinear": lambda x, w: functional.bilinear(x, x, w[None]),
    "cross_entropy": lambda x, w: functional.cross_entropy(x, IDS[:, 1], w[0].abs()),
    "binary_cross_entropy": lambda x, w: functional.binary_cross_entropy(
        x.sigmoid(), w[:2].sigmoid()
    ),
    "lstm_cell": lambda x, w: torch.lstm_cell(
        x, (x, x), w.repeat(4, 1), w.repeat(4, 1), w.flatten()[:1].repeat(12), w[0].repeat(4)
    )[0],
    "after views": lambda x, w: functional.linear(x, w.t().contiguous().view(3, 3) * 2),
}
"""Operators of an input and state."""

MIXING = ("add", "rms_norm", "attention mask")
"""Those that accept operands of several dtypes: a cast before them stays, unless ``follow`` names it."""

CASTS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "state": lambda x, w: (x, w.to(x.dtype)),
    "input": lambda x, w: (x.to(w.dtype), w),
    "both": lambda x, w: (x.to(torch.float32), w.to(torch.float32)),
}
"""Where the cast stands."""

SINGLE, DOUBLE, BF16 = torch.float32, torch.float64, torch.bfloat16

OPTIONS: dict[str, dict[str, Any]] = {"": {}, "keep": {"keep": "w"}, "follow": {"follow": "*"}}


class Model(nn.Module):
    def __init__(self, operator: str, cast: str, state: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.operator, self.cast = OPERATORS[operator], CASTS[cast]
        self.casts_may_stay = operator in MIXING
        self.w = nn.Parameter(torch.randn(3, 3).to(state), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(*self.cast(x, self.w))


def eager(model: nn.Module, x: Tensor, dtype: torch.dtype, *, keep: bool) -> Tensor | None:
    """Return the result of the converted module, None if it raises."""
    module = copy.deepcopy(model).to(dtype)
    if keep:
        module.w = nn.Parameter(copy.deepcopy(model).get_parameter("w").detach(), False)
    try:
        return module(x.to(dtype))
    except (RuntimeError, NotImplementedError):
        return None


def fault(model: Model, program: px.Program, dtype: torch.dtype, option: str) -> str:
    """Say what is wrong with a conversion; "" if nothing is."""
    x = torch.linspace(-1, 1.5, 6).reshape(2, 3)
    expected = eager(model, x, dtype, keep=option == "keep")
    try:
        converted = px.to_dtype(program, dtype, **OPTIONS[option])
    except px.PurefxError as error:
        right = expected is None and "eager" not in str(error)
        return "" if right else f"refused: {error}"
    try:
        actual = px.lower(converted)(x.to(dtype))
    except (RuntimeError, NotImplementedError) as error:
        has_no_kernel = "not implemented for" in str(error)
        return "" if expected is None and has_no_kernel else f"does not run: {error}"
    if expected is None:
        return ""
    kind = actual.dtype, expected.dtype
    tolerance = 0.05 if BF16 in (*kind, dtype, model.w.dtype) else 1e-2
    close = torch.allclose(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)
    stays = option != "follow" and model.casts_may_stay
    return "" if close and (stays or actual.dtype is expected.dtype) else f"another result: {kind}"


STATES = {"float32": SINGLE, "bfloat16": BF16}
TO = {"float64": DOUBLE, "bfloat16": BF16}
# Explicit casts do not follow in eager mode.
ROWS = [
    row for row in itertools.product(STATES, CASTS, TO, OPTIONS) if row[1] != "both" or not row[3]
]


@cache
def captured(operator: str, state: str, cast: str) -> tuple[Model, px.Program | None]:
    """Return a model and its program; None if the operator has no kernel for bfloat16."""
    model = Model(operator, cast, STATES[state])
    try:
        return model, px.capture(model, (torch.linspace(-1, 1.5, 6).reshape(2, 3),))
    except px.PurefxError:
        return model, None


PAIRS = covering(ROWS)


@pytest.mark.parametrize(
    ("operator", "rows"),
    [
        *[
            pytest.param(operator, PAIRS[place % 2 :: 2], id=f"{operator}-half of the pairs")
            for place, operator in enumerate(OPERATORS)
        ],
        *[
            pytest.param(operator, ROWS, id=f"{operator}-all", marks=pytest.mark.deep)
            for operator in OPERATORS
        ],
    ],
)
def test_casts_before_an_operator_are_those_of_eager_mode(operator: str, rows: list[Row]) -> None:
    faults = []
    for state, cast, to, option in rows:
        model, program = captured(operator, state, cast)
        words = "" if program is None else fault(model, program, TO[to], option)
        if words:
            row = f"state {state}, cast of {cast}, to {to} {option}"
            faults.append(f"{row}: {' '.join(words.split())[:150]}")
    assert not faults, "\n".join(faults)
