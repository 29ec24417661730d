"""Cells and storages are numbered as their definition says, whatever shares memory with what, in whatever order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st

from purefx.ir.state import SlotKind
from purefx.ir.tensors import TensorIds, cell_key

VIEWS: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda tensor: tensor,
    lambda tensor: tensor.detach(),
    lambda tensor: tensor[1:],
    lambda tensor: tensor.t(),
    lambda tensor: tensor.view(torch.int64),
    lambda tensor: torch.nn.Parameter(tensor),
    lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
    lambda tensor: tensor.conj(),
    lambda tensor: tensor.to_sparse(),
    lambda tensor: tensor.clone(),
    lambda tensor: tuple(tensor.shape),
)


def numbered_by_definition(values: list[object]) -> list[tuple[int, int]]:
    cells: dict[object, int] = {}
    storages: dict[object, int] = {}
    found: list[tuple[int, int]] = []
    for value in values:
        window, memory = cell_key(value)
        key = (window, value.requires_grad) if isinstance(value, torch.Tensor) else window
        found.append((cells.setdefault(key, len(cells)), storages.setdefault(memory, len(storages))))
    return found


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(VIEWS)), max_size=9))
def test_numbers_are_those_of_the_definition(drawn: list[tuple[int, Callable[[torch.Tensor], object]]]) -> None:
    memory = [torch.ones(3, 3, dtype=torch.complex64) for _ in range(3)]
    values = [view(memory[number]) for number, view in drawn]
    numbers = TensorIds()
    slots = [numbers.slot(value, SlotKind.CONSTANT, persistent=False) for value in values]
    assert [(slot.cell, slot.storage) for slot in slots] == numbered_by_definition(values)
