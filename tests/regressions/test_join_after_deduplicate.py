"""``deduplicate`` numbers the calls of a module part by part; ``join`` must not make one call of two.

Random walks (tests/laws/test_stateful.py) found calls that were cut by a split, merged with others in one part, and could not
be told apart then: ``join`` refuses those.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import purefx as px
from tests.programs import exported


class Scale(nn.Module):
    """Has another body for each number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x * self.weight + number


class Caller(nn.Module):
    """Calls a module that is not below it."""

    def __init__(self, shared: nn.Module, number: int) -> None:
        super().__init__()
        self.box, self.number = [shared], number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.box[0](x, self.number).relu()


class Two(nn.Module):
    """Two callers of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Scale()
        self.a, self.b = Caller(self.shared, 1), Caller(self.shared, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def test_calls_of_a_shared_module_are_not_mixed_up() -> None:
    """Calls of one module in two parts keep their numbers, merged or not."""
    model, x = Two(), torch.ones(2)
    program = px.transform(px.import_ep(exported(copy.deepcopy(model), x)))
    split = px.split_by_module(program, {"a": "p", "b": "q"})
    assert px.alpha_equal(px.join(split), program)
    merged = px.deduplicate(split)
    results: list[Any] = [px.lower(found)(x) for found in (split, merged)]
    assert all(torch.equal(result, model(x)) for result in results)
    assert px.alpha_equal(px.join(merged), program)
