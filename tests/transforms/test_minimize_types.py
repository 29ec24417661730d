"""``minimize`` makes sizes, dtypes and literals simple, and keeps those that are part of the fault."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import purefx as px
from tests.transforms.test_minimize import Chain, check, imported, is_wrong, names, swapped

aten: Any = torch.ops.aten


def tensors(program: px.Program) -> list[px.ir.TensorType]:
    """Return the types of the tensors that the caller passes."""
    kinds = [spec.type for spec in program.signature.inputs if isinstance(spec, px.ir.UserInput)]
    return [kind for kind in kinds if isinstance(kind, px.ir.TensorType)]


def shapes(program: px.Program) -> list[tuple[Any, ...]]:
    """Return their shapes."""
    return [kind.shape for kind in tensors(program)]


def test_sizes_that_do_not_matter_become_one() -> None:
    left = check(imported(Chain(), torch.randn(64, 48)), is_wrong(swapped(aten.relu.default, aten.tanh.default)))
    assert names(left) == ["aten.relu.default"] and shapes(left) == [(1, 1)]


def test_a_size_that_matters_stays_and_others_go() -> None:
    def over_twenty(program: px.Program) -> bool:
        nodes = [node for node in program.main.nodes if node.do == px.op(aten.relu.default)]
        return any(node.meta["val"].shape[-1] > 20 for node in nodes)

    left = check(imported(Chain(), torch.randn(64, 48)), over_twenty)
    assert shapes(left) == [(1, 24)]


def test_state_gets_small_with_what_it_meets() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).view(2, 5, 4, 16).transpose(1, 2)

    def reads(program: px.Program) -> bool:
        parameters = [slot for _, slot in program.state.pairs if slot.kind is px.ir.SlotKind.PARAMETER]
        return names(program)[:2] == ["aten.linear.default", "aten.view.default"] and len(parameters) == 2

    left = check(imported(Heads(), torch.randn(2, 5, 64)), reads)
    assert shapes(left) == [(1, 1, 1)]
    assert {tuple(slot.value.shape) for _, slot in left.state.pairs} == {(1, 1), (1,)}
    assert all(isinstance(slot.value, nn.Parameter) for _, slot in left.state.pairs)


def test_dtypes_become_the_usual_ones() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return x.relu().to(torch.float64)[at]

    program = imported(Half(), torch.randn(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int32))
    left = check(program, lambda program: names(program)[-2:] == ["aten.to.dtype", "aten.index.Tensor"])
    assert {kind.dtype for kind in tensors(left)} == {torch.float32, torch.int64}
    double = check(
        imported(Half(), torch.randn(3), torch.ones(2, dtype=torch.int64)), lambda program: "float64" in str(program.main)
    )
    assert names(double) == ["aten.to.dtype"]
