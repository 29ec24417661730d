"""The state of a drawn program: tensors with their windows on shared memory, and how the exporter lists them.

One idea: programs share the tensors, because nothing ever writes to the state of an exported program; a slot is a window
on one of a few memories, so tied slots show one tensor, and others overlap in part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from .kinds import Kind, tensor_kind
from .recipe import SlotRecipe

__all__ = ["PATHS", "Window", "windows"]

PATHS = ("a", "a.c", "a.c.self", "b", "b.c", "d")
"""Modules that can be called; the call of ``a.c`` from the root leaves out ``a``."""

SHAPES: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("buffer", (4,), "n"), ("parameter", (4, 4), "w"), ("parameter", (4,), "v"), ("buffer", (), "t"),
    ("buffer", (3, 4), "m"), ("counter", (), "i"), ("unsaved", (4,), "u"), ("constant", (4,), "k"),
)  # fmt: skip

KINDS = {
    "parameter": (InputKind.PARAMETER, "p", None), "buffer": (InputKind.BUFFER, "b", True),
    "counter": (InputKind.BUFFER, "b", True), "unsaved": (InputKind.BUFFER, "b", False),
    "constant": (InputKind.CONSTANT_TENSOR, "c", None),
}  # fmt: skip


@frozen
class Window:
    """A piece of state: its name, what it is, and which part of which memory it shows."""

    name: str
    role: str
    shape: tuple[int, ...]
    memory: int
    offset: int = 0

    @property
    def is_saved(self) -> bool:
        """Whether it is in the ``state_dict``."""
        return self.role not in ("unsaved", "constant")

    @property
    def placeholder(self) -> str:
        """The name of the input that it is lifted to."""
        return f"{KINDS[self.role][1]}_{self.name.replace('.', '_')}"

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor itself, the same object for the same window."""
        return _tensor(self.memory, self.offset, self.shape, self.role)

    @property
    def kind(self) -> Kind:
        """Its fake value, as the exporter would have it."""
        return tensor_kind(self.tensor.dtype, *self.shape, requires_grad=self.tensor.requires_grad)

    @property
    def spec(self) -> InputSpec:
        """How the signature tells it."""
        kind, _, persistent = KINDS[self.role]
        return InputSpec(kind, TensorArgument(self.placeholder), self.name, persistent)


@cache
def _memory(number: int, role: str) -> torch.Tensor:
    if role == "counter":
        return torch.tensor([number])
    return torch.linspace(-1.0, 1.0, 16) + number / 8


@cache
def _tensor(memory: int, offset: int, shape: tuple[int, ...], role: str) -> torch.Tensor:
    count = 1
    for size in shape:
        count *= size
    found = _memory(memory, "counter" if role == "counter" else "")[offset : offset + count].view(shape)
    return torch.nn.Parameter(found) if role == "parameter" else found


def windows(slots: Sequence[SlotRecipe]) -> list[Window]:
    """Return the state of a recipe, in the exporter's order: parameters, buffers, constants.

    >>> [window.name for window in windows([SlotRecipe(0, 0, 0, 0), SlotRecipe(1, 1, 0, 0)])]
    ['a.w', 'n']
    """
    found: dict[str, Window] = {}
    for index, slot in enumerate(slots):
        for window in _drawn(index, slot, [*found.values()]):
            found.setdefault(window.name, window)
    order = list(KINDS)
    return sorted(found.values(), key=lambda window: min(order.index(window.role), 1 + (window.role == "constant")))


def _drawn(index: int, slot: SlotRecipe, before: list[Window]) -> Iterator[Window]:
    paths = ("", *PATHS)
    place = slot.module % len(paths)
    role, shape, letter = SHAPES[slot.kind]
    window = Window(_name(paths[place], letter), role, shape, index)
    other = before[slot.other % len(before)] if before else None
    if other is not None and slot.sharing in (4, 5):
        window = evolve(other, name=_name(paths[place], other.name.rpartition(".")[2] + ("t" if place == 0 else "")))
    elif other is not None and slot.sharing > 5 and "counter" not in (role, other.role) and len(shape) < 2:
        window = evolve(window, memory=other.memory, offset=(1, 2, 5)[slot.other % 3])
    yield window
    if slot.sharing in (1, 2):
        # Its sibling has state of the same name, so that calls of the two can have equal bodies.
        sibling = {"a.c": "b.c", "a": "b", "b": "a", "b.c": "a.c"}.get(paths[place])
        if sibling:
            yield evolve(window, name=_name(sibling, letter), memory=index + 8)


def _name(path: str, letter: str) -> str:
    return f"{path}.{letter}" if path else letter


def split(state: Sequence[Window]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``state_dict`` and the ``constants`` of an exported program."""
    saved = {window.name: window.tensor for window in state if window.is_saved}
    return saved, {window.name: window.tensor for window in state if not window.is_saved}
