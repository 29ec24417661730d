"""Rewrite a program and hand it to tools that accept an ExportedProgram: ``python -m examples.to_ep``.

The rewrite is a function over nodes; its result is saved, loaded and run like anything that torch exported.
"""

from __future__ import annotations

import io
import warnings

import torch
from attrs import evolve

import purefx as px


class Mlp(torch.nn.Module):
    """Two layers around a gelu, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layers make of x."""
        for block in self.blocks:
            x = torch.nn.functional.gelu(block(x))
        return x


@px.transformation(laws=["no gelu is exact afterwards"])
def tanh_gelu(program: px.Program) -> px.Program:
    """Let every gelu use the tanh approximation, which is what some runtimes have."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        nodes = tuple([_tanh(node) for node in graph.nodes])
        if any(new is not old for new, old in zip(nodes, graph.nodes, strict=True)):
            graphs[name] = evolve(graph, nodes=nodes)
    return program.evolve(graphs=program.graphs.update(graphs)) if graphs else program


def _tanh(node: px.Node) -> px.Node:
    is_gelu = isinstance(node.do, px.Op) and node.do.name == "aten.gelu.default"
    return evolve(node, kwargs=(("approximate", "tanh"),)) if is_gelu and not node.kwargs else node


def main() -> None:
    """Import, rewrite, export, save, load, run, compare."""
    torch.manual_seed(0)
    model, x = Mlp(), torch.randn(3, 8)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = px.import_ep(torch.export.export(model, (x,), dynamic_shapes=({0: rows},)))

    tree = px.transform(program, *px.DEFAULT, tanh_gelu)  # at whatever stage the rewrite is easiest
    ep = px.to_ep(tree)  # flattened, and as torch spells it
    print(f"{len(ep.graph.nodes)} nodes, {ep.dialect}, {ep.range_constraints}")

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # torch warns about how it copies its own specs
        torch.export.save(ep, file)
        file.seek(0)
        loaded = torch.export.load(file)

    for size in (3, 2, 64):
        x = torch.randn(size, 8)
        expected = x
        for block in model.blocks:
            expected = torch.nn.functional.gelu(block(expected), approximate="tanh")
        assert torch.equal(loaded.module()(x), expected)
        assert not torch.equal(loaded.module()(x), model(x))
    assert px.alpha_equal(px.import_ep(loaded), tanh_gelu(program))
    print("saved, loaded: equal to the rewritten model, bit by bit")


if __name__ == "__main__":
    main()
