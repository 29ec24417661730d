"""Issue 4, number 6: dynamic shapes.

One idea: a size that one module computes and another uses is computed again, so that no child takes more than the
original did; what the exporter promised of the sizes stays enforced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

from tests.unflatten.harness import Case, Cases, same_as_eager
from tests.unflatten.parts import Linear, parent

CASES = Cases()
ROWS = [(torch.randn(rows, 3),) for rows in (4, 5, 7)]
N = {"x": {0: Dim("n", min=2, max=64)}}


class Flat(Linear):
    def forward(self, x: Any) -> Any:
        return self.linear(x).view(x.shape[0] * 3)


class Back(Linear):
    def forward(self, y: Any) -> Any:
        return y.view(y.shape[0] // 3, 3) + torch.ones(y.shape[0] // 3, 3)


for preserve in ((), ("a",), ("b",), ("a", "b")):

    @CASES.add(*ROWS, preserve=preserve, dynamic=N)
    class SharedSizes(parent(a=Flat, b=Back)):
        def forward(self, x: Any) -> Any:
            return self.b(self.a(x)) * x.shape[0]


class TakesSize(Linear):
    def forward(self, x: Any, rows: Any) -> Any:
        return self.linear(x).expand(rows, 3) + rows, rows * 2


@CASES.add(*ROWS, dynamic=N)
@CASES.add(*ROWS, preserve=("a",), dynamic=N, refused=("", "AssertionError"))  # the exporter has no such leaf
class SizesAsArguments(parent(a=TakesSize)):
    def forward(self, x: Any) -> Any:
        y, rows = self.a(x, x.shape[0])
        return y.view(rows // 2, 3) * rows, rows


class Splits(Linear):
    def forward(self, x: Any) -> Any:
        half = x.shape[0] // 2
        return self.linear(x[:half]), x[half:]


@CASES.add(*ROWS, preserve=("a",), dynamic={"x": {0: Dim.AUTO}})
class Halves(parent(a=Splits)):
    def forward(self, x: Any) -> Any:
        left, right = self.a(x)
        return torch.cat([right, left]), left.shape[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Any, mask: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 3).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).masked_fill(mask[:t, :t] == 0, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, 6))


TOKENS = [(torch.randn(b, t, 6),) for b, t in ((2, 5), (3, 4), (4, 8))]


@CASES.add(*TOKENS, preserve=("blocks.0", "blocks.1"), dynamic={"x": {0: Dim("b", min=2), 1: Dim("t", min=2, max=8)}})
class TwoBlocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Attention(), Attention()])
        self.register_buffer("mask", torch.ones(16, 16).tril())

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x, self.mask)
        return x


class Counting(Linear):
    def forward(self, x: Any) -> Any:
        self.n.add_(x.shape[0])
        return x + self.n


@CASES.add(*ROWS, preserve=("a",), dynamic={"x": {0: Dim("n", min=3, max=64)}})
class SizeIntoBuffer(parent(a=Counting)):
    def forward(self, x: Any) -> Any:
        return self.a(x) + self.a.n, self.a(x[1:])


class Half(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x[: y.shape[0]] + y


PAIRS = [(torch.randn(2 * r), torch.randn(r)) for r in (3, 4, 6)]


@CASES.add(*PAIRS, preserve=("a",), dynamic=({0: 2 * Dim("r", min=2)}, {0: Dim("r", min=2)}))
class Derived(parent(a=Half)):
    def forward(self, x: Any, y: Any) -> Any:
        return self.a(x, y) + y.shape[0]


INTS = [(torch.randn(4, 3), n) for n in (2, 3, 4)]


@CASES.add(*INTS, dynamic=(None, Dim.DYNAMIC))
@CASES.add(*INTS, preserve=("a",), dynamic=(None, Dim.DYNAMIC), refused=("", "AssertionError"))  # the exporter has no such leaf
class DynamicInt(parent(a=TakesSize)):
    def forward(self, x: Any, n: Any) -> Any:
        return self.a(x[:1], n)[0] + n


STARRED = [(torch.randn(r, 3), torch.randn(r, 3), [torch.randn(r, 3)]) for r in (4, 5, 7)]
EACH = {0: Dim("n", min=2)}


@CASES.add(*STARRED, dynamic={"x": EACH, "rest": (EACH, [EACH])})
class Starred(parent(a=Linear)):
    def forward(self, x: Any, *rest: Any) -> Any:
        return self.a.linear(x) + rest[0] * rest[1][0]


@CASES.each
def test_dynamic(case: Case, way: str) -> None:
    same_as_eager(case, way)
