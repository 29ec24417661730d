"""The rule sets on programs whose sizes only a run knows, of several precisions, flat and as trees: as eager, no new guard."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import purefx as px
from purefx import rules
from tests.models import parent

BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=64)


class Attention(parent(qkv=lambda: nn.Linear(8, 24), out=lambda: nn.Linear(8, 8))):
    """Causal attention over heads, in single precision inside, with a mask of the length that there is."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            each.reshape(batch, length, 2, 4).transpose(1, 2) for each in self.qkv(x).chunk(3, -1)
        )
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) / 2.0).masked_fill(~seen, float("-inf"))
        return self.out(
            (torch.softmax(scores.float(), -1).to(x.dtype) @ v)
            .transpose(1, 2)
            .reshape(batch, length, 8)
        )


ROW = functools.partial(nn.Parameter, torch.linspace(1, 2, 8))


class Norms(parent(w=ROW, b=ROW, up=lambda: nn.Linear(8, 16, bias=False))):
    def forward(self, x: Tensor) -> Tensor:
        d = x - x.mean(-1, keepdim=True)
        x = d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * self.w + self.b
        a, b = self.up(x).chunk(2, -1)
        return x + a * torch.sigmoid(b)


class Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        y = torch.exp(x).transpose(1, 2).transpose(2, 1)
        y = torch.cat(y.split(4, -1), -1) * 1 - 0
        y = (y.double().to(x.dtype) + x.expand(batch, length, size)).permute(0, 1, 2)
        return torch.relu(torch.relu(y)).unsqueeze(1).squeeze(1)


class Model(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = kind(), kind()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


SETS = {
    "attention": (Attention, rules.attention),
    "fusions": (Norms, rules.fusions),
    "algebra": (Views, rules.algebra),
}

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
CASES = [(name, dtype) for name in SETS for dtype in TOLERANCE]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{name}-{dtype}" for name, dtype in CASES])
def test_sizes_that_only_a_run_knows(name: str, dtype: torch.dtype) -> None:
    kind, ruleset = SETS[name]
    torch.manual_seed(0)
    model = Model(kind).to(dtype)
    found = torch.export.export(
        copy.deepcopy(model),
        (torch.randn(3, 5, 8, dtype=dtype),),
        dynamic_shapes=({0: BATCH, 1: LENGTH},),
    )
    flat = px.import_ep(found)
    for program in (flat, px.transform(flat)):
        before = _guards(found)
        result = ruleset(program)
        assert result is not program and result.order == program.order
        assert not px.verify(result, infer=True)
        assert _guards(found) == before and result.constraints == program.constraints
        _assert_equal(
            px.lower(px.transform(result)),
            model,
            dtype,
            0 if name == "algebra" else TOLERANCE[dtype],
        )


def _guards(found: torch.export.ExportedProgram) -> list[int]:
    vals: list[Any] = [node.meta.get("val") for node in found.graph.nodes]
    modes = {id(val.fake_mode): val.fake_mode for val in vals if hasattr(val, "fake_mode")}
    return [len(mode.shape_env.guards) for mode in modes.values()]


def _assert_equal(
    lowered: nn.Module, model: nn.Module, dtype: torch.dtype, tolerance: float
) -> None:
    for batch, length in ((2, 7), (5, 3)):
        x = torch.randn(batch, length, 8, dtype=dtype)
        torch.testing.assert_close(lowered(x), model(x), rtol=tolerance, atol=tolerance)
