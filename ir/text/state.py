"""State as text: one line per slot, with the type of its tensor but not its contents, written and read.

A tensor that is read is a stand-in on the meta device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from ..errors import UnsupportedProgram
from ..persistent import pmap
from ..state import Slot, SlotKind, State, begin_of
from .arguments import CONSTANTS, opaque, print_arg, read_arg
from .lexer import Cursor, quoted, read_list, spell_path

__all__ = ["TensorFacts", "facts_of", "make_tensors", "print_dtype", "print_slot", "print_state", "read_dtype", "read_state"]

SHORT: Mapping[str, torch.dtype] = {
    "f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "c64": torch.complex64,
    "c128": torch.complex128, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip

SHORT_OF = {dtype: name for name, dtype in SHORT.items()}


def print_dtype(dtype: torch.dtype) -> str:
    """Return a data type as text, short for the common ones.

    >>> print_dtype(torch.float32), print_dtype(torch.float8_e5m2)
    ('f32', 'torch.float8_e5m2')
    """
    return SHORT_OF.get(dtype) or str(dtype)


def read_dtype(cursor: Cursor) -> torch.dtype:
    """Read a data type.

    >>> read_dtype(Cursor("bf16"))
    torch.bfloat16
    """
    found = SHORT.get(cursor.text) or CONSTANTS.get(cursor.text)
    if not isinstance(found, torch.dtype):
        raise cursor.expected("a data type such as f32")
    cursor.advance()
    return found


@frozen
class TensorFacts:
    """A tensor without its contents; ``stride`` is None if it is the usual one, or means nothing."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    layout: torch.layout
    device: str
    is_parameter: bool
    requires_grad: bool

    def fits(self, value: Any) -> bool:
        """Return whether a value is a tensor of this shape and dtype."""
        return isinstance(value, torch.Tensor) and value.dtype is self.dtype and tuple(value.shape) == self.shape

    def strides(self) -> tuple[int, ...]:
        """Return the strides, written or usual."""
        return usual_stride(self.shape) if self.stride is None else self.stride

    def bytes_needed(self) -> int:
        """Return how much memory holds the tensor, from the start of its storage."""
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.strides(), strict=True))
        return (self.offset + (reach + 1 if 0 not in self.shape else 0)) * self.dtype.itemsize


def usual_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a freshly made tensor.

    >>> usual_stride((2, 3, 4))
    (12, 4, 1)
    """
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def facts_of(tensor: torch.Tensor) -> TensorFacts:
    """Return what a tensor is.

    >>> facts_of(torch.ones(2, 3)).shape, facts_of(torch.ones(2, 3).t()).stride
    ((2, 3), (1, 3))
    """
    shape = tuple(int(size) for size in tensor.shape)
    strided = tensor.layout is torch.strided
    stride = tuple(tensor.stride()) if strided else None
    return TensorFacts(
        tensor.dtype,
        shape,
        None if stride == usual_stride(shape) else stride,
        int(tensor.storage_offset()) if strided else 0,
        tensor.layout,
        str(tensor.device),
        isinstance(tensor, torch.nn.Parameter),
        tensor.requires_grad,
    )


def make_tensors(wanted: Mapping[str, tuple[int, int, TensorFacts]]) -> dict[str, torch.Tensor]:
    """Return stand-ins on the meta device.

    Args:
        wanted: for each name the cell, the storage and the facts.

    Raises:
        UnsupportedProgram: torch cannot make such a tensor; the message names it.

    >>> fact = facts_of(torch.ones(2))
    >>> made = make_tensors({"a": (0, 0, fact), "b": (0, 0, fact)})
    >>> made["a"] is made["b"], made["a"].device.type
    (True, 'meta')
    """
    sizes: dict[int, int] = {}
    for _, storage, facts in wanted.values():
        sizes[storage] = max(sizes.get(storage, 0), facts.bytes_needed())
    storages: dict[int, torch.UntypedStorage] = {}
    cells: dict[int, torch.Tensor] = {}
    for name, (cell, storage, facts) in wanted.items():
        try:
            if storage not in storages:
                storages[storage] = torch.empty(sizes[storage], dtype=torch.uint8, device="meta").untyped_storage()
            if cell not in cells:
                cells[cell] = _make(facts, storages[storage])
        except (RuntimeError, TypeError, OverflowError) as error:
            raise UnsupportedProgram(f"no stand-in can be made for {name!a}; give it in `state`: {error}") from error
    return {name: cells[cell] for name, (cell, _, _) in wanted.items()}


def _make(facts: TensorFacts, storage: torch.UntypedStorage) -> torch.Tensor:
    if facts.layout is torch.strided:
        tensor = torch.empty(0, dtype=facts.dtype, device="meta").set_(storage, facts.offset, facts.shape, facts.strides())
    else:
        tensor = torch.empty(facts.shape, dtype=facts.dtype, layout=facts.layout, device="meta")
    if facts.is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=facts.requires_grad)
    return tensor.requires_grad_(facts.requires_grad)


LITERALS = (type(None), bool, int, float, str)


class _Numbers:
    """Which slot showed a cell or a storage first, and which number comes next."""

    def __init__(self) -> None:
        self.first_of_cell: dict[int, tuple[str, int]] = {}
        self.first_of_storage: dict[int, str] = {}
        self.cell_of: dict[str, tuple[int, int]] = {}
        self.next_cell = 0
        self.next_storage = 0

    def add(self, name: str, cell: int, storage: int) -> None:
        """Note what a slot shows."""
        self.first_of_cell.setdefault(cell, (name, storage))
        self.first_of_storage.setdefault(storage, name)
        self.cell_of[name] = (cell, storage)
        self.next_cell = max(self.next_cell, cell + 1)
        self.next_storage = max(self.next_storage, storage + 1)


def print_state(state: State, *, as_numbered: bool = False) -> list[str]:
    """Return one line for each slot, in order.

    Equal states have equal lines: cells and storages are numbered as they are met, and offsets count from where the first
    tensor in a memory begins.

    Args:
        state: any state, valid or not.
        as_numbered: write the numbers and the offsets that it has.

    >>> slot = Slot(SlotKind.BUFFER, torch.zeros(2, 3), 7, 9)
    >>> print_state(State(("n", "m"), pmap({"n": slot, "m": slot})))
    ['buffer n: f32[2, 3]', 'buffer m: f32[2, 3] tied n']
    """
    unlisted = sorted(set(state.slots) - set(state.order))  # an invalid state: it can be shown, not read back
    shown = {name: state.slots[name] for name in (*state.order, *unlisted) if name in state}
    begins: Mapping[int, int] = {}
    if not as_numbered:
        shown = _renumbered(shown)
        begins = _begins(shown.values())
    numbers = _Numbers()

    def line(name: str) -> str:
        return _print_slot(name, shown[name], numbers, begins.get(shown[name].storage, 0))

    return [
        *[line(name) if name in state else f"missing {spell_path(name)}" for name in state.order],
        *[f"unlisted {line(name)}" for name in unlisted],
    ]


def print_slot(name: str, slot: Slot) -> str:
    """Return a slot by itself on one line, with the numbers of its cell and its storage.

    >>> print_slot("n", Slot(SlotKind.BUFFER, torch.zeros(2, 3), 7, 9))
    'buffer n: f32[2, 3] cell 7 storage 9'
    """
    return _print_slot(name, slot, _Numbers(), 0)


def _numbered(numbers: Sequence[int]) -> dict[int, int]:
    return {number: place for place, number in enumerate(dict.fromkeys(numbers))}


def _renumbered(slots: Mapping[str, Slot]) -> dict[str, Slot]:
    cells, storages = _numbered([slot.cell for slot in slots.values()]), _numbered([slot.storage for slot in slots.values()])
    return {name: evolve(slot, cell=cells[slot.cell], storage=storages[slot.storage]) for name, slot in slots.items()}


def _begins(slots: Iterable[Slot]) -> dict[int, int]:
    # Where the first tensor of each memory begins, in bytes, rounded down so that every offset stays whole.
    begins: dict[int, int] = {}
    widest: dict[int, int] = {}
    for slot in slots:
        begin = begin_of(slot.value)
        begins[slot.storage] = min(begin, begins.get(slot.storage, begin))
        if isinstance(slot.value, torch.Tensor):
            widest[slot.storage] = max(slot.value.element_size(), widest.get(slot.storage, 1))
    return {storage: begin // (width := widest.get(storage, 1)) * width for storage, begin in begins.items()}


def _print_slot(name: str, slot: Slot, numbers: _Numbers, begin: int) -> str:
    words = [f"{slot.kind.value} {spell_path(name)}: {_print_value(slot, begin)}"]
    owner, storage = numbers.first_of_cell.get(slot.cell, (None, numbers.next_storage))
    if owner is not None:
        words.append(f"tied {spell_path(owner)}")
    elif slot.cell != numbers.next_cell:
        words.append(f"cell {slot.cell}")
    if slot.storage != storage:
        sharer = numbers.first_of_storage.get(slot.storage)
        words.append(f"storage {slot.storage}" if sharer is None else f"shares {spell_path(sharer)}")
    if slot.persistent is not (slot.kind is not SlotKind.CONSTANT):
        words.append("persistent" if slot.persistent else "not_persistent")
    numbers.add(name, slot.cell, slot.storage)
    return " ".join(words)


def _print_value(slot: Slot, begin: int) -> str:
    value = slot.value
    if isinstance(value, torch.Tensor):
        facts = facts_of(value)
        from_first = facts.offset - begin // facts.dtype.itemsize if facts.offset else 0
        return _print_tensor(evolve(facts, offset=from_first), is_parameter=slot.kind is SlotKind.PARAMETER)
    if type(value) in LITERALS:
        return f"literal {print_arg(value)}"
    return opaque(f"{type(value).__module__}.{type(value).__qualname__}")


def _print_tensor(facts: TensorFacts, *, is_parameter: bool) -> str:
    words = [f"{print_dtype(facts.dtype)}[{', '.join(map(str, facts.shape))}]"]
    if facts.stride is not None:
        words.append(f"strides {list(facts.stride)}")
    if facts.offset:
        words.append(f"offset {facts.offset}")
    if facts.layout is not torch.strided:
        words.append(f"layout {facts.layout}")
    if facts.device != "cpu":
        words.append(f"on {quoted(facts.device)}")
    if facts.is_parameter is not is_parameter:
        words.append("parameter" if facts.is_parameter else "plain")
    if facts.requires_grad is not is_parameter:
        words.append("grad" if facts.requires_grad else "no_grad")
    return " ".join(words)


def read_state(cursor: Cursor, given: Mapping[str, Any]) -> State:
    r"""Read the slots in a block.

    Args:
        cursor: stands before ``{``.
        given: values by name of slot; the others are made on the meta device.

    Raises:
        ParseError: something else stands here, a given tensor is not what the text says, or a slot holds an object
            that is not given.
        UnsupportedProgram: torch cannot make a tensor that is not given.

    >>> read_state(Cursor("{ \n buffer n: f32[2] \n }"), {"n": torch.ones(2)})["n"].value
    tensor([1., 1.])
    """
    return _Reader(cursor, given).state()


class _Reader:
    """Reads slots; tensors that are not given are made at the end, when all that share memory are known."""

    def __init__(self, cursor: Cursor, given: Mapping[str, Any]) -> None:
        self._cursor = cursor
        self._given = given
        self._numbers = _Numbers()
        self._slots: dict[str, Slot] = {}
        self._wanted: dict[str, tuple[int, int, TensorFacts]] = {}

    def state(self) -> State:
        for _ in self._cursor.block():
            self._slot()
        for name, tensor in make_tensors(self._wanted).items():
            self._slots[name] = evolve(self._slots[name], value=tensor)
        return State(tuple(self._slots), pmap(self._slots))

    def _slot(self) -> None:
        cursor, at = self._cursor, self._cursor.start
        kind = SlotKind(cursor.take(*(kind.value for kind in SlotKind)))
        name = cursor.path("the name of a slot")
        if name in self._slots:
            raise cursor.error("a second slot of this name", at=at)
        cursor.take(":")
        value = self._value(name, kind)
        cell, storage = _read_numbers(cursor, self._numbers)
        persistent = cursor.skip("persistent") or (not cursor.skip("not_persistent") and kind is not SlotKind.CONSTANT)
        self._numbers.add(name, cell, storage)
        if isinstance(value, TensorFacts):
            self._wanted[name] = (cell, storage, value)
            value = None
        self._slots[name] = Slot(kind, value, cell, storage, persistent)

    def _value(self, name: str, slot: SlotKind) -> Any:
        cursor, at = self._cursor, self._cursor.start
        value: Any = self._given.get(name)
        if cursor.skip("literal"):
            literal = read_arg(cursor)
            return value if name in self._given else literal
        if cursor.skip("opaque"):
            cursor.take("(")
            what = cursor.string("the name of a type")
            cursor.take(")")
            if name not in self._given:
                raise cursor.error(f"a value of type {what[:80]!a} cannot be read from text: give it in `state`", at=at)
            if slot is SlotKind.MODULE and not isinstance(value, torch.nn.Module):
                raise cursor.error("the value given in `state` is not a torch.nn.Module", at=at)
            return value
        facts = _read_tensor(cursor, is_parameter=slot is SlotKind.PARAMETER)
        if name not in self._given:
            return facts
        if not facts.fits(value):
            raise cursor.error("the tensor given in `state` has another shape or dtype", at=at)
        return value


def _read_tensor(cursor: Cursor, *, is_parameter: bool) -> TensorFacts:
    dtype = read_dtype(cursor)
    shape = _read_integers(cursor)
    stride = _read_integers(cursor) if cursor.skip("strides") else None
    start = cursor.start
    if stride is not None and len(stride) != len(shape):
        raise cursor.error("as many strides as sizes are needed", at=start)
    offset = cursor.integer("an offset") if cursor.skip("offset") else 0
    layout = torch.strided
    if cursor.skip("layout"):
        layout = CONSTANTS.get(cursor.text)
        if not isinstance(layout, torch.layout):
            raise cursor.expected("a layout")
        cursor.advance()
    device = cursor.string("a device") if cursor.skip("on") else "cpu"
    parameter = True if cursor.skip("parameter") else not cursor.skip("plain") and is_parameter
    grad = True if cursor.skip("grad") else not cursor.skip("no_grad") and is_parameter
    if min((offset, *shape, *(stride or ()))) < 0 or (grad and not (dtype.is_floating_point or dtype.is_complex)):
        raise cursor.error("there is no such tensor", at=start)
    return TensorFacts(dtype, shape, stride, offset, layout, device, parameter, grad)


def _read_integers(cursor: Cursor) -> tuple[int, ...]:
    return tuple(read_list(cursor, Cursor.integer, opening="[", closing="]"))


def _read_numbers(cursor: Cursor, numbers: _Numbers) -> tuple[int, int]:
    cell, storage = numbers.next_cell, numbers.next_storage
    if cursor.skip("tied"):
        cell, storage = _read_earlier(cursor, numbers)
    elif cursor.skip("cell"):
        cell = cursor.integer("the number of a cell")
    if cursor.skip("shares"):
        storage = _read_earlier(cursor, numbers)[1]
    elif cursor.skip("storage"):
        storage = cursor.integer("the number of a storage")
    return cell, storage


def _read_earlier(cursor: Cursor, numbers: _Numbers) -> tuple[int, int]:
    at = cursor.start
    name = cursor.path("the name of a slot")
    if name not in numbers.cell_of:
        raise cursor.error("no slot of this name stands above", at=at)
    return numbers.cell_of[name]
