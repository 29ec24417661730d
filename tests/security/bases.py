"""The programs that are mutated: small, and together they have everything that a file can say."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from attrs import frozen
from torch import nn

import purefx as px
from tests.models import parent


class Point(NamedTuple):
    """What one of the programs takes and gives."""

    x: Any
    y: Any


@frozen
class Base:
    """A program, and arguments that it takes."""

    name: str
    program: px.Program
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Inner(parent(linear=lambda: nn.Linear(2, 2), count=lambda: torch.zeros(2))):
    def forward(
        self, batch: dict[str, Any], *, scale: float = 2.0
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        self.count.add_(1)
        y = self.linear(batch["x"]) * scale + self.count
        return y, [batch["y"] + 1, y.sum()]


class Rich(
    parent(
        inner=Inner,
        tied=lambda: nn.Linear(2, 2),
        layers=lambda: nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU())),
    )
):
    """Preserved calls, ties, a view, a constant, a written input, dynamic sizes, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.tied.weight = self.inner.linear.weight
        self.register_buffer("view", torch.arange(4.0)[2:], persistent=False)

    def forward(self, x: torch.Tensor, point: Point, *, written: torch.Tensor) -> dict[str, Any]:
        a, (b, c) = self.inner({"x": x, "y": point.x}, scale=2.0)
        a, (d, e) = self.inner({"x": a, "y": b}, scale=3.0)
        z = torch.cond(c > 0, lambda v: self.tied(v) + torch.ones(2), lambda v: v.cos(), (a,))
        written.add_(z.sum(0))
        left, right = torch.cat([self.layers(z), d * point.y]).chunk(2, dim=1)
        return {"z": z + self.view, "point": Point(left, [right.reshape(x.shape[0] * 2), e])}


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


class Plain(parent(a=block, b=block)):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = (self.b(self.a(x) + x) + x).topk(2)
        return values, places


def bases() -> list[Base]:
    """Return the programs, at several stages."""
    size = torch.export.Dim("n", min=2, max=64)
    args, kwargs = (torch.ones(4, 2), Point(torch.ones(4, 2), 3.0)), {"written": torch.zeros(2)}
    shapes = {"x": {0: size}, "point": Point({0: size}, None), "written": None}
    rich = torch.export.export(
        Rich(),
        args,
        kwargs,
        dynamic_shapes=shapes,
        preserve_module_call_signature=("inner", "layers.1"),
    )
    flat = px.import_ep(rich)
    tree = px.transform(flat)
    plain_args = (torch.rand(4, 3),)
    exported = torch.export.export(Plain(), plain_args)
    plain = px.import_ep(exported)
    richer = {"flat": flat, "tree": tree, "inlined": px.inline(px.deduplicate(tree))}
    plainer = {
        "plain": plain,
        "split": px.split_balanced(px.transform(plain), 2),
        "functional": px.outline(px.import_ep(exported.run_decompositions())),
        "traced": px.import_fx(torch.fx.symbolic_trace(Plain().eval())),
    }
    found = [Base(name, program, args, kwargs) for name, program in richer.items()]
    return found + [Base(name, program, plain_args, {}) for name, program in plainer.items()]
