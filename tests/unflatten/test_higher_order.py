"""Issue 4, number 5: higher-order operators, effects, and sizes that only the data tells."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from tests.models import module_class
from tests.unflatten.harness import Case, Cases, Linear, same_as_eager

CASES = Cases()
X = (torch.randn(4, 3),)
Cond = module_class(
    "Cond",
    lambda self, x: torch.cond(x.sum() > 0, lambda y: self.linear(y), lambda y: y * 2, (x,)),
    Linear,
)
Map = module_class(
    "Map", lambda self, x: torch_map(lambda y, s: self.linear(y) * s, x, x.sum()), Linear
)


class Scan(Linear):
    def forward(self, x: Any) -> Any:
        carry, ys = scan(lambda c, y: (c + y, c * y), torch.zeros(3), x, dim=0)
        return self.linear(ys) + carry


class While(Linear):
    def forward(self, x: Any) -> Any:
        i, y = while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, self.linear(y)), (torch.tensor(0), x)
        )
        return y + i


class NoGrad(Linear):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = self.linear(x)
        with torch.enable_grad():
            z = self.linear(x)
        return y + z * x


class Autocast(Linear):
    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x) @ x.t()
        return y.sum(1, keepdim=True) + x


class Flex(Linear):
    def forward(self, x: Any) -> Any:
        q = self.linear(x).view(1, 1, 4, 3).detach()  # on CPU it has no gradient
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + i - j).view(4, 3)


class Nested(Linear):
    def forward(self, x: Any) -> Any:
        def inner(y: Any) -> Any:
            return torch.cond(y.sum() > 1, lambda z: self.linear(z), lambda z: z + 1, (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: y * 2, (x,))


class Asserts(Linear):
    def forward(self, x: Any) -> Any:
        cast(Any, torch)._assert_async((x < 100).all(), "too big")
        return self.linear(x)


class Item(Linear):
    def forward(self, x: Any) -> Any:
        n = x.abs().sum().long().clamp(1, 4).item()
        torch._check(n >= 1)
        torch._check(n <= 4)
        return self.linear(x[:n]).sum(0) * torch.ones(n).sum() + x


class Unbacked(Linear):
    def forward(self, x: Any) -> Any:
        rows = (x > 0).nonzero()
        torch._check(rows.shape[0] > 0)
        return self.linear(x) * rows.sum() + rows.shape[0]


DEAD = ("decomposed", "does not exist in the graph")
"""After a decomposition a branch gives a tuple, and the exporter's record of a preserved call names the item as it was called
before."""
REFUSED: dict[Any, tuple[str, str]] = {
    Autocast: ("strict, decomposed", "Tensor dtype mismatch"),
    Flex: ("saved", "Failed serializing node flex_attention"),
}

KINDS = (Cond, Map, Scan, While, NoGrad, Autocast, Flex, Nested, Asserts, Item, Unbacked)

for place, kind in enumerate(KINDS):
    for preserve in ((), ("a",)):

        class Calls(nn.Module):
            def __init__(self, kind: Any = kind) -> None:
                super().__init__()
                self.a = kind()

            def forward(self, x: Any) -> Any:
                y = self.a(x)
                return self.a(y.abs() + 0.5 if isinstance(self.a, Unbacked) else y - 0.5)

        Calls.__name__ = kind.__name__ + ("Preserved" if preserve else "")
        calls = (
            X,
            (torch.rand(4, 3) + 1,),
            (torch.rand(4, 3) + 3,) if kind is Unbacked else (torch.randn(4, 3) - 3,),
        )
        CASES.add(
            *calls,
            preserve=preserve,
            deep=bool(preserve)
            == bool(place % 2),  # each is asked with a preserved signature or without
            refused=DEAD if preserve and kind in (Cond, Map, Nested) else REFUSED.get(kind),
        )(Calls)


@CASES.each
def test_higher_order(case: Case, way: str) -> None:
    same_as_eager(case, way)
