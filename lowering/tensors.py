"""The state that lowered modules hold: copied or shared, moved or not, tied exactly as in the program.

One idea: work by cell and storage, not by name.  Each storage is copied once and every cell is put back as the same
window on it, so ties and aliasing views survive a copy.  Modules that the program holds as they are are copied in
``opaque.py``, with the same tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir.program import Program
from ..ir.state import Slot, SlotKind
from .opaque import copied_modules
from .windows import Windows

__all__ = ["materialise"]


def materialise(program: Program, *, copy: bool, device: torch.device | None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.
        device: where they go; None leaves them.

    Returns:
        Tensors, parameters, modules and other objects by cell.

    Raises:
        UnsupportedProgram: a module that the program holds can not be copied.
    """
    shared = _shared_storages(program) if copy or device is not None else frozenset()
    windows = Windows(copy, device)
    cells: dict[int, Any] = {}
    modules: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, slot in program.state.pairs:
        if slot.cell in cells or slot.cell in modules:
            continue
        if slot.kind is SlotKind.MODULE:
            modules[slot.cell] = (name, slot.value)
        else:
            cells[slot.cell] = _value(slot, windows, shared)
    if modules and (copy or device is not None):
        tensors = [(slot.value, cells[slot.cell]) for _, slot in program.state.pairs if slot.cell in cells]
        copies = copied_modules(list(modules.values()), tensors, windows)
        return cells | dict(zip(modules, copies, strict=True))
    return cells | {cell: module for cell, (_, module) in modules.items()}


def _shared_storages(program: Program) -> frozenset[int]:
    cells: dict[int, int] = {}
    shared: set[int] = set()
    for _, slot in program.state.pairs:
        if cells.setdefault(slot.storage, slot.cell) != slot.cell:
            shared.add(slot.storage)
    return frozenset(shared).union(*program.state.entangled)


def _value(slot: Slot, windows: Windows, shared: frozenset[int]) -> Any:
    value, device = slot.value, windows.device
    if not isinstance(value, torch.Tensor):
        return value
    is_shared, moves = slot.storage in shared, device is not None and value.device != device
    if not (is_shared or moves or windows.copy) and (
        isinstance(value, torch.nn.Parameter) or slot.kind is not SlotKind.PARAMETER
    ):
        return value
    plain = value.detach()
    if is_shared or ((moves or windows.copy) and not _is_whole(plain)):
        plain = windows.window(plain)
    elif moves:
        plain = plain.to(device)
    elif windows.copy:
        plain = plain.clone()
    if slot.kind is SlotKind.PARAMETER or isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=value.requires_grad)
    return plain.requires_grad_(value.requires_grad) if value.requires_grad and value.is_leaf else plain


def _is_whole(plain: torch.Tensor) -> bool:
    # A clone of it lies in memory as it does: nothing overlaps, and there is nothing around it that a view could reach.
    if type(plain) is not torch.Tensor or plain.layout is not torch.strided or plain.is_quantized:
        return True  # no window can be made of it
    return plain.is_contiguous() and plain.nbytes == plain.untyped_storage().nbytes()
