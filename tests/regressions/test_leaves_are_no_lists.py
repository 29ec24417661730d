"""A module that holds state and nothing else, in a flat or split program: it was a list of length 0, so it was false.

Cause: a container "whose children are counted" was made a list, and of no children that is true.
"""

from __future__ import annotations

import torch

import purefx as px


class Model(torch.nn.Module):
    """A list and a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the list, then the leaf."""
        return self.head(self.layers[1](self.layers[0](x)))


def test_only_lists_are_lists() -> None:
    """Every module is as true as the original, and what is counted is still indexed."""
    model = Model()
    program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    sunk = px.transform(program, *px.DEFAULT[:3])
    split = px.split_by_tags(sunk, ("a", "b"), tag_of={"layers": "a", "head": "b"})
    for made, prefix in ((px.lower(program), ""), (px.lower(sunk), ""), (px.lower(split), "a.")):
        layers = made.get_submodule(f"{prefix}layers")
        assert isinstance(layers, torch.nn.ModuleList) and len(layers) == 2
        for path in ("layers.0", "layers.1", "head"):
            part = "b." if prefix and path == "head" else prefix
            module = made.get_submodule(part + path)
            assert bool(module) and not isinstance(module, torch.nn.ModuleList), path
