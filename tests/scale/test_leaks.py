"""Nothing is kept of modules that are gone: neither in torch's caches of sources nor anywhere else."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import torch

import purefx as px
from tests.programs import exported

LOWERINGS = 1_000
ALLOWED = 1_024
"""Bytes a lowering."""


class Two(torch.nn.Module):
    """Two layers with one body, and one with another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


@pytest.mark.slow
def test_a_thousand_lowerings_leave_nothing() -> None:
    """A tenth of the modules are read as well, because fx registers what it generates."""
    x = torch.ones(1, 2)
    program = px.transform(px.import_ep(exported(Two(), x)))

    def lower(number: int) -> None:
        module = px.lower(program, to="interpreter" if number % 2 else "graph_module")
        module(x)
        for inner in () if number % 10 else module.modules():
            assert not isinstance(inner, torch.fx.GraphModule) or "forward" in inner.code

    for number in range(20):
        lower(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(LOWERINGS):
            lower(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept <= ALLOWED * LOWERINGS, f"{kept / LOWERINGS:.0f} bytes are kept of each lowering"
