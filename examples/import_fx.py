"""From any fx graph to a module: ``python -m examples.import_fx``.

A graph made by ``torch.fx.symbolic_trace`` is a program like any other: it is printed, counted, rewritten by pure functions and
lowered again.
"""

from __future__ import annotations

import torch
from torch import nn

import purefx as px


class Classifier(nn.Module):
    """Batch norm, two layers and a choice of temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, temperature: float = 1.0) -> dict[str, torch.Tensor]:
        """Return the chances of three classes."""
        logits = self.layers(self.norm(x)).div_(temperature)
        return {"chances": torch.softmax(logits, dim=-1)}


def main() -> None:
    """Import a trace, look at it, and run what is made of it."""
    model, x = Classifier().eval(), torch.randn(2, 4)
    traced = torch.fx.symbolic_trace(model)

    program = px.import_fx(traced, example_inputs=(x,))
    print(program.main, px.stats(program), sep="\n\n")

    module = px.lower(px.transform(program))
    for call in ((x,), (x, 0.5)):
        assert torch.equal(module(*call)["chances"], model(*call)["chances"])
    assert list(module.state_dict()) == list(model.state_dict())
    print("\nequal to eager, with and without the default")


if __name__ == "__main__":
    main()
