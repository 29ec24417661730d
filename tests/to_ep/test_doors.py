"""Tools that accept an ExportedProgram accept ours: torch.compile, and the exporter once more.

A small rewritten model with a dynamic size goes through each and is compared with eager.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px
from examples.to_ep import Mlp, tanh_gelu
from tests.to_ep.support import imported

ROWS = ({0: torch.export.Dim.DYNAMIC},)


def rewritten() -> tuple[torch.nn.Module, px.Program]:
    """Return what the rewritten program of the example computes, and the program, deduplicated."""

    class Expected(Mlp):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = torch.nn.functional.gelu(block(x), approximate="tanh")
            return x

    torch.manual_seed(0)
    module = Expected()
    source = Mlp()
    source.load_state_dict(module.state_dict())
    return module, px.transform(imported(source, torch.randn(3, 8), dynamic_shapes=ROWS), *px.DEFAULT, tanh_gelu)


def test_it_is_exported_again() -> None:
    module, program = rewritten()
    again = torch.export.export(px.to_ep(program).module(), (torch.randn(4, 8),), dynamic_shapes=ROWS)
    x = torch.randn(7, 8)
    assert torch.equal(again.module()(x), module(x))
    assert px.unflatten(again)(x).shape == (7, 8)


@pytest.mark.slow
def test_it_is_compiled() -> None:
    module, program = rewritten()
    compiled: Any = torch.compile(px.to_ep(program).module(), backend="aot_eager", fullgraph=True)
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), module(x))
