"""Identity and type of tensors: ties, shared memory, and comparison of shape and dtype.

``TensorIds`` numbers the tensors and the memory of a state, so that ties and aliases compare as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from .errors import UnsupportedProgram
from .signature import TensorType
from .state import Slot, SlotKind, State, is_strided, lazy_bits
from .torch_private import has_fixed_sizes, is_in_level, storage_key


def cell_key(value: Any) -> tuple[object, object]:
    """Return two keys of a value: the first is equal for identical views, the second for values that share memory.

    >>> tensor = torch.ones(4)
    >>> cell_key(tensor) == cell_key(tensor.detach()), cell_key(tensor)[1] == cell_key(tensor[1:])[1]
    (True, True)
    """
    memory = _memory(value)
    if not is_strided(value):
        return memory, memory
    if value.is_nested:  # it has no sizes
        return id(value), memory
    # Identical views of one memory are one tensor, even if saving and loading made two objects; a lazy
    # conjugate is another tensor.
    return (
        memory,
        value.storage_offset(),
        tuple(value.shape),
        value.stride(),
        value.dtype,
        *lazy_bits(value),
    ), memory


@cache
def has_numbers(dtype: torch.dtype) -> bool:
    """Return whether torch converts elements of a dtype to numbers; not for packed dtypes.

    >>> has_numbers(torch.float8_e5m2), has_numbers(torch.uint4)
    (True, False)
    """
    try:
        torch.zeros(1, dtype=dtype).tolist()
    except RuntimeError:
        return False
    return True


def _memory(value: Any) -> object:
    if is_in_level(value):
        raise UnsupportedProgram(
            f"the state has a tensor of a closed level of torch.func (vmap, grad), of shape {tuple(value.shape)}; return it from "
            "the mapped function, or store it outside of torch.func, and export again"
        )
    if is_strided(value):
        return storage_key(value)
    # Each access to a script object may return another Python object, with the same hash.
    return ("script", hash(value)) if isinstance(value, torch.ScriptObject) else id(value)


def _cell(value: Any) -> object:
    # A tensor without gradient is not the parameter that it aliases: `self.k = self.v.detach()`.
    return (cell_key(value)[0], isinstance(value, torch.Tensor) and value.requires_grad)


class TensorIds:
    """Numbers tensors and their memory in the order in which they are encountered.

    Args:
        state: its values keep their numbers.

    >>> numbers = TensorIds()
    >>> tensor = torch.ones(2)
    >>> [numbers.slot(value, SlotKind.BUFFER, persistent=True).cell for value in (tensor, torch.ones(2), tensor)]
    [0, 1, 0]
    """

    def __init__(self, state: State | None = None) -> None:
        slots = [slot for _, slot in reversed(state.pairs)] if state is not None else []
        self._slots = {id(slot.value): slot for slot in slots}
        """The slots by the ``id`` of their value: a state can have equal views that are not tied, and they stay two cells."""
        self._cells = {_cell(slot.value): slot.cell for slot in slots}
        self._storages = {_memory(slot.value): slot.storage for slot in slots}
        self._alone: dict[object, tuple[Any, int]] = {}
        """The only value found so far in each memory, with its cell, which ``_cells`` does not have."""
        self._more_cells = 1 + max([slot.cell for slot in slots], default=-1) - len(self._cells)
        self._more_storages = (
            1 + max([slot.storage for slot in slots], default=-1) - len(self._storages)
        )

    def slot(self, value: Any, kind: SlotKind, *, persistent: bool) -> Slot:
        """Return a slot that shows a value; tied values get one cell, aliasing ones one storage."""
        if (known := self._slots.get(id(value))) is not None:
            return Slot(kind, value, known.cell, known.storage, persistent)
        memory, cell = _memory(value), len(self._cells) + len(self._alone) + self._more_cells
        if memory not in self._storages:  # nearly all: a value with separate memory is not tied
            self._storages[memory] = len(self._storages) + self._more_storages
            self._alone[memory] = value, cell
        else:
            if memory in self._alone:
                first, number = self._alone.pop(memory)
                self._cells[_cell(first)] = number
            cell = self._cells.setdefault(_cell(value), cell)
        return Slot(kind, value, cell, self._storages[memory], persistent)

    def renumbered(self, slot: Slot) -> Slot:
        """Return a slot with cell and storage numbered by this table."""
        return self.slot(slot.value, slot.kind, persistent=slot.persistent)


def disagreement(known: Any, value: Any) -> str | None:
    """Return how the fake value in meta and a tensor of the state differ, or None; other values never differ.

    >>> disagreement(torch.ones(2), torch.ones(3))
    'a torch.float32 of shape (2,), but the slot holds a torch.float32 of shape (3,)'
    >>> disagreement(None, torch.ones(3)) is None
    True
    """
    if not isinstance(known, torch.Tensor) or not isinstance(value, torch.Tensor):
        return None
    fits = known.dtype is value.dtype and known.is_nested is value.is_nested
    if fits and not known.is_nested:
        is_fixed = has_fixed_sizes(known) and has_fixed_sizes(value)
        fits = known.shape == value.shape if is_fixed else _may_be_equal(known.shape, value.shape)
    return None if fits else f"{geometry(known)}, but the slot holds {geometry(value)}"


def _may_be_equal(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    # Symbolic sizes are not compared: comparing one installs a guard.
    plain = [
        (a, b) for a, b in zip(ours, theirs, strict=False) if type(a) is int and type(b) is int
    ]
    return len(ours) == len(theirs) and all(a == b for a, b in plain)


def misfit(promised: TensorType, known: Any) -> str | None:
    """Return how a tensor type of the signature and the fake value of its input differ, or None; symbols fit all sizes.

    >>> misfit(TensorType(torch.float32, (2, 3)), torch.ones(2, 4))
    'a torch.float32 of shape (2, 3), but was traced as a torch.float32 of shape (2, 4)'
    >>> misfit(TensorType(torch.float32, (2,)), None) is None, misfit(TensorType(torch.float32, (2,)), 3)
    (True, 'a torch.float32 of shape (2,), but was traced as a int')
    """
    if known is None or type(promised.shape) is not tuple:
        return None
    is_tensor = isinstance(known, torch.Tensor)
    if is_tensor and promised.dtype is known.dtype and _may_be_equal(promised.shape, known.shape):
        return None
    shape = tuple(
        size if type(size) is int else getattr(size, "name", "?") for size in promised.shape
    )
    traced = geometry(known) if is_tensor else f"a {type(known).__name__}"
    return f"a {promised.dtype} of shape {shape}, but was traced as {traced}"


def tensors_among(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among some values.

    >>> len(tensors_among([torch.ones(1), 2, None]))
    1
    """
    return [value for value in values if isinstance(value, torch.Tensor)]


def value_in(meta: Any) -> Any:
    """Return the fake value in the meta of a node or an input, or None.

    >>> value_in({"val": 3}), value_in(7)
    (3, None)
    """
    return meta.get("val") if type(meta) is MappingProxyType or isinstance(meta, Mapping) else None


def geometry(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words.

    >>> geometry(torch.ones(2, 3))
    'a torch.float32 of shape (2, 3)'
    """
    return f"a {tensor.dtype} of {'nested shapes' if tensor.is_nested else f'shape {tuple(tensor.shape)}'}"


NUMBERS = {"int": 1, "float": 0.5, "bool": True}
"""Example values for unknown numbers, by kind."""


def drawn(sizes: Sequence[int], dtype: torch.dtype, draw: torch.Generator) -> torch.Tensor:
    """Return a random tensor: normally distributed, or zeros and ones for integers (valid indices nearly everywhere).

    Args:
        sizes: its shape.
        dtype: any.
        draw: the generator; it advances.

    >>> drawn([2], torch.int64, torch.Generator().manual_seed(0))
    tensor([0, 1])
    """
    if dtype.is_complex or dtype.is_floating_point:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(list(sizes), generator=draw, dtype=wide).to(dtype)
    return torch.randint(0, 2, list(sizes), generator=draw, dtype=torch.int64).to(dtype)
