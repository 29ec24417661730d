"""Issue 4, number 1: preserved call signatures take and give what the original took and gave."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from purefx.ir.torch_private import pytree
from tests.models import module_class, parent
from tests.unflatten.harness import WAYS, Case, Cases, Linear, same_as_eager

CASES = Cases()
X = (torch.randn(4, 3),)
DEAD = ("decomposed", "does not exist in the graph")
"""A decomposition drops dead values, and the exporter's verifier does not expect that of values that a signature names."""


@dataclass
class Pair:
    """A container that is registered with pytree."""

    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="purefx.tests.Pair")
torch.serialization.add_safe_globals(
    [Pair]
)  # an example input is one, and a file is loaded without running code
Point = namedtuple("Point", ("x", "y"))  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]
pytree._register_namedtuple(Point, serialized_type_name="purefx.tests.Point")


class Nested(Linear):
    def forward(self, tree: Any, *, k: Any, nothing: Any = None) -> Any:
        (x, [y]), more = tree
        return {
            "o": (self.linear(x), [y, more["k"]]),
            "c": 1.5,
            "s": 0.5,
            "b": True,
            "n": nothing,
            "i": 3,
            "x": x,
        }


@CASES.add(X, preserve=("a",), passes=WAYS)
class NestedDictsAndTuples(parent(a=Nested)):
    def forward(self, x: Any) -> Any:
        r = self.a(((x, [x * 2]), {"k": x + 1, "z": 3}), k=x, nothing=None)
        return r["o"][0] + r["o"][1][0] * r["c"] + r["o"][1][1] + r["x"] * r["i"], r


OnPair = module_class(
    "OnPair",
    lambda self, pair, *, other: (Pair(self.linear(pair.second), other.first + pair.first), pair),
    Linear,
)


@CASES.add(X, preserve=("a",), passes=WAYS)
class Dataclasses(parent(a=OnPair)):
    def forward(self, x: Any) -> Any:
        pair, again = self.a(Pair(x, x * 2), other=Pair(x - 1, x))
        return pair.first * pair.second + again.second, pair


class OnKeywords(Linear):
    def forward(
        self, x: Any, /, scale: Any = 2.0, *rest: Any, bias: Any = None, **more: Any
    ) -> Any:
        y = self.linear(x) * scale
        for tensor in (*rest, *more.values()):
            y = y + tensor
        return y if bias is None else y + bias


CASES.add(X, preserve=("a",))(
    module_class(
        "KeywordArguments",
        lambda self, x: self.a(x, 3.0, x, x + 1, bias=x, z=x * 2, y=x - 1),
        a=OnKeywords,
    )
)
CASES.add(X, preserve=("a",))(module_class("Defaults", lambda self, x: self.a(x), a=OnKeywords))


class OnConstants(Linear):
    def forward(self, x: Any, flag: Any, count: Any, scale: Any, mode: Any, nothing: Any) -> Any:
        y = self.linear(x) * scale + count
        return (
            (y if flag and mode in ("plus", 7) and nothing is None else -y),
            flag,
            count,
            scale,
            mode,
            nothing,
        )


@CASES.add(X, preserve=("a",))
class Constants(parent(a=OnConstants)):
    def forward(self, x: Any) -> Any:
        y, flag, count, scale, mode, nothing = self.a(x, True, 2, 0.5, 7, None)
        return y + 1 if flag and mode == 7 and nothing is None else y * count * scale


@CASES.add(X, preserve=("a",))
class ConstantsThatDiffer(parent(a=OnConstants)):
    def forward(self, x: Any) -> Any:
        y = self.a(x, True, 2, 0.5, 7, None)[0]
        z = self.a(y, False, 0, -0.0, 1, None)[0]
        return y, z, self.a(z, True, 1, 1.0, 7, None)[0]


class Half(Linear):
    def forward(self, x: Any, unused: Any, dead: Any = None) -> Any:
        _ = dead * 3 if dead is not None else None
        return self.linear(x), x.exp(), unused


CASES.add(X, preserve=("a",), refused=DEAD)(
    module_class("UnusedArgumentsAndOutputs", lambda self, x: self.a(x, x * 7, x * 5)[0], a=Half)
)
Inner = module_class("Inner", lambda self, x, more=None: (self.linear(x), x + 1), Linear)
Outer = module_class("Outer", lambda self, x, more: self.b(x, more)[0], b=Inner)
CASES.add(X, preserve=("a", "a.b"), refused=DEAD)(
    module_class("NestedSignatures", lambda self, x: self.a(x, x), a=Outer)
)
Through = module_class("Through", lambda self, x, y: (y, self.linear(x), x, x), Linear)


@CASES.add(X, preserve=("a",), passes=WAYS)
class PassThrough(parent(a=Through)):
    def forward(self, x: Any) -> Any:
        y, z, w, v = self.a(x, x + 1)
        return y, z, w + v


Itself = module_class("Itself", lambda self, x: x)
CASES.add(X, preserve=("a", "b", "c"), passes=WAYS)(
    module_class(
        "OnlyReturnsItsInput",
        lambda self, x: self.b(self.a(x) + 1) * self.c(x),
        a=Itself,
        b=nn.Identity,
        c=nn.Sequential,
    )
)
Fixed = module_class("Fixed", lambda self, x: (self.n, 5, None, self.linear.weight), Linear)


@CASES.add(X, preserve=("a",))
class ReturnsItsState(parent(a=Fixed)):
    def forward(self, x: Any) -> Any:
        buffer, number, nothing, weight = self.a(x)
        return x + buffer * number, weight.sum(), nothing


class GivesNothing(Linear):
    def forward(self, x: Any) -> None:
        self.n.add_(x.sum(0))


@CASES.add(X, preserve=("a",))
class OnlyWrites(parent(a=GivesNothing)):
    def forward(self, x: Any) -> Any:
        self.a(x)
        return x + self.a.n


@CASES.add(X, preserve=("a.0", "a.2.0"))
class InsideOfContainers(
    parent(a=lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.ModuleList([nn.Linear(3, 3)])))
):
    def forward(self, x: Any) -> Any:
        return self.a[2][0](self.a[1](self.a[0](x)))


@CASES.each
def test_signatures(case: Case, way: str) -> None:
    same_as_eager(case, way)
