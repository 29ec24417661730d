"""``State``: the parameters, buffers and constants of a program, and which of them are one tensor.

Tensor identity is data.  Every slot has the number of its *cell* (tensor) and of its *storage* (memory), so tied weights and
aliasing views do not depend on object identity.  Tensors are shared with the creator of the program: nothing here copies
or changes one.
"""

from __future__ import annotations

import copy
import enum
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from attrs import cmp_using, field, frozen

from .arguments import same_arg
from .graph import Get, Stack
from .names import parent_of, way_to
from .own_operators import entangled
from .persistent import PMap, grouped, pmap
from .torch_private import FakeTensor


class SlotKind(enum.Enum):
    """The kind of a slot in a ``torch.nn.Module``.

    >>> SlotKind("buffer").name
    'BUFFER'
    """

    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    MODULE = "module"
    """A whole ``torch.nn.Module`` as one cell, see ``own_operators.py``."""


def same_value(left: Any, right: Any) -> bool:
    """Return whether two pieces of state are the same: one object, tensors alike to the last bit, or equal literals.

    Tensors without contents (on the meta device, or fake) are the same if their metadata is.

    >>> same_value(torch.ones(2), torch.ones(2)), same_value(torch.ones(2), torch.ones(2).double())
    (True, False)
    """
    if left is right:
        return True
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return type(left) in LITERALS and same_arg(left, right)
    if left.is_nested or right.is_nested or describe_tensor(left) != describe_tensor(right):
        return False
    return type(left) is type(right) and same_contents(left, right)


def is_plain(value: Any) -> bool:
    """Return whether a value is a strided tensor of torch's own class, a plain window on memory.

    >>> is_plain(torch.nn.Parameter(torch.ones(1))), is_plain(torch.ones(1).to_sparse()), is_plain(3)
    (True, False, False)
    """
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return False
    return value.layout is torch.strided and not value.is_nested and not value.is_quantized


def same_contents(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors have the same numbers to the last bit, however they lie in memory.

    Args:
        left: a tensor.
        right: another one; if one has no contents, neither may the other.

    >>> same_contents(torch.ones(2, 3).t(), torch.ones(3, 2)), same_contents(torch.zeros(1), -torch.zeros(1))
    (True, False)
    """
    if (left.dtype, left.layout, left.shape) != (right.dtype, right.layout, right.shape):
        return False
    if _has_no_contents(left) or _has_no_contents(right):
        return _has_no_contents(left) and _has_no_contents(right)
    with torch.no_grad():
        pairs = zip(parts_of(left.detach()), parts_of(right.detach()), strict=True)
        return all(torch.equal(mine, theirs) for mine, theirs in pairs)


LITERALS = frozenset(
    {int, bool, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout}
)


def _has_no_contents(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def describe_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a description of a tensor without its contents: type, dtype, shape, strides, device, requires_grad, lazy bits.

    >>> describe_tensor(torch.ones(2))[1:3], describe_tensor(torch.ones(2, dtype=torch.complex64).conj())[6:]
    ((torch.float32, (2,)), ('conj',))
    """
    if tensor.layout is torch.strided and not tensor.is_nested:
        strides, form = tuple(tensor.stride()), lazy_bits(tensor)
    else:
        strides, form = (), (str(tensor.layout),)
    shape = () if tensor.is_nested else tuple(tensor.shape)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return (
        is_parameter,
        tensor.dtype,
        shape,
        strides,
        str(tensor.device),
        tensor.requires_grad,
        *form,
    )


def lazy_bits(tensor: torch.Tensor) -> tuple[str, ...]:
    """Return the lazy operations of a tensor (conjugate, negate); it can share memory with a tensor without them.

    >>> lazy_bits(torch.ones(1)), lazy_bits(torch.tensor([1j]).conj()), lazy_bits(torch.tensor([1j]).conj().imag)
    ((), ('conj',), ('neg',))
    """
    return (("conj",) if tensor.is_conj() else ()) + (("neg",) if tensor.is_neg() else ())


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return plain strided tensors whose bytes are equal exactly if the tensors are.

    >>> [tuple(part.shape) for part in parts_of(torch.eye(2).to_sparse())]
    [(2, 2), (8,)]
    """
    if hasattr(tensor, "__tensor_flatten__"):
        names: list[str] = tensor.__tensor_flatten__()[0]  # type: ignore[attr-defined]  how torch takes subclasses apart
        return tuple([part for name in names for part in parts_of(getattr(tensor, name).detach())])
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.is_quantized:
        return (tensor.int_repr(), tensor.dequantize())
    match tensor.layout:
        case torch.strided:
            return (_bits(tensor.resolve_conj().resolve_neg()),)
        case torch.sparse_coo:
            flat = tensor.coalesce()
            return (flat.indices(), _bits(flat.values()))
        case torch.sparse_csr | torch.sparse_bsr:
            return (tensor.crow_indices(), tensor.col_indices(), _bits(tensor.values()))
        case torch.sparse_csc | torch.sparse_bsc:
            return (tensor.ccol_indices(), tensor.row_indices(), _bits(tensor.values()))
        case _:
            return (_bits(tensor.to_dense()),)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        return tensor
    flat = tensor.contiguous().reshape(-1)
    # A tensor with one element can be contiguous to torch with strides that do not fit bytes.
    dense = flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format)
    return dense.view(torch.uint8)


@frozen
class Slot:
    """One named piece of state.

    Two slots are equal when kind, persistence, cell, storage and the tensor agree; tensors agree when they are the same
    object, or have the same dtype, shape, strides, device, ``requires_grad`` and bits.  The numbers of cells and storages are
    local to one state.

    >>> Slot(SlotKind.BUFFER, torch.ones(2), 0, 0) == Slot(SlotKind.BUFFER, torch.ones(2), 0, 0)
    True
    """

    kind: SlotKind
    value: Any = field(eq=cmp_using(same_value), hash=False, repr=False)
    """A tensor, a module, a script object or another constant that modules hold."""
    cell: int
    """Slots with one cell are one tensor."""
    storage: int
    """Cells with one storage share memory."""
    persistent: bool = True
    """Whether ``state_dict`` has it."""


PREFIXES = {
    SlotKind.PARAMETER: "p_",
    SlotKind.BUFFER: "b_",
    SlotKind.CONSTANT: "c_",
    SlotKind.MODULE: "m_",
}


def exporter_name(name: str, slot: Slot) -> str:
    """Return the name that the exporter chooses for a slot, before it resolves clashes.

    Args:
        name: of the slot, from the root.
        slot: the slot, for its kind.

    >>> exporter_name("layers.0.Weight", Slot(SlotKind.PARAMETER, None, 0, 0))
    'p_layers_0_weight'
    """
    is_object = slot.kind is SlotKind.CONSTANT and not isinstance(slot.value, torch.Tensor)
    return (
        f"{'obj_' if is_object else PREFIXES[slot.kind]}{re.sub('[^0-9A-Za-z]', '_', name).lower()}"
    )


def is_strided(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a tensor with strides.

    >>> is_strided(torch.ones(2)), is_strided(torch.ones(2).to_sparse()), is_strided("no tensor")
    (True, False, False)
    """
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def registered_kind(value: object) -> SlotKind:
    """Return the kind of a tensor that a module registers.

    >>> registered_kind(torch.ones(2)), registered_kind(torch.nn.Parameter(torch.ones(2)))
    (<SlotKind.BUFFER: 'buffer'>, <SlotKind.PARAMETER: 'parameter'>)
    """
    return SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER


def begin_of(value: Any) -> int:
    """Return the offset of a piece of state in its memory, in bytes; 0 for values that are not strided tensors.

    >>> begin_of(torch.ones(4)[2:]), begin_of("no tensor")
    (8, 0)
    """
    has_offset = is_strided(value) and not value.is_nested
    offset = int(value.storage_offset()) if has_offset else 0
    return offset * value.element_size() if offset else 0


@frozen(eq=False)
class State(Mapping[str, Slot]):
    """All slots of a program by name, in the order in which the modules declare them.

    Two states are equal if they have bitwise equal slots in the same order with the same ties and aliases; the numbers
    of cells and storages need not agree.

    >>> state = State(("w",), pmap({"w": Slot(SlotKind.BUFFER, torch.ones(1), 0, 0)}))
    >>> [(name, slot.kind.name) for name, slot in state.items()]
    [('w', 'BUFFER')]
    >>> one, other = (State(("w",), pmap({"w": Slot(SlotKind.BUFFER, torch.ones(1), cell, cell)})) for cell in (0, 7))
    >>> one == other, hash(one) == hash(other)
    (True, True)
    """

    order: tuple[str, ...] = ()
    slots: PMap[str, Slot] = pmap()

    @classmethod
    def of(cls, slots: Mapping[str, Slot]) -> State:
        """Return a state with these slots, in their order."""
        return cls(tuple(slots), pmap(slots))

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Memo of functions of the state (``derived``), by function; all versions of a program share it."""
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        """Return a copy with copied tensors; tensors that share memory share it in the copy."""
        for slot in self.slots.values():
            if (
                type(slot.value) is torch.nn.Parameter and id(slot.value) not in memo
            ):  # its own deepcopy clones its memory
                plain = copy.deepcopy(slot.value.detach(), memo)
                memo[id(slot.value)] = torch.nn.Parameter(plain, slot.value.requires_grad)
        return State(self.order, copy.deepcopy(self.slots, memo))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not State:
            return NotImplemented
        if self.order != other.order or self.slots.keys() != other.slots.keys():
            return False
        if self.slots is other.slots:
            return True
        return self.identities == other.identities and all(
            mine is theirs or same_value(mine.value, theirs.value)
            for (_, mine), (_, theirs) in zip(self.pairs, other.pairs, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.order)

    def __getitem__(self, name: str) -> Slot:
        return self.slots[name]

    def __contains__(self, name: object) -> bool:
        return name in self.slots

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def with_slots(self, added: Mapping[str, Slot]) -> State:
        """Return the state with more slots; new slots of a module follow those of the module and of the modules below it.

        >>> slot = Slot(SlotKind.BUFFER, torch.ones(1), 0, 0)
        >>> State(("a.w", "b.w"), pmap({"a.w": slot, "b.w": slot})).with_slots({"a.v": slot}).order
        ('a.w', 'a.v', 'b.w')
        """
        places, last = (
            {name: place for place, name in enumerate(self.order)},
            {"": max(len(self.order) - 1, 0)},
        )
        for name, place in places.items():
            last |= dict.fromkeys(way_to(name)[:-1], place)
        places |= {name: last.get(parent_of(name), len(self.order)) for name in added}
        return State(tuple(sorted(places, key=places.__getitem__)), self.slots.update(added))

    def without(self, gone: Collection[str]) -> State:
        """Return the state without some slots; tensors that have other names stay."""
        return State.of({name: slot for name, slot in self.pairs if name not in gone})

    @cached_property
    def pairs(self) -> tuple[tuple[str, Slot], ...]:
        """Every slot with its name, in order."""
        return tuple([(name, self.slots[name]) for name in self.order])

    @cached_property
    def by_cell(self) -> Mapping[int, tuple[str, ...]]:
        """The names of the slots of each cell, in order; several are tied."""
        cells = grouped([(slot.cell, name) for name, slot in self.pairs])
        return MappingProxyType({cell: tuple(names) for cell, names in cells.items()})

    @cached_property
    def identities(self) -> tuple[tuple[SlotKind, tuple[int, ...]], ...]:
        """For each slot in order its kind, persistence, cell, storage and offset; the numbers are normalized.

        Tensors and memory are numbered as they are encountered, so that equal states have equal identities.  Tensors that
        share memory also have their offset in bytes from the first.
        """
        cells: dict[int, int] = {}
        storages: dict[int, int] = {}
        begins: dict[int, dict[int, int]] = {}
        for _, slot in self.pairs:
            begins.setdefault(slot.storage, {}).setdefault(slot.cell, begin_of(slot.value))
        found: list[tuple[SlotKind, tuple[int, ...]]] = []
        for _, slot in self.pairs:
            cell, storage = (
                cells.setdefault(slot.cell, len(cells)),
                storages.setdefault(slot.storage, len(storages)),
            )
            shared = begins[slot.storage]
            begin = (shared[slot.cell] - min(shared.values()),) if len(shared) > 1 else ()
            found.append((slot.kind, (slot.persistent, cell, storage, *begin)))
        return tuple(found)

    @cached_property
    def entangled(self) -> tuple[tuple[int, int], ...]:
        """Pairs of storages that share memory because a module of the state holds a tensor of another slot."""
        return entangled(tuple([(slot.storage, slot.value) for _, slot in self.pairs]))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The slots that hold a module, in order."""
        return tuple([name for name, slot in self.pairs if slot.kind is SlotKind.MODULE])


def reads_value(state: Mapping[str, Slot], do: object) -> bool:
    """Return whether an operation of the root reads state that can be an input: no module.

    >>> state = State(("w",), pmap({"w": Slot(SlotKind.MODULE, None, 0, 0)}))
    >>> reads_value(state, Get("w")), reads_value(State(), Get("w"))
    (False, True)
    """
    if type(do) is not Get:
        return False
    slot = state.get(do.slot)
    return slot is None or slot.kind is not SlotKind.MODULE


def reading_place(state: State, slot: str, stack: Stack) -> tuple[int, str]:
    """Return the depth in a stack at which a slot is read, and the name under which it is read.

    Args:
        state: shows which names are one tensor.
        slot: the slot; its own name is preferred if it is below a call.
        stack: the module calls around the reader, outermost first.

    Returns:
        The number of frames around the read, and a name below the last of them.

    >>> from purefx.ir import Frame
    >>> state = State(("a.w", "b.w"), pmap({name: Slot(SlotKind.BUFFER, None, 0, 0) for name in ("a.w", "b.w")}))
    >>> reading_place(state, "a.w", (Frame("b"), Frame("b.c")))
    (1, 'b.w')
    """
    for depth in range(len(stack), 0, -1):
        prefix = stack[depth - 1].path + "."
        if slot.startswith(prefix):
            return depth, slot
        for name in state.by_cell[state[slot].cell]:
            if name.startswith(prefix):
                return depth, name
    return 0, slot


def slot_values(state: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the values of a ``State`` by name; other mappings, such as a ``state_dict``, have them already.

    >>> dict(slot_values(State(("w",), pmap({"w": Slot(SlotKind.CONSTANT, 3, 0, 0)}))))
    {'w': 3}
    """
    return (
        {name: slot.value for name, slot in state.pairs}
        if isinstance(state, State)
        else state or {}
    )
