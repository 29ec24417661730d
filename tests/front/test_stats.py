"""``stats``: counts are those of a run, whatever the stage; operations are those that torch's counter counts in eager."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import purefx as px
from tests.models import Shared, Tower, parent


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x)).relu().flatten(2).transpose(1, 2)
        return self.head(self.attend(x, x, x)[0])


def test_operations_are_those_of_torch() -> None:
    """In all, and of each module; at every stage."""
    model, x = Vision(), torch.randn(2, 3, 6, 6)
    with FlopCounterMode(display=False) as counter:
        model(x)
    program = px.capture(model, (x,))
    for at in (program, px.transform(program), px.inline(px.transform(program))):
        found = px.stats(at)
        assert found.flops == counter.get_total_flops()
        flops = {module.path: module.flops for module in found.modules}
        for path in ("conv", "head"):
            assert flops[path] == sum(counter.get_flop_counts()[f"Vision.{path}"].values())
        assert flops["bn"] is None
        assert found.uncounted["aten.relu.default"] == 1


def test_counts_are_those_of_a_run() -> None:
    """A body that is called three times counts three times; ties count once."""
    program = px.capture(Tower(3), (torch.ones(2, 4),))
    flat, tree = px.stats(program), px.stats(px.transform(program))
    assert flat.operators == tree.operators
    assert flat.operators["aten.linear.default"] == 6
    assert {module.path: module for module in flat.modules} == {
        module.path: module for module in tree.modules
    }
    assert (flat.graphs, tree.graphs) == (1, 3)
    shared = Shared()
    found = px.stats(px.capture(shared, (torch.ones(2, 4),)))
    assert found.parameters == sum(value.numel() for value in shared.parameters())
    tensors = [*shared.parameters(), *shared.buffers()]
    assert found.bytes == sum(value.numel() * value.element_size() for value in tensors)


def test_what_is_not_known_is_not_counted() -> None:
    """A trace without fake values has no operations; one with examples has those of its functions, not of its modules."""

    class Mixed(parent(lin=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(self.lin(x), x)

    traced: Any = torch.fx.symbolic_trace(Mixed())
    assert px.stats(px.import_fx(traced)).flops is None
    found = px.stats(px.import_fx(traced, example_inputs=(torch.ones(3, 4),)))
    assert found.flops == 2 * 3 * 4 * 3
    assert dict(found.uncounted) == {"purefx.call_module": 1}
    assert found.parameters == 20


def test_dynamic_sizes_count_as_they_were_exported() -> None:
    """A symbol is the number that the exporter saw, and no guard is installed."""
    sizes = {0: torch.export.Dim("n", min=2, max=9)}
    program = px.capture(Tower(1), (torch.ones(5, 4),), dynamic_shapes=[sizes])
    assert px.stats(program).flops == 2 * 5 * 4 * 8 * 2
