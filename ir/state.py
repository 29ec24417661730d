"""``State``: the parameters, buffers and constants of a program, and which of them are one tensor.

One idea: identity is data.  Every slot says which *cell* (tensor) it shows and which *storage* (memory) that cell
lives in, so tied weights and aliasing views are written down and not a coincidence of objects.  Tensors are shared
with whoever made the program: nothing here copies or changes one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import field, frozen

from .opaque import entangled
from .persistent import PMap, pmap

__all__ = ["Slot", "SlotKind", "State"]


class SlotKind(enum.Enum):
    """What a slot is to ``torch.nn.Module``.

    >>> SlotKind("buffer").name
    'BUFFER'
    """

    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    MODULE = "module"
    """A ``torch.nn.Module`` as it is, see ``opaque.py``: all that it holds is in it, and it is one cell."""


@frozen(eq=False)
class Slot:
    """One named piece of state.

    Two slots are equal when kind, persistence, cell, storage and the tensor agree; tensors agree when they are the same
    object, or have the same dtype, shape, strides, device, ``requires_grad`` and bits.

    >>> Slot(SlotKind.BUFFER, torch.ones(2), 0, 0) == Slot(SlotKind.BUFFER, torch.ones(2), 0, 0)
    True
    """

    kind: SlotKind
    value: Any = field(repr=False)
    """A tensor, a module, a script object or another constant that modules hold."""
    cell: int
    """Slots with one cell are one tensor."""
    storage: int
    """Cells with one storage share memory."""
    persistent: bool = True
    """Whether ``state_dict`` has it."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not Slot:
            return NotImplemented
        return self._facts() == other._facts() and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[object, ...]:
        return (self.kind, self.cell, self.storage, self.persistent)


def same_value(left: Any, right: Any) -> bool:
    """Say whether two pieces of state are the same: one object, or tensors alike to the last bit.

    >>> same_value(torch.ones(2), torch.ones(2)), same_value(torch.ones(2), torch.ones(2).double())
    (True, False)
    """
    if left is right:
        return True
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return False
    if describe_tensor(left) != describe_tensor(right) or left.is_meta:
        return False
    return torch.equal(_bits(left), _bits(right))


def describe_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what a tensor is apart from its contents: type, dtype, shape, strides, device, requires_grad, lazy bits.

    >>> describe_tensor(torch.ones(2))[1:3]
    (torch.float32, (2,))
    """
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    said = (is_parameter, tensor.dtype, tuple(tensor.shape), strides, str(tensor.device), tensor.requires_grad)
    return (*said, *lazy_bits(tensor))


def lazy_bits(tensor: torch.Tensor) -> tuple[str, ...]:
    """Return what is done with the numbers in memory when a tensor is read: such a tensor shares memory with one that is not.

    >>> lazy_bits(torch.ones(1)), lazy_bits(torch.tensor([1j]).conj()), lazy_bits(torch.tensor([1j]).conj().imag)
    ((), ('conj',), ('neg',))
    """
    return (("conj",) if tensor.is_conj() else ()) + (("neg",) if tensor.is_neg() else ())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.layout is not torch.strided or plain.is_quantized:
        return plain
    return plain.contiguous().reshape(-1).view(torch.uint8) if plain.numel() else plain


@frozen
class State:
    """All slots of a program, in the order in which the modules declare them.

    >>> State().order
    ()
    """

    order: tuple[str, ...] = ()
    slots: PMap[str, Slot] = pmap()
    checked: bool = field(default=False, init=False, eq=False, repr=False)
    """Whether ``verify`` found order, values, ties and memory right: all versions of a program share its state."""

    def __getitem__(self, name: str) -> Slot:
        return self.slots[name]

    def __contains__(self, name: object) -> bool:
        return name in self.slots

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def pairs(self) -> tuple[tuple[str, Slot], ...]:
        """Every slot with its name, in order."""
        return tuple([(name, self.slots[name]) for name in self.order])

    @cached_property
    def by_cell(self) -> Mapping[int, tuple[str, ...]]:
        """For each cell, the names of the slots that show it, in order: more than one are tied."""
        cells: dict[int, list[str]] = {}
        for name, slot in self.pairs:
            cells.setdefault(slot.cell, []).append(name)
        return MappingProxyType({cell: tuple(names) for cell, names in cells.items()})

    @cached_property
    def entangled(self) -> tuple[tuple[int, int], ...]:
        """Pairs of storages that share memory because a module of the state holds a tensor that is there too."""
        return entangled(tuple([(slot.storage, slot.value) for _, slot in self.pairs]))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The slots that hold a module, in order."""
        return tuple([name for name, slot in self.pairs if slot.kind is SlotKind.MODULE])
