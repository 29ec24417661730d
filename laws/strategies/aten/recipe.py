"""``recipes``: what is drawn for an exported program, before it is built, and its state.

Module calls first, nodes inside, then outputs; tensors may be windows on shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from ..recipe import CallRecipe, ItemRecipe, NodeRecipe, OutputRecipe, PrintedWhole, SlotRecipe, filled, nested
from .flow import Kind, tensor_kind

__all__ = ["PATHS", "Recipe", "Window", "recipes", "windows"]

KINDS = 28
"""How many kinds of nodes there are; the same is the length of the menu."""


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for an exported program."""

    slots: tuple[SlotRecipe, ...]
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    inputs: int
    """How many there are, and their pytree."""
    style: int
    """The exporter's training IR, or functional; how it spells stacks."""
    is_dynamic: bool


def _node(number: int) -> NodeRecipe:
    rest, kind = divmod(number, KINDS)
    first, second = divmod(rest, 8)
    return NodeRecipe(kind, first, second)


def _call(head: int, items: tuple[ItemRecipe, ...]) -> CallRecipe:
    # How it is met is one number: flags of its own would keep a call from being dropped whole.
    how, module = divmod(head, 8)
    return CallRecipe(module, again=how == 4, twice=how in (2, 3), kept=False, elsewhere=how == 5, items=items)


NODES = st.integers(0, KINDS * 8 * 12 - 1).map(_node)

SLOTS = st.integers(0, 8 * 8 * 8 * 4 - 1).map(
    lambda number: SlotRecipe(number % 8, number // 8 % 8, number // 64 % 8, number // 512)
)
"""Below 4, ``sharing`` is nothing; 4 and 5: it is tied, 6 and 7: it lies in the same memory."""

OWN_CONTENTS = 9
"""The kind of outputs that are new contents of state or of an input: a quarter of them."""

OUTPUTS = st.integers(0, 12 * 12 - 1).map(lambda number: OutputRecipe(min(number % 12, OWN_CONTENTS), number // 12))

ITEMS = nested(NODES, lambda inside: st.builds(_call, st.integers(0, 8 * 6 - 1), inside), (8, 6, 4, 3))


@cache
def recipes() -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    >>> from hypothesis import find
    >>> find(recipes(), lambda recipe: len(recipe.items) > 0).items
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    return st.builds(
        Recipe,
        st.lists(SLOTS, max_size=6).map(tuple),
        ITEMS,
        filled(OUTPUTS, 6).map(tuple),
        st.integers(0, 23),
        st.integers(0, 7),
        st.integers(0, 7).map(lambda drawn: drawn == 7),
    )


PATHS = ("a", "a.c", "a.c.self", "b", "b.c", "d")
"""Modules that can be called; the call of ``a.c`` from the root leaves out ``a``."""

SHAPES: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("buffer", (4,), "n"), ("parameter", (4, 4), "w"), ("parameter", (4,), "v"), ("buffer", (), "t"),
    ("buffer", (3, 4), "m"), ("counter", (), "i"), ("unsaved", (4,), "u"), ("constant", (4,), "k"),
)  # fmt: skip

SLOT_KINDS = {
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
        return f"{SLOT_KINDS[self.role][1]}_{self.name.replace('.', '_')}"

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
        kind, _, persistent = SLOT_KINDS[self.role]
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
    order = list(SLOT_KINDS)
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
