"""Issue 4, number 3: state keeps its names, its order, its kinds and its sharing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.models import module_class, parent
from tests.unflatten.harness import Case, Cases, same_as_eager

CASES = Cases()
ALIASED = ("decomposed", "expected compiled_fn to be GraphModule")
"""The exporter does not decompose a program that writes a buffer which has two names."""
X = (torch.randn(4, 3),)


@CASES.add(X, preserve=("a",), swap=False)
class TiedParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


@CASES.add(X, refused=ALIASED)
class TiedBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.register_buffer("p", torch.zeros(3))
        self.a.register_buffer("q", self.p)

    def forward(self, x: Any) -> Any:
        self.p.add_(1)
        return self.a(x) + self.a.q


@CASES.add(X, refused=ALIASED)
class AliasedBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        memory = torch.arange(6.0)
        self.register_buffer("whole", memory)
        self.register_buffer("part", memory[1:4])
        self.register_buffer("square", memory.view(2, 3))

    def forward(self, x: Any) -> Any:
        self.part.mul_(2)
        return x + self.square[0] + self.whole.sum()


@CASES.add(X)
class AliasedParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(3, 3)
        self.w = nn.Parameter(weight)
        self.v = nn.Parameter(weight.t())

    def forward(self, x: Any) -> Any:
        return x @ self.w @ self.v


@CASES.add(X)
class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.used = nn.Linear(3, 3)
        self.p = nn.Parameter(torch.randn(2))
        self.register_buffer("b", torch.ones(2))
        self.used.extra = nn.BatchNorm1d(2)
        self.used.register_buffer("late", torch.ones(1))
        self.same = self.unused

    def forward(self, x: Any) -> Any:
        return self.used(x)


@CASES.add(X, preserve=("c",))
class NonPersistentBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.zeros(3), persistent=False)
        self.c = nn.Linear(3, 3)
        self.c.register_buffer("q", torch.ones(3), persistent=False)

    def forward(self, x: Any) -> Any:
        self.p.add_(1)
        return self.c(x) + self.p * self.c.q


@CASES.add(X)
class FrozenParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 3).requires_grad_(False)
        self.p = nn.Parameter(torch.arange(3), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return self.l(x) + self.p


@CASES.add(X, preserve=("l.1",))
class ListsAndDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.d = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.ReLU()})
        self.ps = nn.ParameterList([torch.randn(3), torch.randn(3)])
        self.pd = nn.ParameterDict({"b": torch.randn(3), "a": torch.randn(3)})

    def forward(self, x: Any) -> Any:
        for module in (*self.l, *self.d.values()):
            x = module(x)
        return x + sum(self.ps) * self.pd["a"] + self.pd["b"]


@CASES.add(X, preserve=("l",))
class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = parametrizations.weight_norm(nn.Linear(3, 3))
        self.o = parametrizations.spectral_norm(nn.Linear(3, 3))

    def forward(self, x: Any) -> Any:
        return self.o(self.l(x))


@CASES.add(X)
class ParameterInAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.w = nn.Parameter(torch.randn(3))
        self.held = [self.w, self.l.weight]

    def forward(self, x: Any) -> Any:
        return self.l(x) + self.held[0] + self.held[1].sum()


@CASES.add(X, preserve=("c",))
class TensorsThatAreNoBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.t = torch.randn(3)
        self.c = nn.Linear(3, 3)
        self.c.extra = torch.randn(3)

    def forward(self, x: Any) -> Any:
        return self.c(x) + self.t * self.c.extra + torch.tensor([1.0, 2.0, 3.0])


@CASES.add(X)
class LiftedInAChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        class C(nn.Module):
            def forward(self, x: Any) -> Any:
                return x + torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(4.0)

        self.a, self.b = C(), C()

    def forward(self, x: Any) -> Any:
        return self.a(x) * self.b(self.a(x))


BatchNormTwice = CASES.add(X, preserve=("norm",))(
    module_class(
        "BatchNormTwice",
        lambda self, x: self.norm(self.norm(x) * 2),
        norm=lambda: nn.BatchNorm1d(3),
    )
)


@CASES.add(X)
class StateOfTheRoot(
    parent(w=lambda: nn.Parameter(torch.randn(3, 3)), n=lambda: torch.zeros((), dtype=torch.int64))
):
    def forward(self, x: Any) -> Any:
        self.n += 1
        return x @ self.w * self.n


@CASES.each
def test_state(case: Case, way: str) -> None:
    same_as_eager(case, way)
