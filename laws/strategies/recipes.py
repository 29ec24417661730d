"""Recipes: drawn numbers that every tier converts to programs of its operators.

A recipe also determines the state, the inputs and the module calls of its program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import hypothesis.strategies as st
import torch
from attrs import evolve, field, frozen
from torch.export.graph_signature import InputKind

from ...ir.expression import Sym
from ...ir.inference import ASSUMED
from ...ir.names import is_below, last_name
from ...ir.torch_private import pytree, symbolic_range
from .flow import Frames, Kind, number_kind, size, tensor_kind

Drawn = TypeVar("Drawn")

KINDS = 24
"""The number of kinds of nodes: the length of each menu."""


class PrintedWhole:
    """Prints as its ``repr``.

    Hypothesis prints a value as nested calls and prints the operands of each four times to choose a layout: for values with a
    depth of eight, that would take hours.
    """

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  IPython's signature
        printer.text("..." if cycle else repr(self))


@frozen
class NodeRecipe:
    """A node: an entry of the menu, and numbers that select its operands."""

    kind: int
    first: int
    second: int


TWICE, AGAIN, ELSEWHERE, PRESERVED = (2, 3, 7), 4, 5, (6, 7)
"""The style of a call: twice, entered again, from outside its parent module, or with a preserved
signature."""


@frozen
class CallRecipe(PrintedWhole):
    """A call of a module below the current one."""

    module: int
    how: int
    items: tuple[ItemRecipe, ...]


ItemRecipe = NodeRecipe | CallRecipe


@frozen
class SlotRecipe:
    """A piece of state: its module, its kind, and whether it is tied to an earlier one or shares memory with it."""

    module: int
    kind: int
    sharing: int
    other: int


@frozen
class OutputRecipe:
    """An output of the root: a value, a constant, the new contents of state or of an input."""

    kind: int
    value: int


@frozen
class Recipe(PrintedWhole):
    """All drawn numbers of a program."""

    slots: tuple[SlotRecipe, ...]
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    inputs: int
    """The number of inputs, and their pytree."""
    style: int
    """Training IR or functional; the format of stacks."""
    is_dynamic: bool

    @property
    def smallest(self) -> int:
        """The lower bound of the dynamic size: 0, 1 or 2."""
        return (2, 1, 2, 0)[self.inputs // 6 % 4] if self.is_dynamic else ASSUMED

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dynamic size in each call; the first is that of the export, so at least 2."""
        return SIZES if self.smallest == ASSUMED else (5, *range(self.smallest, 4))


SIZES = (2, 4, 6)
"""The dynamic size in each call, where its range starts at 2."""


def _node(number: int) -> NodeRecipe:
    rest, kind = divmod(number, KINDS)
    first, second = divmod(rest, 8)
    return NodeRecipe(kind, first, second)


# Hypothesis drops at most five numbers at a time, including two for the list and the choice of an item.  To drop whole items,
# a node is one number, and so are the module and the style of a call.
NODES = st.integers(0, KINDS * 8 * 12 - 1).map(_node)

SLOTS = st.integers(0, 8 * 8 * 8 * 4 - 1).map(
    lambda number: SlotRecipe(number % 8, number // 8 % 8, number // 64 % 8, number // 512)
)
"""Below 4, ``sharing`` has no effect; at 4 and 5 the slot is tied, at 6 and 7 it shares memory."""

OWN_CONTENTS = 9
"""The kind of outputs that are new contents of state or of an input (a quarter of all)."""

OUTPUTS = st.integers(0, 12 * 12 - 1).map(
    lambda number: OutputRecipe(min(number % 12, OWN_CONTENTS), number // 12)
)


def _calls(inside: st.SearchStrategy[tuple[ItemRecipe, ...]]) -> st.SearchStrategy[CallRecipe]:
    return st.builds(
        lambda head, items: CallRecipe(head % 8, head // 8, items),
        st.integers(0, 8 * 8 - 1),
        inside,
    )


def _items(sizes: Sequence[int]) -> st.SearchStrategy[tuple[ItemRecipe, ...]]:
    # Nodes and calls in any order, with twice as many calls at the root, and only nodes at the last depth.
    found = st.lists(NODES, max_size=sizes[-1]).map(tuple)
    for depth in reversed(range(1, len(sizes) - 1)):
        found = st.lists(st.one_of(NODES, _calls(found)), max_size=sizes[depth]).map(tuple)
    call = _calls(found)
    return _filled(st.one_of(NODES, call, call), sizes[0]).map(tuple)


def _filled(parts: st.SearchStrategy[Drawn], length: int) -> st.SearchStrategy[list[Drawn]]:
    # Half of the lists are at least half full; a third of those of `st.lists` would have at most one element.
    return st.one_of(
        st.lists(parts, max_size=length), st.lists(parts, min_size=length // 2, max_size=length)
    )


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
        _items((8, 6, 4, 3)),
        _filled(OUTPUTS, 6).map(tuple),
        st.integers(0, 23),
        st.integers(0, 7),
        st.integers(0, 7).map(lambda drawn: drawn == 7),
    )


# -- state -----------------------------------------------------------------------------------------------------------------------


PATHS = ("a", "a.c", "a.c.self", "b", "b.c", "d")
"""The callable modules; the call of ``a.c`` from the root skips ``a``."""

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
    """A piece of state: its name, its role, and its part of a memory."""

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
    def is_writable(self) -> bool:
        """Whether programs write it."""
        return self.role not in ("parameter", "constant")

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor; equal windows have the same object."""
        return _tensor(self.memory, self.offset, self.shape, self.role)

    @property
    def kind(self) -> Kind:
        """Its fake value in the export."""
        return tensor_kind(self.tensor.dtype, *self.shape, requires_grad=self.tensor.requires_grad)


@cache
def _memory(number: int, is_counter: bool) -> torch.Tensor:  # noqa: FBT001  a key of the cache
    return torch.tensor([number]) if is_counter else torch.linspace(-1.0, 1.0, 16) + number / 8


@cache
def _tensor(memory: int, offset: int, shape: tuple[int, ...], role: str) -> torch.Tensor:
    found = _memory(memory, role == "counter")[offset : offset + torch.Size(shape).numel()].view(
        shape
    )
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
    return sorted(
        found.values(),
        key=lambda window: min(order.index(window.role), 1 + (window.role == "constant")),
    )


def _drawn(index: int, slot: SlotRecipe, before: list[Window]) -> Iterator[Window]:
    paths = ("", *PATHS)
    place = slot.module % len(paths)
    role, shape, letter = SHAPES[slot.kind]
    window = Window(_name(paths[place], letter), role, shape, index)
    other = before[slot.other % len(before)] if before else None
    if other is not None and slot.sharing in (4, 5):
        window = evolve(
            other,
            name=_name(paths[place], last_name(other.name) + ("t" if place == 0 else "")),
        )
    elif (
        other is not None
        and slot.sharing > 5
        and "counter" not in (role, other.role)
        and len(shape) < 2
    ):
        window = evolve(window, memory=other.memory, offset=(1, 2, 5)[slot.other % 3])
    yield window
    sibling = {"a.c": "b.c", "a": "b", "b": "a", "b.c": "a.c"}.get(paths[place])
    if slot.sharing in (1, 2) and sibling:  # so that calls of both can have equal bodies
        yield evolve(window, name=_name(sibling, letter), memory=index + 8)


def _name(path: str, letter: str) -> str:
    return f"{path}.{letter}" if path else letter


# -- calls -----------------------------------------------------------------------------------------------------------------------


@frozen
class Visit:
    """A call of a module: the calls around it, itself last, and its contents."""

    frames: Frames
    items: tuple[NodeRecipe | Visit, ...]
    number: int = 0
    """The drawn number of its module."""
    is_preserved: bool = False


def visits(
    items: Sequence[ItemRecipe], paths: Sequence[str] = PATHS
) -> tuple[NodeRecipe | Visit, ...]:
    """Return the items of a recipe, each call with its module.

    >>> [visit.frames for visit in visits([CallRecipe(1, 2, ())])]
    [(('a.c', 0),), (('a.c.self', 0),)]
    """
    calls, left = Counter[str](), dict[tuple[Frames, str], tuple[str, int]]()

    def entered(call: CallRecipe, frames: Frames, shift: int) -> Frames:
        within = f"{frames[-1][0]}." if frames and call.how != ELSEWHERE else ""
        # A strict export shows a module that is called inside itself as entered before.
        around = [inner for inner, _ in frames]
        below = [
            path
            for path in paths
            if path.startswith(within) and not any(is_below(inner, path) for inner in around)
        ]
        if not below:
            return frames
        path = below[(call.module + shift) % len(below)]
        frame = left.get((frames, path)) if call.how == AGAIN else None
        if frame is None:
            frame = (path, calls[path])
            calls[path] += 1
        if call.how not in PRESERVED:
            left[frames, path] = frame
        return (*frames, frame)

    def resolved(items: Sequence[ItemRecipe], frames: Frames) -> Iterator[NodeRecipe | Visit]:
        for item in items:
            if type(item) is NodeRecipe:
                yield item
            elif type(item) is CallRecipe:
                for number, shift in enumerate((0, item.module % 2) if item.how in TWICE else (0,)):
                    inside = entered(item, frames, shift)
                    items = _varied(item.items) if number and item.module % 3 == 2 else item.items
                    yield Visit(
                        inside, tuple(resolved(items, inside)), item.module, item.how in PRESERVED
                    )

    return tuple(resolved(items, ()))


def _varied(items: tuple[ItemRecipe, ...]) -> tuple[ItemRecipe, ...]:
    # Almost equal bodies must not be merged.
    *before, last = items or (NodeRecipe(0, 0, 0),)
    return (
        *before,
        evolve(last, second=(last.second + 1) % 8) if type(last) is NodeRecipe else last,
    )


# -- inputs and outputs ----------------------------------------------------------------------------------------------------------


LITERALS = (None, 2, True, "text", 0.5)
"""Inputs and outputs that are not tensors."""


@frozen(eq=False)
class Users:
    """The user inputs of a program."""

    leaves: tuple[tuple[str, Kind], ...]
    in_spec: Any = field(repr=False)
    names: tuple[str, ...]
    """The argument names of the original ``forward``."""

    def calls(self, sizes: Sequence[int] = SIZES) -> tuple[tuple[Any, ...], ...]:
        """Return the leaves of several calls.

        Args:
            sizes: the dynamic size in each call.
        """
        kinds = [kind for _, kind in self.leaves]
        return tuple(
            [
                tuple([_leaf(kind, call, size, index) for index, kind in enumerate(kinds)])
                for call, size in enumerate(sizes)
            ]
        )


def _leaf(kind: Kind, call: int, size: int, index: int) -> Any:
    if kind.dtype is None:
        return kind.val
    sizes = [int(dim) if dim.isdigit() else size for dim in kind.dims]
    numbers = torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).reshape(sizes)
    return torch.sin(numbers * (1 + call) + index).to(kind.dtype)


@cache
def ranges(smallest: int = ASSUMED) -> dict[Any, Any]:
    """Return the range of the dynamic size."""
    found = symbolic_range(Sym(str(size())), smallest, 8)
    return dict([found]) if found else {}


@cache
def users(number: int, *, is_dynamic: bool) -> Users:
    """Return the user inputs with a number.

    >>> users(0, is_dynamic=False).names, [name for name, _ in users(2, is_dynamic=False).leaves]
    (('x',), ['x', 'y_q'])
    """
    a = number_kind(LITERALS[number // 6])
    x, y, s = (
        tensor_kind(torch.float32, *sizes) for sizes in ((size() if is_dynamic else 3, 4), (4,), ())
    )
    forms: tuple[tuple[tuple[str, ...], list[tuple[str, Kind]], Any], ...] = (
        (("x",), [("x", x)], ((0,), {})),
        (("x", "y"), [("x", x), ("y", y)], ((0, 0), {})),
        (("x", "y"), [("x", x), ("y_q", y)], ((0, {"q": 0}), {})),
        (("x", "flag", "z"), [("x", x), ("flag", a), ("z", y)], ((0, 0), {"z": 0})),
        (("xs",), [("xs_0", x), ("xs_1", s), ("xs_2_0", y)], (([0, 0, (0,)],), {})),
        (
            ("x", "o"),
            [("x", x), ("o_p", y), ("o_q", a), ("o_r", s)],
            ((0,), {"o": {"p": 0, "q": 0, "r": 0}}),
        ),
    )
    names, leaves, tree = forms[number % len(forms)]
    return Users(tuple(leaves), pytree.tree_structure(tree), names)


def tree_of(count: int, form: int) -> Any:
    """Return one of the pytrees of some results."""
    if count == 1 and form % 2 == 0:
        return pytree.tree_structure(0)
    forms: tuple[Any, ...] = (
        tuple(range(count)), list(range(count)), {f"k{index}": index for index in range(count)},
        ({"a": 0}, [*range(count - 1)]), [{"a": [(0,)], "b": {f"k{index}": index for index in range(count - 1)}}],
    )  # fmt: skip
    return pytree.tree_structure(forms[form // 2 % len(forms)])
