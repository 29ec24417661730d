"""What the tests of attribute swaps share: small models, replacements, and the same assignment on the original."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import module_class, parent
from tests.unflatten.harness import LOWERED, Case, compare, export

X = torch.arange(12.0).reshape(3, 4) / 5 - 1


class Parent(nn.Module):
    """Children, and what is done with them."""

    def __init__(self, run: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


Plus = module_class("Plus", lambda self, x: x + 3)


class By(nn.Module):
    """Has a number."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.by = by


class Scaled(By):
    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x * scale * self.by


class Pair(By):
    """Gives its results in another order than it computes them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        later = x * self.by
        return x + self.by, later


class Sub(nn.Module):
    """Takes its arguments in another order than it uses them."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return b * 2 - a


Add = module_class("Add", lambda self, a, b: a * 3 + b)


class Dicts(By):
    def forward(self, pair: dict[str, Any], *, more: list[Any]) -> dict[str, Any]:
        return {"sum": pair["a"] + more[0] * self.by, "twice": pair["b"] * 2}


class Counting(By):
    """Counts its calls."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__(by)
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(self.by)
        return x * self.n


Layer = module_class(
    "Layer", lambda self, x: self.act(self.lin(x)), lin=lambda: nn.Linear(4, 4), act=nn.ReLU
)


class Layers(parent(layers=lambda: nn.ModuleList([Layer(), Layer()]))):
    """A list of layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Reads(nn.Module):
    """Reads the weight of a child besides calling it; ``tied``: under a name of its own."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.emb = nn.Linear(4, 4)
        if tied:
            self.w = self.emb.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.emb(x) + (self.w if hasattr(self, "w") else self.emb.weight).sum()


class Around(nn.Module):
    """A wrapper that hands on what it is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs) * 2


def program_of(
    model: nn.Module,
    preserve: tuple[str, ...] = (),
    way: str = "plain",
    args: tuple[Any, ...] = (X,),
) -> px.Program:
    """Return the program of a copy of a model after the default pipeline."""
    return px.transform(px.import_ep(export(model, args, way=way, preserve=preserve)))


def put(module: nn.Module, path: str, new: Any) -> None:
    """Assign a child by its path, as ``module.a.b = new`` does."""
    above, _, name = path.rpartition(".")
    setattr(module.get_submodule(above), name, new)


def same(module: nn.Module, eager: nn.Module, calls: int = 2, args: tuple[Any, ...] = (X,)) -> None:
    """Assert that a module, and a copy of it, do what the eager one does, in several calls with their state."""
    for each in (copy.deepcopy(module), module):
        compare(each, eager, Case(type(eager), [args] * calls))


def both(program: px.Program) -> Iterator[Any]:
    """Lower a program both ways."""
    for to in LOWERED:
        yield px.lower(program, to=to)  # type: ignore[arg-type]


def refused(module: Any, path: str, new: Any, said: str) -> None:
    """Assert that an assignment is a typed error, and that nothing has changed."""
    above = path.rpartition(".")[0]
    before = dict(module.get_submodule(above).__dict__["_modules"])
    with pytest.raises(px.errors.SwapError, match=said):
        put(module, path, new)
    after = module.get_submodule(above).__dict__["_modules"]
    assert list(after) == list(before)
    assert all(after[key] is before[key] for key in before)
