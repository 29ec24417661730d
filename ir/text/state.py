"""State as text: one line per slot, with the type of its tensor but not its contents, written and read.

Tensors are read as stand-ins on the meta device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from attrs import evolve, frozen

from ..persistent import grouped
from ..signature import LiteralType
from ..state import Slot, SlotKind, State, begin_of, is_strided
from .arguments import ARG, CONSTANTS
from .lexer import Cursor, type_name
from .syntax import BY_TYPE, Syntax, choice, form, integer, listed, string, words

SHORT = {
    torch.float16: "f16", torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.complex64: "c64",
    torch.complex128: "c128", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
"""Short names of data types; others are written as torch prints them."""

DTYPES = {
    SHORT.get(value, word): value
    for word, value in CONSTANTS.items()
    if isinstance(value, torch.dtype)
}

DTYPE: Syntax[torch.dtype] = evolve(
    words("a data type such as f32", DTYPES), starts=()
)  # messages do not list all of them

INTEGERS = listed(integer("an integer"), "[]")

BY_TYPE["torch.dtype"] = lambda _: DTYPE


@frozen
class TensorFacts:
    """A strided tensor without its contents; ``stride`` is None if it is contiguous."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    device: str
    is_parameter: bool
    requires_grad: bool

    def fits(self, value: Any) -> bool:
        """Return whether a value is a tensor of this shape and dtype."""
        return (
            isinstance(value, torch.Tensor)
            and value.dtype is self.dtype
            and tuple(value.shape) == self.shape
        )

    def strides(self) -> tuple[int, ...]:
        """Return the strides; those of a contiguous tensor if none are written."""
        return usual_stride(self.shape) if self.stride is None else self.stride

    def bytes_needed(self) -> int:
        """Return the number of bytes from the start of the storage to the end of the tensor."""
        reach = sum(
            (size - 1) * step for size, step in zip(self.shape, self.strides(), strict=True)
        )
        return (self.offset + (reach + 1 if 0 not in self.shape else 0)) * self.dtype.itemsize

    def behind(self, begin: int) -> TensorFacts:
        """Return the tensor with its offset counted from ``begin`` bytes earlier."""
        return evolve(self, offset=self.offset + begin // self.dtype.itemsize) if begin else self

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return a tensor in a storage.

        >>> facts_of(torch.ones(2)).on(torch.ones(2).untyped_storage())
        tensor([1., 1.])
        """
        tensor = torch.empty(0, dtype=self.dtype, device=storage.device).set_(
            storage, self.offset, self.shape, self.strides()
        )
        if self.is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=self.requires_grad)
        return tensor.requires_grad_(self.requires_grad)


@lru_cache(maxsize=1024)
def usual_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor.

    >>> usual_stride((2, 3, 4))
    (12, 4, 1)
    """
    return torch.empty(shape, device="meta").stride()


def facts_of(tensor: torch.Tensor) -> TensorFacts:
    """Return the facts of a strided tensor.

    >>> facts_of(torch.ones(2, 3)).shape, facts_of(torch.ones(2, 3).t()).stride
    ((2, 3), (1, 3))
    """
    shape, stride = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    return TensorFacts(
        tensor.dtype,
        shape,
        None if stride == usual_stride(shape) else stride,
        int(tensor.storage_offset()),
        str(tensor.device),
        isinstance(tensor, torch.nn.Parameter),
        tensor.requires_grad,
    )


LITERALS = (type(None), bool, int, float, str)


def _tensor(*, is_parameter: bool) -> Syntax[TensorFacts]:
    text = (
        "{dtype}{shape}[ strides {stride}][ offset {offset}][ on {device}]"
        "{is_parameter?parameter/plain}{requires_grad?grad/no_grad}"
    )
    usual = {
        "offset": 0,
        "device": "cpu",
        "is_parameter": is_parameter,
        "requires_grad": is_parameter,
    }
    return form(TensorFacts, text, usual, shape=INTEGERS, stride=INTEGERS)


@frozen
class Opaque:
    """A value without a text form: the name of its type."""

    type: str


LITERAL = form(LiteralType, "literal {value}", value=ARG)

OPAQUE = form(Opaque, "opaque({type})", type=string("the name of a type"))


@frozen
class Line:
    """The line of a slot."""

    kind: SlotKind
    name: str
    value: TensorFacts | LiteralType | Opaque
    tied: str | None
    """The first earlier slot that is the same tensor, if any."""
    shares: str | None
    """The first earlier slot with the same memory, if it is not that of the tied one."""
    persistent: bool


LINES = {
    kind: form(
        Line,
        "{kind} {name}: {value}[ tied {tied}][ shares {shares}]{persistent?persistent/not_persistent}",
        {"persistent": kind is not SlotKind.CONSTANT},
        kind=words(f"'{kind.value}'", {kind.value: kind}),
        value=choice(LITERAL, OPAQUE, _tensor(is_parameter=kind is SlotKind.PARAMETER)),
    )
    for kind in SlotKind
}

LINE = choice(*LINES.values())


def print_state(state: State) -> list[str]:
    """Return one line for each slot, in order.

    Equal states have equal lines: a tie is written as the name of the first tied slot, and offsets count from the first
    tensor in a memory.

    Args:
        state: any state whose order names its slots.

    >>> slot = Slot(SlotKind.BUFFER, torch.zeros(2, 3), 7, 9)
    >>> print_state(State.of({"n": slot, "m": slot}))
    ['buffer n: f32[2, 3]', 'buffer m: f32[2, 3] tied n']
    """
    begins = memory_begins(state.slots.values())
    cells: dict[int, str] = {}
    storages: dict[int, str] = {}
    lines: list[str] = []
    for name, slot in state.pairs:
        tied, shares = cells.setdefault(slot.cell, name), storages.setdefault(slot.storage, name)
        is_new = shares == name or (tied != name and state.slots[tied].storage == slot.storage)
        value = _without_contents(slot.value, begins.get(slot.storage, 0))
        line = Line(
            slot.kind,
            name,
            value,
            None if tied == name else tied,
            None if is_new else shares,
            slot.persistent,
        )
        lines.append(LINES[slot.kind].write(line))
    return lines


def memory_begins(slots: Collection[Slot]) -> dict[int, int]:
    """Return the byte at which the first tensor of each storage begins, where it is not 0.

    It is rounded down, so that every offset from there is a whole number of elements.

    >>> memory_begins([Slot(SlotKind.BUFFER, torch.zeros(4)[2:], 0, 0)])
    {0: 8}
    """
    begins: dict[int, int] = {}
    for storage, values in grouped([(slot.storage, slot.value) for slot in slots]).items():
        if begin := min(map(begin_of, values)):
            widest = max([value.element_size() for value in values])
            begins[storage] = begin // widest * widest
    return begins


def _without_contents(value: Any, begin: int) -> TensorFacts | LiteralType | Opaque:
    if is_strided(value) and not value.is_nested:
        facts = facts_of(value)
        return facts.behind(-begin) if facts.offset else facts
    return LiteralType(value) if type(value) in LITERALS else Opaque(type_name(type(value)))


def read_state(cursor: Cursor) -> State:
    r"""Read the slots in a block, with the values in ``cursor.known``; missing tensors are made on the meta device.

    Raises:
        ParseError: the text is not a state, a passed tensor does not fit the text, the object of a slot is missing, or torch
            cannot make a missing tensor.

    >>> from purefx.ir.text.lexer import Known
    >>> read_state(Cursor("{ \n buffer n: f32[2] \n }", Known(state={"n": torch.ones(2)})))["n"].value
    tensor([1., 1.])
    """
    slots: dict[str, Slot] = {}
    memories: dict[int, Any] = defaultdict(
        lambda: torch.empty(0, dtype=torch.uint8, device="meta").untyped_storage()
    )
    cells, storages = count(), count()
    for _ in cursor.block():
        at = cursor.start
        line = LINE.read(cursor)
        if line.name in slots:
            raise cursor.error("a second slot of this name", at=at)
        if any(name is not None and name not in slots for name in (line.tied, line.shares)):
            raise cursor.error("no earlier slot has this name", at=at)
        tied = None if line.tied is None else slots[line.tied]
        memory = tied if line.shares is None else slots[line.shares]
        storage = next(storages) if memory is None else memory.storage
        try:
            if (
                isinstance(line.value, TensorFacts)
                and tied is not None
                and line.name not in cursor.known.state
            ):
                value = tied.value
            else:
                value = _value(line, cursor.known.state, memories, storage)
        except (RuntimeError, TypeError, ValueError) as error:
            raise cursor.error(str(error).split("\n")[0], at=at) from None
        slots[line.name] = Slot(
            line.kind, value, next(cells) if tied is None else tied.cell, storage, line.persistent
        )
    return State.of(slots)


def _value(
    line: Line,
    passed: Mapping[str, Any],
    memories: Mapping[int, torch.UntypedStorage],
    storage: int,
) -> Any:
    """Return the passed value of a slot, or the written one: for a tensor, a stand-in on the meta device."""
    name, written = line.name, line.value
    if isinstance(written, LiteralType):
        return passed.get(name, written.value)
    if isinstance(written, Opaque):
        if name not in passed:
            raise ValueError(
                f"a value of type {written.type[:80]!a} cannot be read from text: pass it in `state`"
            )
        if line.kind is SlotKind.MODULE and not isinstance(passed[name], torch.nn.Module):
            raise ValueError("the value passed in `state` is not a torch.nn.Module")
    elif name not in passed:
        if min((0, *written.strides())) < 0:
            raise ValueError("a tensor has no negative strides")
        return written.on(memories[storage])
    elif not written.fits(passed[name]):
        raise ValueError("the tensor passed in `state` has another shape or dtype")
    return passed[name]
