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

from .flow import Kind, tensor_kind

__all__ = [
    "PATHS",
    "CallRecipe",
    "ItemRecipe",
    "NodeRecipe",
    "OutputRecipe",
    "Recipe",
    "SlotRecipe",
    "Window",
    "recipes",
    "windows",
]

KINDS = 28
"""How many kinds of nodes there are; the same is the length of the menu."""


@frozen
class NodeRecipe:
    """A node: which operator, and numbers that choose its operands."""

    kind: int
    first: int
    second: int

    @classmethod
    def of(cls, number: int) -> NodeRecipe:
        """Return the node that a number stands for.

        >>> NodeRecipe.of(0), NodeRecipe.of(KINDS * 8 + 3)
        (NodeRecipe(kind=0, first=0, second=0), NodeRecipe(kind=3, first=1, second=0))
        """
        rest, kind = divmod(number, KINDS)
        first, second = divmod(rest, 8)
        return cls(kind, first, second)


@frozen
class CallRecipe:
    """A module call: which module; how it is met (0: below the one at hand); what is in it."""

    module: int
    how: int
    items: tuple[ItemRecipe, ...]

    @property
    def again(self) -> bool:
        """Whether the latest call of that module is entered again instead of a new one."""
        return self.how == 4

    @property
    def twice(self) -> bool:
        """Whether another call does the same: of the same module, or of the next."""
        return self.how in (2, 3)

    @property
    def elsewhere(self) -> bool:
        """Whether the module is not below the one at hand: a closure calls it."""
        return self.how == 5


ItemRecipe = NodeRecipe | CallRecipe


@frozen
class SlotRecipe:
    """A piece of state: whose it is, its kind, whether it is tied to or shares memory with an earlier one."""

    module: int
    kind: int
    sharing: int
    """Below 4 it shares nothing, 4 and 5: it is tied, 6 and 7: it lies in the same memory."""
    other: int


@frozen
class OutputRecipe:
    """An output of the root: a value, a constant, an input, the new contents of state or of an input."""

    kind: int
    value: int


@frozen
class Recipe:
    """All that is drawn for an exported program."""

    slots: tuple[SlotRecipe, ...]
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    inputs: int
    """How many there are, and their pytree."""
    style: int
    """The exporter's training IR, or functional; how it spells stacks."""
    is_dynamic: bool


NODES = st.integers(0, KINDS * 8 * 12 - 1).map(NodeRecipe.of)

SLOTS = st.integers(0, 8 * 8 * 8 * 4 - 1).map(
    lambda number: SlotRecipe(number % 8, number // 8 % 8, number // 64 % 8, number // 512)
)

OUTPUTS = st.integers(0, 10 * 12 - 1).map(lambda number: OutputRecipe(number % 10, number // 10))

SIZES = {0: 8, 1: 6, 2: 4, 3: 3}
"""The largest number of items at each depth of calls."""


@cache
def _items(depth: int) -> st.SearchStrategy[tuple[ItemRecipe, ...]]:
    items: st.SearchStrategy[ItemRecipe] = NODES
    if depth < 3:
        heads = st.integers(0, 8 * 6 - 1)
        calls = st.builds(lambda head, inside: CallRecipe(head % 8, head // 8, inside), heads, _items(depth + 1))
        items = st.one_of(NODES, calls) if depth else st.one_of(NODES, calls, calls)
    return st.lists(items, max_size=SIZES[depth]).map(tuple)


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
        _items(0),
        st.lists(OUTPUTS, max_size=6).map(tuple),
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
