"""``CellNumbers``: which values of the state are one tensor, and which share memory, as numbers.

One idea: the same window on the same memory is one tensor, whatever objects show it; what is no strided tensor is one with
itself alone.  Numbers are given in the order in which values are met.  It looks at no contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .state import Slot, SlotKind, State, lazy_bits
from .torch_private import storage_key

__all__ = ["CellNumbers", "cell_key", "numbered"]


def cell_key(value: Any) -> tuple[object, object]:
    """Return what two values share that are one window on memory, and what they share where they share memory.

    >>> tensor = torch.ones(4)
    >>> cell_key(tensor) == cell_key(tensor.detach()), cell_key(tensor)[1] == cell_key(tensor[1:])[1]
    (True, True)
    """
    if isinstance(value, torch.ScriptObject):  # each access may give another Python object; they have one hash
        return ("script", hash(value)), ("script", hash(value))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return id(value), id(value)
    storage = storage_key(value)
    # The same window on the same memory is one tensor, also after saving and loading made two objects of it; a lazy
    # conjugate reads other numbers there.
    return (storage, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype, *lazy_bits(value)), storage


def _with_gradients(value: Any) -> tuple[object, object]:
    # What has no gradient is not the parameter whose memory it shows: `self.k = self.v.detach()`.
    window, storage = cell_key(value)
    return ((window, value.requires_grad) if isinstance(value, torch.Tensor) else window), storage


def numbered(slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return slots with their cells and storages numbered in order; a slot whose numbers are right is the same object.

    >>> numbered({"w": Slot(SlotKind.BUFFER, None, 7, 3), "v": Slot(SlotKind.BUFFER, None, 7, 3)})["v"].cell
    0
    """
    cells: dict[int, int] = {}
    storages: dict[int, int] = {}
    found: dict[str, Slot] = {}
    for name, slot in slots.items():
        cell, storage = cells.setdefault(slot.cell, len(cells)), storages.setdefault(slot.storage, len(storages))
        right = cell == slot.cell and storage == slot.storage
        found[name] = slot if right else Slot(slot.kind, slot.value, cell, storage, slot.persistent)
    return found


class CellNumbers:
    """Numbers tensors and their memory in the order in which they are met.

    Args:
        state: what is numbered already; its values keep their numbers.

    >>> numbers = CellNumbers()
    >>> tensor = torch.ones(2)
    >>> [numbers.slot(value, SlotKind.BUFFER, persistent=True).cell for value in (tensor, torch.ones(2), tensor)]
    [0, 1, 0]
    """

    def __init__(self, state: State | None = None) -> None:
        self._cells: dict[object, int] = {}
        self._storages: dict[object, int] = {}
        self._next_cell = self._next_storage = 0
        for _, slot in state.pairs if state is not None else ():
            cell, storage = _with_gradients(slot.value)
            self._cells.setdefault(cell, slot.cell)
            self._storages.setdefault(storage, slot.storage)
            self._next_cell = max(self._next_cell, slot.cell + 1)
            self._next_storage = max(self._next_storage, slot.storage + 1)

    def slot(self, value: Any, kind: SlotKind, *, persistent: bool) -> Slot:
        """Return a slot that shows a value; tied values get one cell, aliasing ones one storage."""
        key, memory = _with_gradients(value)
        cell = self._cells.setdefault(key, self._next_cell)
        storage = self._storages.setdefault(memory, self._next_storage)
        self._next_cell = max(self._next_cell, cell + 1)
        self._next_storage = max(self._next_storage, storage + 1)
        return Slot(kind, value, cell, storage, persistent)
