"""Exported programs of which every rule has something to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.models import parent


class Block(nn.Module):
    """Has a buffer that it counts in, and is called under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("tail", torch.zeros(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.norm(self.lin(x)).relu() + self.tail.sum()


class Tied(nn.Module):
    """Ties weights, calls one module twice, takes and gives pytrees, mutates an input."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()
        self.head = nn.Linear(4, 4)
        self.head.weight = self.a.lin.weight
        self.again = self.b

    def forward(self, batch: dict[str, torch.Tensor], *, scale: float = 2.0) -> dict[str, Any]:
        x = self.again(self.b(self.a(batch["x"])))
        batch["x"].mul_(2)
        return {"out": self.head(x) * scale, "none": None, "number": 3}


class Controlled(parent(lin=lambda: nn.Linear(4, 4))):
    """Has bodies of higher-order operators, inside a module too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda t: self.lin(t), lambda t: t * 2, (x,))
        with torch.no_grad():
            z = self.lin(y).sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.lin(z)


class Dynamic(nn.Module):
    """Has a dynamic size, a constant and a random draw."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (
            torch.cat([x, y])
            + torch.tensor([1.0, 2.0, 3.0, 4.0])
            + torch.rand(x.shape[0] + y.shape[0], 4)
        )


def dynamic() -> torch.export.ExportedProgram:
    """Export a program with ranges."""
    size = torch.export.Dim("n", min=2, max=64)
    return torch.export.export(
        Dynamic(), (torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=({0: size}, {0: size})
    )


EXPORTS: dict[str, Callable[[], torch.export.ExportedProgram]] = {
    "tied": lambda: torch.export.export(Tied(), ({"x": torch.ones(2, 4)},)),
    "decomposed": lambda: torch.export.export(
        nn.Sequential(Block(), Block()), (torch.ones(2, 4),)
    ).run_decompositions(),
    "controlled": lambda: torch.export.export(
        nn.Sequential(Controlled(), nn.ReLU()), (torch.ones(2, 4),)
    ),
    "dynamic": dynamic,
}
