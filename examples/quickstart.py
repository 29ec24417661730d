"""The dozen lines of the README, as a program: ``python -m examples.quickstart``.

Export, import, transform, print, lower: the resulting module has the hierarchy of the original and computes the same numbers.
"""

from __future__ import annotations

import torch

import purefx as px


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x and what two layers make of it."""
        return x + self.down(self.up(x).relu())


def main() -> None:
    """Take a model apart and put it together again."""
    model, x = torch.nn.Sequential(Block(), Block()), torch.randn(2, 4)
    ep = torch.export.export(model, (x,))

    flat = px.import_ep(ep)  # an immutable value: one flat list of operators
    program = px.transform(flat)  # another one: the hierarchy, equal bodies shared
    print(flat, program, sep="\n\n")

    module = px.lower(program)  # a real torch.fx.GraphModule
    assert torch.equal(module(x), model(x))
    assert list(module.state_dict()) == list(model.state_dict())
    print(f"\n{module}")


if __name__ == "__main__":
    main()
