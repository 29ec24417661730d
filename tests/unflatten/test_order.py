"""Issue 4, number 7: any legal order of the exported graph gives the same hierarchy and the same numbers.

One idea: 40 random topological orders of a transformer of two blocks; the exporter, or any pass, could have chosen each.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.unflatten.harness import Case, compare, export

BLOCKS = ("blocks.0", "blocks.1")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        return self.out(scores.softmax(-1) @ self.v(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(self.up(x).relu())


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def reordered(ep: torch.export.ExportedProgram, seed: int) -> None:
    """Give the graph of an exported program another topological order."""
    choose = random.Random(seed)
    graph = ep.graph
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    waiting = {node: {used for used in node.all_input_nodes if used in set(nodes)} for node in nodes}
    output = next(node for node in graph.nodes if node.op == "output")
    while waiting:
        ready = [node for node, needs in waiting.items() if not needs]
        node = choose.choice(ready)
        del waiting[node]
        output.prepend(node)
        for needs in waiting.values():
            needs.discard(node)
    graph.lint()


@pytest.mark.parametrize("preserve", [(), BLOCKS])
def test_forty_legal_orders(preserve: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    eager = Transformer()
    case = Case(Transformer, [(torch.randn(2, 4, 6),)] * 2, preserve=preserve)
    ep = export(eager, case.calls[0], preserve=preserve)
    hierarchy = [name for name, _ in px.unflatten(ep).named_modules()]
    first = [node.name for node in ep.graph.nodes]
    for seed in range(40):
        reordered(ep, seed)
        assert [node.name for node in ep.graph.nodes] != first
        lowered = px.lower(px.transform(px.import_ep(ep)))
        assert [name for name, _ in lowered.named_modules()] == hierarchy
        compare(lowered, eager, case)
        if preserve and seed < 5:
            for path in preserve:
                lowered.set_submodule(path, Block())
                lowered.get_submodule(path).load_state_dict(eager.get_submodule(path).state_dict())
            compare(lowered, eager, case)
