"""Calls that are dispatched by number, and dynamic sizes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from tests.models import module_class, parent
from tests.unflatten.harness import LOWERED, Case, Cases, Linear, compare, export, same_as_eager

# Issue 4, ``dispatch``: several calls of one preserved module go to one callable, and nothing is kept between calls.

BOTH = pytest.mark.parametrize("to", LOWERED)


class Foo(parent(linear=lambda: nn.Linear(3, 3))):
    """Has three bodies."""

    def forward(self, x: Any, *, kind: Any = 0) -> Any:
        if kind == 1:
            return x * 2
        return self.linear(x).relu() if kind else self.linear(x)


Root = module_class(
    "Root", lambda self, x: self.foo(self.foo(self.foo(x, kind=2), kind=1) - 1, kind=0), foo=Foo
)
CASE = Case(Root, [(torch.randn(4, 3),)] * 2)


def pair(to: Any) -> tuple[nn.Module, Any]:
    """Return eager and the lowered module."""
    eager = Root()
    return eager, px.lower(
        px.transform(px.import_ep(export(eager, CASE.calls[0], preserve=("foo",)))), to=to
    )


@BOTH
def test_an_exception_half_way_leaves_the_next_forward_right(to: Any) -> None:
    eager, u = pair(to)
    seen: list[int] = []

    def fail(*_: Any) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise ArithmeticError("half way")

    handle = u.foo.register_forward_hook(fail)
    with pytest.raises(ArithmeticError, match="half way"):
        u(*CASE.calls[0])
    handle.remove()
    compare(u, eager, CASE)


@BOTH
def test_two_threads_at_once(to: Any) -> None:
    eager, u = pair(to)
    both = threading.Barrier(2)

    def meet(*_: Any) -> None:
        both.wait(timeout=60)

    u.foo.register_forward_pre_hook(meet)
    inputs = [torch.randn(4, 3) for _ in range(2)]
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: u(inputs[n])})) for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, x in enumerate(inputs):
        assert torch.equal(found[number], eager(x))


@BOTH
def test_a_hook_that_calls_the_root(to: Any) -> None:
    eager, u = pair(to)
    other = torch.randn(4, 3)
    found: list[Any] = []

    def again(*_: Any) -> None:
        if not found:
            found.append(None)
            found.append(u(other))

    u.foo.register_forward_hook(again)
    compare(u, eager, CASE)
    assert torch.equal(found[1], eager(other))


CASES = Cases()
ROWS = [(torch.randn(rows, 3),) for rows in (4, 5, 7)]
N = {"x": {0: Dim("n", min=2, max=64)}}
Flat = module_class("Flat", lambda self, x: self.linear(x).view(x.shape[0] * 3), Linear)
Back = module_class(
    "Back", lambda self, y: y.view(y.shape[0] // 3, 3) + torch.ones(y.shape[0] // 3, 3), Linear
)

for preserve in ((), ("a",), ("b",), ("a", "b")):
    CASES.add(*ROWS, preserve=preserve, dynamic=N)(
        module_class("SharedSizes", lambda self, x: self.b(self.a(x)) * x.shape[0], a=Flat, b=Back)
    )
TakesSize = module_class(
    "TakesSize", lambda self, x, rows: (self.linear(x).expand(rows, 3) + rows, rows * 2), Linear
)


@CASES.add(*ROWS, dynamic=N)
@CASES.add(
    *ROWS, preserve=("a",), dynamic=N, refused=("", "AssertionError")
)  # the exporter has no such leaf
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


class Attention(parent(qkv=lambda: nn.Linear(6, 18), out=lambda: nn.Linear(6, 6))):
    def forward(self, x: Any, mask: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 3).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).masked_fill(mask[:t, :t] == 0, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, 6))


TOKENS = [(torch.randn(b, t, 6),) for b, t in ((2, 5), (3, 4), (4, 8))]


@CASES.add(
    *TOKENS,
    preserve=("blocks.0", "blocks.1"),
    dynamic={"x": {0: Dim("b", min=2), 1: Dim("t", min=2, max=8)}},
)
class TwoBlocks(
    parent(
        blocks=lambda: nn.ModuleList([Attention(), Attention()]),
        mask=lambda: torch.ones(16, 16).tril(),
    )
):
    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x, self.mask)
        return x


class Counting(Linear):
    def forward(self, x: Any) -> Any:
        self.n.add_(x.shape[0])
        return x + self.n


CASES.add(*ROWS, preserve=("a",), dynamic={"x": {0: Dim("n", min=3, max=64)}})(
    module_class(
        "SizeIntoBuffer", lambda self, x: (self.a(x) + self.a.n, self.a(x[1:])), a=Counting
    )
)
Half = module_class("Half", lambda self, x, y: x[: y.shape[0]] + y)
PAIRS = [(torch.randn(2 * r), torch.randn(r)) for r in (3, 4, 6)]

CASES.add(*PAIRS, preserve=("a",), dynamic=({0: 2 * Dim("r", min=2)}, {0: Dim("r", min=2)}))(
    module_class("Derived", lambda self, x, y: self.a(x, y) + y.shape[0], a=Half)
)

INTS = [(torch.randn(4, 3), n) for n in (2, 3, 4)]
DynamicInt = module_class("DynamicInt", lambda self, x, n: self.a(x[:1], n)[0] + n, a=TakesSize)

CASES.add(*INTS, dynamic=(None, Dim.DYNAMIC))(DynamicInt)
CASES.add(*INTS, preserve=("a",), dynamic=(None, Dim.DYNAMIC), refused=("", "AssertionError"))(
    DynamicInt
)  # as above

STARRED = [(torch.randn(r, 3), torch.randn(r, 3), [torch.randn(r, 3)]) for r in (4, 5, 7)]
EACH = {0: Dim("n", min=2)}

CASES.add(*STARRED, dynamic={"x": EACH, "rest": (EACH, [EACH])})(
    module_class(
        "Starred", lambda self, x, *rest: self.a.linear(x) + rest[0] * rest[1][0], a=Linear
    )
)


@CASES.each
def test_dynamic(case: Case, way: str) -> None:
    same_as_eager(case, way)
