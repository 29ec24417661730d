"""``nested=True``: what several calls share is one region in the result, and everything else is as without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.transforms.regions import with_regions
from tests.programs import Block, Counter, Tower
from tests.to_ep.support import decomposed, differences, flattened, imported, loaded


class Headed(nn.Module):
    """Blocks, and a layer of another shape whose body is shared with those inside them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4, bias=True), nn.Linear(4, 11)
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def regions(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the bodies that the regions of an exported program run, in order."""
    return [str(node.args[0]) for node in ep.graph.nodes if "invoke_subgraph" in str(node.target)]


@pytest.mark.parametrize("shapes", [None, ({0: torch.export.Dim.DYNAMIC},)], ids=["static", "dynamic"])
def test_blocks_are_one_body(shapes: Any) -> None:
    torch.manual_seed(0)
    module, x = Headed(), torch.randn(3, 4)
    program = imported(module, x, dynamic_shapes=shapes)
    tree = px.transform(program)
    before, ep = str(tree), px.to_ep(tree, nested=True)
    assert len(set(regions(ep))) == 1
    assert len(regions(ep)) == 3
    assert str(tree) == before
    assert px.alpha_equal(px.import_ep(ep), flattened(with_regions(tree)))
    assert regions(px.to_ep(program, nested=True)) == regions(ep)
    calls = [(torch.randn(3, 4),) for _ in range(2)]
    for made in (ep, loaded(ep) if shapes else decomposed(ep), px.to_ep(px.transform(px.import_ep(ep)))):
        assert len(regions(made)) == 3
        with torch.no_grad():
            assert differences(made, module, calls) == []


def test_the_body_keeps_its_hierarchy() -> None:
    """What is imported again has the modules of each block below the call that the region stands in."""
    ep = px.to_ep(px.transform(imported(Tower(3), torch.randn(3, 4))), nested=True)
    body: Any = ep.graph_module.get_submodule(regions(ep)[0])
    paths = [list(node.meta["nn_module_stack"].values())[-1][0] for node in body.graph.nodes if node.op == "call_function"]
    assert paths == ["layers.0.up", "layers.0", "layers.0.down", "layers.0"]
    assert next(node.meta["val"].shape for node in body.graph.nodes if node.op == "placeholder") == (3, 4)


class Twice(nn.Module):
    """Calls something several times."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


class View(nn.Module):
    """Gives a view of what it was given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4)


class Prints(nn.Module):
    """Has an effect whose order can be seen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("called")
        return x + 1


@pytest.mark.parametrize("kind", [Counter, View, Prints], ids=["writes", "gives a view", "prints"])
def test_bodies_that_do_more_are_inlined(kind: type[nn.Module]) -> None:
    module = Twice(kind(), kind())
    program = px.transform(imported(module, torch.randn(3, 4)))
    assert with_regions(program) is program
    assert regions(px.to_ep(program, nested=True)) == []


def test_blocks_of_two_shapes_are_not_one_region() -> None:
    """Their bodies are equal up to names, so they are one graph; a region has one shape."""
    program = px.transform(imported(Twice(nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 8)), torch.randn(3, 4)))
    assert len(program.graphs) == 2
    assert regions(px.to_ep(program, nested=True)) == []


def test_preserved_signatures_stay_calls_of_their_own() -> None:
    module, x = Tower(2), torch.randn(3, 4)
    program = px.transform(imported(module, x, preserve_module_call_signature=("layers.0", "layers.1")))
    ep = px.to_ep(program, nested=True)
    assert {entry.fqn for entry in ep.module_call_graph if entry.signature} == {"", "layers.0", "layers.1"}
    with torch.no_grad():
        assert differences(ep, module, [(x,)]) == []
