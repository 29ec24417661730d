"""The tensors that lowered modules hold: copied or shared, moved or not, tied exactly as in the program.

One idea: work by cell and storage, not by name.  Each storage is copied once and every cell is put back as the same
window on it, so ties and aliasing views survive a copy.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir.program import Program
from ..ir.state import Slot, SlotKind

__all__ = ["materialise"]


def materialise(program: Program, *, copy: bool, device: torch.device | None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.
        device: where they go; None leaves them.

    Returns:
        Tensors, parameters and other objects by cell.
    """
    cells: dict[int, Any] = {}
    storages: dict[int, torch.Tensor] = {}
    shared = _shared_storages(program) if copy or device is not None else frozenset()
    for _, slot in program.state.pairs:
        if slot.cell not in cells:
            cells[slot.cell] = _value(slot, copy=copy, device=device, shared=shared, storages=storages)
    return cells


def _shared_storages(program: Program) -> frozenset[int]:
    cells: dict[int, int] = {}
    shared: set[int] = set()
    for _, slot in program.state.pairs:
        if cells.setdefault(slot.storage, slot.cell) != slot.cell:
            shared.add(slot.storage)
    return frozenset(shared)


def _value(
    slot: Slot, *, copy: bool, device: torch.device | None, shared: frozenset[int], storages: dict[int, torch.Tensor]
) -> Any:
    value = slot.value
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    if slot.storage in shared:
        plain = _window(plain, slot.storage, copy=copy, device=device, storages=storages)
    elif device is not None and plain.device != device:
        plain = plain.to(device)
    elif copy:
        plain = plain.clone()
    elif isinstance(value, torch.nn.Parameter) or slot.kind is not SlotKind.PARAMETER:
        return value
    if slot.kind is SlotKind.PARAMETER or isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=value.requires_grad)
    return plain.requires_grad_(value.requires_grad) if value.requires_grad and value.is_leaf else plain


def _window(
    plain: torch.Tensor, storage: int, *, copy: bool, device: torch.device | None, storages: dict[int, torch.Tensor]
) -> torch.Tensor:
    # The whole memory once, as bytes; each cell then looks at it with its own dtype, offset and strides.
    memory = storages.get(storage)
    if memory is None:
        whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
        memory = storages[storage] = (
            whole.to(device) if device is not None and plain.device != device else whole.clone() if copy else whole
        )
    window = torch.empty(0, dtype=plain.dtype, device=memory.device)
    return window.set_(memory.untyped_storage(), plain.storage_offset(), plain.shape, plain.stride())
