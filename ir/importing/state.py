"""The state of an exported program: parameters, buffers and constants, and which of them are one tensor.

One idea: tensors are shared, not copied; cells and storages are numbered in the order in which they are met.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ..persistent import pmap
from ..state import Slot, SlotKind, State
from ..torch_private import storage_key

__all__ = ["read_state"]

KINDS = {
    InputKind.PARAMETER: SlotKind.PARAMETER,
    InputKind.BUFFER: SlotKind.BUFFER,
    InputKind.CONSTANT_TENSOR: SlotKind.CONSTANT,
    InputKind.CUSTOM_OBJ: SlotKind.CONSTANT,
}


def read_state(ep: ExportedProgram) -> State:
    """Return the state of an exported program: its ``state_dict`` with the buffers that it leaves out, then constants."""
    declared = {
        str(spec.target): (KINDS[spec.kind], spec.persistent is not False)
        for spec in ep.graph_signature.input_specs
        if spec.kind in KINDS
    }
    numbers = CellNumbers()
    slots: dict[str, Slot] = {}
    earlier = _unsaved_before(ep)
    for name, value in ep.state_dict.items():
        for unsaved in earlier.get(name, ()):
            slots[unsaved] = numbers.slot(ep.constants[unsaved], SlotKind.BUFFER, persistent=False)
        kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
        slots[name] = numbers.slot(value, declared.get(name, (kind, True))[0], persistent=True)
    for name, value in ep.constants.items():
        kind, persistent = declared.get(name, (SlotKind.CONSTANT, False))
        if name not in slots:
            slots[name] = numbers.slot(value, kind, persistent=persistent and kind is not SlotKind.CONSTANT)
    return State(tuple(slots), pmap(slots))


def _unsaved_before(ep: ExportedProgram) -> dict[str, list[str]]:
    # Buffers that are not saved are among the constants; only the inputs have all buffers in the order of the modules.
    found: dict[str, list[str]] = {}
    unsaved: list[str] = []
    for spec in ep.graph_signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.persistent is False and spec.target in ep.constants:
            unsaved.append(str(spec.target))
        elif spec.kind is InputKind.BUFFER and unsaved:
            found[str(spec.target)] = unsaved
            unsaved = []
    return found


class CellNumbers:
    """Numbers tensors and their memory in the order in which they are met."""

    def __init__(self) -> None:
        self._cells: dict[object, int] = {}
        self._storages: dict[object, int] = {}

    def slot(self, value: Any, kind: SlotKind, *, persistent: bool) -> Slot:
        """Return a slot that shows a value; tied values get one cell, aliasing ones one storage."""
        cell, storage = self._keys(value)
        return Slot(
            kind,
            value,
            self._cells.setdefault(cell, len(self._cells)),
            self._storages.setdefault(storage, len(self._storages)),
            persistent,
        )

    def _keys(self, value: Any) -> tuple[object, object]:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return id(value), id(value)
        storage = storage_key(value)
        # The same window on the same memory is one tensor, also after saving and loading made two objects of it.
        return (storage, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype), storage
