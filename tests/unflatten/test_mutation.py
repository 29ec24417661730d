"""Issue 4, number 4: what is written, where, and who sees it when."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from tests.models import module_class, parent
from tests.unflatten.harness import Case, Cases, Linear, same_as_eager

CASES = Cases()
X = (torch.randn(4, 3),)
DEAD = ("decomposed", "does not exist in the graph")
"""A decomposition drops dead values, and the exporter's verifier does not expect that of values that a signature names."""
XB = (torch.randn(4, 3), torch.randn(4, 3))


class Counting(Linear):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x + self.n


class AddThenMul(Linear):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        y = x + self.n
        self.n.mul_(2)
        return y * self.n


class Out(Linear):
    def forward(self, x: Any) -> Any:
        torch.add(self.n, 1, out=self.n)
        return self.linear(x) + self.n


class Slices(Linear):
    def forward(self, x: Any) -> Any:
        self.n[0].add_(1)
        self.n[1:] += x[0, :2].detach()
        return x + self.n


class Views(Linear):
    def forward(self, x: Any) -> Any:
        self.n.view(3, 1)[1].mul_(2).add_(1)
        return self.n.view(3, 1).t() + x


class Indexed(Linear):
    def forward(self, x: Any) -> Any:
        self.n[torch.tensor([0, 2])] = x.detach()[0, :2]
        self.n.index_add_(0, torch.tensor([1]), torch.ones(1))
        return self.n * x


class Copying(Linear):
    def forward(self, x: Any) -> Any:
        self.n.copy_(x.detach().sum(0))
        self.n.clamp_(min=0)
        return self.linear(x) * self.n


class Swapping(
    parent(linear=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3), m=lambda: torch.ones(3))
):
    """Two buffers, each written from the other."""

    def forward(self, x: Any) -> Any:
        old = self.n.clone()
        self.n.copy_(self.m)
        self.m.copy_(old + 1)
        return x + self.n * self.m


Deep = module_class("Deep", lambda self, x: self.child(x) + self.child.n, child=Counting)
WRITERS = (Counting, AddThenMul, Out, Slices, Views, Indexed, Copying, Swapping)

for writer in WRITERS:

    class Writing(parent(a=writer)):
        """Reads the buffer before and after."""

        def forward(self, x: Any) -> Any:
            before = self.a.n * 2
            y = self.a(x)
            return before + y + self.a.n, self.a(y) + self.a.n

    Writing.__name__ = f"Writing{writer.__name__}"
    CASES.add(X, preserve=("a",), crosses="decomposed" if writer in (Views, Swapping) else None)(
        Writing
    )
    CASES.add(X)(Writing)

Grandchild = module_class("Grandchild", lambda self, x: self.a(self.a(x)) + self.a.child.n, a=Deep)
for preserve in (("a", "a.child"), ("a",), ("a.child",), ()):
    CASES.add(X, preserve=preserve, swap=len(preserve) < 2)(Grandchild)


class Reader(nn.Module):
    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "other", other)

    def forward(self, x: Any) -> Any:
        return x * cast(Any, self.other).n


for preserve in ((), ("a",), ("b",), ("a", "b")):

    @CASES.add(X, preserve=preserve, swap="b" not in preserve)
    class SiblingReads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Counting()
            self.b = Reader(self.a)

        def forward(self, x: Any) -> Any:
            before = self.b(x)
            y = self.a(x)
            z = self.b(y)
            return before + y + z + self.a(z) + self.b(x)


class Writer(Reader):
    def forward(self, x: Any) -> Any:
        cast(Any, self.other).n.add_(1)
        return x + cast(Any, self.other).n


for preserve in ((), ("b",), ("a", "b")):

    @CASES.add(X, preserve=preserve, swap=False)
    class SiblingWrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Counting()
            self.b = Writer(self.a)

        def forward(self, x: Any) -> Any:
            return self.b(self.a(self.b(x))) + self.a(x)


for preserve in ((), ("a",)):

    @CASES.add(X, preserve=preserve)
    class ParentWrites(parent(a=Counting)):
        def forward(self, x: Any) -> Any:
            self.a.n.add_(10)
            y = self.a(x)
            self.a.n.mul_(2)
            return self.a(y) + self.a.n

    @CASES.add(X, preserve=preserve)
    class BatchNormTraining(parent(a=lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))):
        def forward(self, x: Any) -> Any:
            y = self.a(x)
            return self.a(y) + self.a[1].running_mean, self.a[1].num_batches_tracked + 1

    # In a decomposed program the exporter's record calls a value that it dropped by the name of another.
    @CASES.add(X, preserve=preserve, swap=False)
    class ReturnsTheBuffer(parent(a=Counting)):
        def forward(self, x: Any) -> Any:
            self.a(x)
            return self.a.n

    @CASES.add(X, preserve=preserve)
    class ReturnsAViewOfTheBuffer(parent(a=Counting)):
        def forward(self, x: Any) -> Any:
            y = self.a.n.view(-1)
            z = self.a(
                x
            )  # unused, torch would give its name to another node when it decomposes, and the signature lie
            return y, y[0], self.a.n[1:], z


class WritesInput(Linear):
    def forward(self, x: Any, b: Any) -> Any:
        b.add_(self.linear(x).detach())
        return b * 2


class WritesSlices(Linear):
    def forward(self, x: Any, b: Any) -> Any:
        b[0].add_(1)
        b[:, 1].mul_(x[:, 0])
        return b + x


for preserve in ((), ("a",)):
    for writer in (WritesInput, WritesSlices):

        class InputWritten(parent(a=writer)):
            def forward(self, x: Any, b: Any) -> Any:
                y = self.a(x, b)
                return y + b * 3 + self.a(y.detach(), b)

        InputWritten.__name__ = f"Input{writer.__name__}"
        CASES.add(XB, preserve=preserve)(InputWritten)

        class LocalWritten(parent(a=writer)):
            """Writes a value that no state and no input holds."""

            def forward(self, x: Any, b: Any) -> Any:
                c = b * 2
                y = self.a(x, c)
                return y + c, self.a(y.detach(), c)

        LocalWritten.__name__ = f"Local{writer.__name__}"
        CASES.add(XB, preserve=preserve, crosses="decomposed")(LocalWritten)

        class BufferGiven(parent(a=writer, m=lambda: torch.zeros(4, 3))):
            """Hands its own buffer to a child that writes it."""

            def forward(self, x: Any, b: Any) -> Any:
                y = self.a(x, self.m)
                z = self.m + b
                return y + z, self.a(y.detach(), self.m)

        BufferGiven.__name__ = f"BufferGivenTo{writer.__name__}"
        CASES.add(XB, preserve=preserve)(BufferGiven)

    @CASES.add(XB, preserve=preserve, refused=DEAD)
    class InputReturned(parent(a=WritesInput)):
        def forward(self, x: Any, b: Any) -> Any:
            self.a(x, b)
            return b

    @CASES.add(XB, preserve=preserve, refused=DEAD)
    class InputOnlyWritten(parent(a=WritesInput)):
        def forward(self, x: Any, b: Any) -> Any:
            self.a(x, b)
            return x


InPlace = module_class("InPlace", lambda self, x: x.mul_(2).relu_())

for preserve in ((), ("a",)):

    @CASES.add(X, preserve=preserve)
    class InPlaceOnTheResult(parent(l=lambda: nn.Linear(3, 3), a=InPlace)):
        def forward(self, x: Any) -> Any:
            y = self.l(x).detach()
            z = self.a(y)
            return y + z

    CASES.add(X, preserve=preserve, passes=("plain", "strict"))(
        module_class("InPlaceOnTheInput", lambda self, x: self.a(x) + x, a=InPlace)
    )


class Cached(Linear):
    def forward(self, x: Any) -> Any:
        self.cache = self.linear(x)
        return self.cache + 1


@CASES.add(X, preserve=("a",), swap=False)
class ReadsWhatIsNotReturned(parent(a=Cached)):
    def forward(self, x: Any) -> Any:
        y = self.a(x)
        return y * self.a.cache


@CASES.each
def test_mutation(case: Case, way: str) -> None:
    same_as_eager(case, way)
