"""The program after a swap, as text: what stands where, under which names, with which values, and what stays."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

import purefx as px
from tests.models import exported, parent

ROWS = torch.ones(2, 3)


class Point(NamedTuple):
    """A container that only a function of torch can put together."""

    x: Any
    y: Any


class Mlp(parent(up=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    """Takes containers and constants, and gives back one of its arguments."""

    def forward(
        self, x: torch.Tensor, pair: Point, *, scale: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.up(x) * scale + self.n, pair.y


class Block(parent(mlp=Mlp)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, z = self.mlp(x, Point(x + 1, x[0]), scale=0.5)
        return y + z


class Model(nn.Module):
    """Two equal blocks, a tied weight, and a read of state of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(3, 3)
        self.head.weight = self.layers[0].get_parameter("mlp.up.weight")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x) + self.layers[1].get_parameter("mlp.up.bias")


class New(parent(up=lambda: nn.Linear(3, 3), extra=lambda: torch.zeros(2))):
    """Is called like ``Mlp``."""

    def forward(
        self, x: torch.Tensor, pair: Point, *, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return x * scale, pair.x + self.extra.sum()


PATHS = ("layers.0.mlp", "layers.1.mlp", "layers.0.mlp.up", "layers.1.mlp.up", "head")


@cache
def model() -> px.Program:
    """Return it with all calls preserved; its two blocks share their bodies."""
    return px.transform(px.import_ep(exported(Model(), ROWS, preserve_module_call_signature=PATHS)))


@cache
def other(make: type[nn.Module] = Mlp) -> px.Program:
    """Return another module like that, as a program."""
    args, kwargs = (ROWS, Point(ROWS + 1, ROWS[0])), {"scale": 0.5}
    return px.transform(
        px.import_ep(
            torch.export.export(make(), args, kwargs, preserve_module_call_signature=("up",))
        )
    )


def lines(program: px.Program, graph: str = "") -> list[str]:
    """Return the text of the nodes of a graph, and of its result, one blank between words, without words for errors."""
    told = re.compile(', "module \'.*which"')
    return [
        told.sub("", " ".join(line.split()))
        for line in str(program.graphs[graph]).splitlines()[1:-1]
    ]


def shapes(program: px.Program, graph: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes that are known of the values of the nodes."""
    return {
        node.name: tuple(node.meta["val"].shape)
        for node in program.graphs[graph].nodes
        if "val" in node.meta
    }


def listed(program: px.Program) -> dict[str, str]:
    """Return the types of the modules below the first block, the last words of their names."""
    types = [
        (module.path, (module.type_name or "").rpartition(".")[2]) for module in program.modules
    ]
    return {path: name for path, name in types if path.startswith("layers.0.")}


def test_a_module() -> None:
    before = model()
    after = px.swap_modules(before, {"layers.0.mlp": New()})
    assert px.verify(after) == ()
    assert lines(after)[:2] == [
        "add_2 = call @Block_1(x) as layers.0",
        "add_5 = call @Block(add_2) as layers.1",
    ]
    assert lines(after, "Block_1") == [
        "add = aten.add.Tensor(arg, 1)",
        "select = aten.select.int(arg, 0, 0)",
        "mlp_module = get mlp",
        f'packed = purefx.pack([add, select], tree(custom "{__name__}.Point"(*, *)))',
        "mlp = purefx.call_module(mlp_module, arg, packed, scale=0.5)",
        "leaves = purefx.unpack(mlp, tree((*, *)))",
        "add_1 = operator.getitem(leaves, 0)",
        "mlp_1 = operator.getitem(leaves, 1)",
        "add_2 = aten.add.Tensor(add_1, mlp_1)",
        "return add_2",
    ]
    assert shapes(after, "Block_1") == {
        "add": (2, 3),
        "select": (3,),
        "add_1": (2, 3),
        "add_2": (2, 3),
    }
    assert all(after.graphs[name] is before.graphs[name] for name in ("Block", "Mlp", "Linear"))
    left = (
        "layers.1.mlp.up.weight",
        "layers.1.mlp.up.bias",
        "head.weight",
        "head.bias",
        "layers.1.mlp.n",
    )
    assert after.state.order == ("layers.0.mlp", *left)
    assert tuple(place.slot for place in after.signature.lifted) == left
    assert listed(after) == {"layers.0.mlp": "New"}
    assert set(map(str, after.call_signatures)) == {"layers.1.mlp", "layers.1.mlp.up", "head"}


def test_a_program() -> None:
    before = model()
    after = px.swap_modules(before, {"layers.0.mlp": other()})
    assert px.verify(after) == ()
    assert lines(after, "Block_1") == [
        "add = aten.add.Tensor(arg, 1)",
        "select = aten.select.int(arg, 0, 0)",
        "mlp = call @layers.0.mlp(arg, add, select, 0.5) as mlp",
        "add_1 = operator.getitem(mlp, 0)",
        "mlp_1 = operator.getitem(mlp, 1)",
        "add_2 = aten.add.Tensor(add_1, mlp_1)",
        "return add_2",
    ]
    assert lines(after, "layers.0.mlp") == [
        "layers_0_mlp_takes = purefx.takes(x, pair_x, pair_y, scale)",
        "linear = call @layers.0.mlp.up(x) as up",
        "mul = aten.mul.Tensor(linear, 0.5)",
        "b_n = get n",
        "add = aten.add.Tensor(mul, b_n)",
        "layers_0_mlp_gives = purefx.gives(add, pair_y)",
        "return (add, pair_y)",
    ]
    assert shapes(after, "Block_1") == {
        "add": (2, 3),
        "select": (3,),
        "add_1": (2, 3),
        "add_2": (2, 3),
    }
    assert after.state.order == before.state.order, "kept names stay in place"
    assert all(len(names) == 1 for names in after.state.by_cell.values()), "what was tied has gone"
    kept = (
        "layers.1.mlp.up.weight",
        "layers.1.mlp.up.bias",
        "head.weight",
        "head.bias",
        "layers.1.mlp.n",
    )
    assert tuple(place.slot for place in after.signature.lifted) == kept
    assert listed(after) == {"layers.0.mlp": "Mlp", "layers.0.mlp.up": "Linear"}
    signed = {"layers.0.mlp", "layers.0.mlp.up", "layers.1.mlp", "layers.1.mlp.up", "head"}
    assert set(map(str, after.call_signatures)) == signed
    assert (
        after.call_signatures[px.Frame("layers.0.mlp")]
        == before.call_signatures[px.Frame("layers.0.mlp")]
    )
