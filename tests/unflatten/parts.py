"""What the modules of several tests of ``px.unflatten`` are made of: a child with state, and parents of such children.

A test says what the children do and how they are called; the rest is the same everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Linear(nn.Module):
    """What the children have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("n", torch.zeros(3))


def parent(**children: Any) -> Any:
    """Return a base class of modules with these children."""

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, child in children.items():
                setattr(self, name, child())

    return Parent
