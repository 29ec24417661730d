"""Issue 4, number 2: modules that are called several times, shared, and replaced."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.models import module_class, parent
from tests.unflatten.harness import Case, Cases, same_as_eager

CASES = Cases()
X = (torch.randn(4, 3),)
ALIASED = ("decomposed", "expected compiled_fn to be GraphModule")
"""The exporter does not decompose a program that writes a buffer which has two names."""


class Flagged(parent(linear=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    """Has two bodies; one counts."""

    def forward(self, x: Any, flag: Any = True) -> Any:
        if flag:
            self.n.add_(1)
            return self.linear(x) + self.n
        return x * 2 + self.n


WithFoo = parent(foo=Flagged)

for preserve in ((), ("foo",)):
    suffix = "Preserved" if preserve else ""

    CASES.add(X, preserve=preserve)(
        module_class("BackToBack", lambda self, x: self.foo(self.foo(self.foo(x)).relu()), WithFoo)
    )
    CASES.add(X, preserve=preserve)(
        module_class(
            "DifferentBodies",
            lambda self, x: self.foo(self.foo(self.foo(x, True), False), True) + self.foo.n,
            WithFoo,
        )
    )
    CASES.add(X, preserve=preserve)(
        module_class(
            "DifferentBodiesBackToBack",
            lambda self, x: (
                self.foo(x, False),
                self.foo(x, True),
                self.foo(x, False),
                self.foo(x, True),
            ),
            WithFoo,
        )
    )

    # Others hold the module too; the exporter knows it under the name that it finds first.
    @CASES.add(
        X,
        preserve=preserve,
        swap=False,
        refused=("", "KeyError: 'left.foo'") if preserve else ALIASED,
    )
    class FromDifferentParents(WithFoo):
        def __init__(self) -> None:
            super().__init__()

            class Other(nn.Module):
                def __init__(self, foo: Any) -> None:
                    super().__init__()
                    self.foo = foo

                def forward(self, x: Any) -> Any:
                    return self.foo(x).relu() + self.foo.n

            self.left, self.right = Other(self.foo), Other(self.foo)

        def forward(self, x: Any) -> Any:
            return self.right(self.left(x)) + self.foo(x) + self.left(x)


# Calls one of its children.
Choosing = module_class(
    "Choosing",
    lambda self, x, index: self.items[index](x),
    items=lambda: nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]),
)
WithChoosing = parent(a=Choosing)

for preserve in ((), ("a",), ("a", "a.items.0", "a.items.1")):
    CASES.add(X, preserve=preserve, swap=len(preserve) < 2)(
        module_class(
            "OnlyTheChildDiffers",
            lambda self, x: self.a(self.a(x, 0), 1) + self.a(x, 1),
            WithChoosing,
        )
    )


class Counting(parent(n=lambda: torch.zeros(()))):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x + self.n


Holding = module_class("Holding", lambda self, x: self.child(x), child=Counting)
Holder = parent(p=Holding)

for preserve in ((), ("p",), ("p.child",), ("p", "p.child")):
    # Eager counts to three.
    CASES.add(X, preserve=preserve, swap=len(preserve) < 2)(
        module_class(
            "ThreeCallsOfTheParent",
            lambda self, x: self.p(self.p(self.p(x))) + self.p.child.n,
            Holder,
        )
    )
    CASES.add(X, preserve=preserve, swap=len(preserve) < 2)(
        module_class(
            "ParentAndChild",
            lambda self, x: self.p.child(self.p(self.p.child(x))) * self.p(x),
            Holder,
        )
    )


class CallsItself(parent(linear=lambda: nn.Linear(3, 3))):
    def forward(self, x: Any, depth: Any) -> Any:
        return self.linear(x) if not depth else self.linear(self(x, depth - 1)).relu()


for preserve in ((), ("r",)):
    CASES.add(X, preserve=preserve)(
        module_class("NestedInItself", lambda self, x: self.r(x, 2), r=CallsItself)
    )


@CASES.add(X)
@CASES.add(X, preserve=("a",), swap=False)
@CASES.add(X, preserve=("a", "b"), swap=False)
class TwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = self.a

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x).relu())


@CASES.add(X, refused=ALIASED)
class TwoNamesDeep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Holding(), Holding()
        self.b.child = self.a.child

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x)) + self.a.child.n + self.b.child.n


@CASES.add(X, preserve=("layers.0", "layers.1", "layers.2"))
class EqualSiblings(parent(layers=lambda: nn.ModuleList([Flagged() for _ in range(3)]))):
    def forward(self, x: Any) -> Any:
        for _ in range(2):
            for layer in self.layers:
                x = layer(x)
        return x


@CASES.add(X, preserve=("layers.0", "layers.2"))
class ReversedAndSliced(parent(layers=lambda: nn.ModuleList([Flagged() for _ in range(3)]))):
    def forward(self, x: Any) -> Any:
        for layer in reversed(self.layers):
            x = layer(x)
        for layer in self.layers[1:]:
            x = layer(x)
        return x


@CASES.each
def test_calls(case: Case, way: str) -> None:
    same_as_eager(case, way)
