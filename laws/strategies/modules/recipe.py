"""``recipes``: what is drawn for a module tree, and what its root is called with.

Calls first, the steps of each body inside, then inputs and outputs, with the dynamic dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import frozen

from ..recipe import PrintedWhole

__all__ = [
    "KINDS",
    "Again",
    "Body",
    "Call",
    "Holder",
    "InputKind",
    "Item",
    "Output",
    "Pair",
    "Recipe",
    "Region",
    "SlotRecipe",
    "Step",
    "arguments",
    "cond",
    "dynamic_shapes",
    "parameters",
    "recipes",
]


@dataclass
class Pair:
    """A dataclass that torch's pytrees know, as an input and as an output.

    >>> torch.utils._pytree.tree_leaves(Pair(1, None))
    [1]
    """

    left: Any
    right: Any


torch.export.register_dataclass(Pair)


class Holder(torch.nn.Module):
    """Holds a module and is never called itself.

    >>> list(Holder(torch.nn.ReLU()).named_modules())[1][0]
    'inner'
    """

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner


def cond(condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return what one branch gives; ``torch.cond`` while exporting, plain Python otherwise.

    Outside of an exporter ``torch.cond`` compiles both branches first, which takes longer than all the rest of a case.

    Args:
        condition: a boolean scalar tensor.
        yes: the branch taken when it holds.
        no: the other.
        operands: what the branch is given.

    >>> cond(torch.tensor(True), lambda x: x + 1, lambda x: x, (torch.ones(1),))
    tensor([2.])
    """
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return yes(*operands) if bool(condition) else no(*operands)


@frozen
class Step:
    """One operation: which, and numbers that choose its operands."""

    kind: int
    first: int
    second: int


@frozen
class Region(PrintedWhole):
    """Steps under a flag, in ``no_grad``, or in the two branches of a ``cond``."""

    kind: int
    first: int
    items: tuple[Item, ...]
    others: tuple[Step, ...]


@frozen
class Again:
    """A call of something that exists: a module called before, a new instance of its class, a module of elsewhere."""

    kind: int
    module: int
    first: int
    flag: int


@frozen
class Call(PrintedWhole):
    """The first call of a new module: how its parent holds it, what it is given, and all that is in it."""

    holder: int
    first: int
    second: int
    flag: int
    module: Body | int
    """A number is a module of ``torch.nn``."""


Item = Step | Region | Again | Call


@frozen
class SlotRecipe:
    """A piece of state: its kind, and whether it is tied to, or shares memory with, an earlier one."""

    kind: int
    sharing: int
    other: int


@frozen
class Body(PrintedWhole):
    """A class of our own: its state, its steps, and what it returns."""

    slots: tuple[SlotRecipe, ...]
    items: tuple[Item, ...]
    result: int
    extra: int
    """Whether it takes a second argument."""


@frozen
class Output:
    """An output of the root: its container or constant, and the numbers of the values in it."""

    kind: int
    first: int
    second: int


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for a module tree."""

    root: Body
    inputs: tuple[int, ...]
    """Kinds of further arguments, after ``x``."""
    outputs: tuple[Output, ...]
    sizes: int
    """0 to 2: static; 3: the first dimension is dynamic.  2: what nobody uses is left as it is; in the others most of it is
    returned or written."""
    mode: int
    """0: all in training; 1: all in evaluation; 2: only the root's children are in evaluation."""
    grads: bool
    """Whether inputs want gradients; then no value is written in place."""


SMALL = st.integers(0, 7)

STEPS = st.builds(Step, st.integers(0, 23), SMALL, SMALL)

SLOTS = st.builds(SlotRecipe, st.integers(0, 9), st.integers(0, 5), SMALL)

AGAIN = st.builds(Again, st.integers(0, 5), SMALL, SMALL, SMALL)

OUTPUTS = st.builds(Output, st.integers(0, 9), SMALL, SMALL)

SIZES = (9, 6, 4, 3)
"""The largest number of items at each depth of calls."""


@cache
def _items(depth: int, *, region: bool = False) -> st.SearchStrategy[tuple[Item, ...]]:
    kinds: list[st.SearchStrategy[Item]] = [STEPS, STEPS]
    if depth < 3:
        calls = _calls(depth)
        kinds += [calls, calls, AGAIN] if depth == 0 else [calls, AGAIN]
    if not region:
        kinds.append(_regions(depth))
    return st.lists(st.one_of(kinds), max_size=4 if region else SIZES[depth]).map(tuple)


@cache
def _calls(depth: int) -> st.SearchStrategy[Item]:
    inside = st.builds(Body, st.lists(SLOTS, max_size=4).map(tuple), _items(depth + 1), SMALL, st.integers(0, 4))
    module = st.one_of(inside, inside, st.integers(0, 11))
    return st.builds(Call, SMALL, SMALL, SMALL, SMALL, module)


@cache
def _regions(depth: int) -> st.SearchStrategy[Item]:
    return st.builds(
        Region, st.integers(0, 11), SMALL, _items(min(depth + 1, 3), region=True), st.lists(STEPS, max_size=2).map(tuple)
    )


@cache
def recipes() -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    >>> from hypothesis import find
    >>> find(recipes(), lambda recipe: len(recipe.root.items) > 0).root.items
    (Step(kind=0, first=0, second=0),)
    """
    root = st.builds(Body, st.lists(SLOTS, max_size=6).map(tuple), _items(0), st.just(0), st.just(0))
    return st.builds(
        Recipe,
        root,
        st.lists(st.integers(0, 8), max_size=3).map(tuple),
        st.lists(OUTPUTS, max_size=3).map(tuple),
        st.integers(0, 3),
        st.integers(0, 2),
        st.booleans(),
    )


Fill = Callable[..., torch.Tensor]
"""Makes a tensor of three columns, or one of the shape it is given."""


@frozen
class InputKind:
    """A kind of argument."""

    reads: tuple[str, ...]
    """The tensors of three columns in it, below its name."""
    make: Callable[[Fill], Any]
    shapes: Callable[[Any], Any]
    """What ``dynamic_shapes`` has for it, given what it has for one tensor."""
    is_keyword: bool = False
    vector: bool = False
    """Whether it is three numbers."""


KINDS = (
    InputKind(("{0}",), lambda fill: fill(), lambda rows: rows),
    InputKind(('{0}["a"]',), lambda fill: {"a": fill(), "none": None, "k": 2}, lambda rows: {"a": rows, "none": None, "k": None}),
    InputKind(("{0}[0]", "{0}[1][0]"), lambda fill: (fill(), [fill(), True]), lambda rows: (rows, [rows, None])),
    # The exporter knows a dataclass by the list of its fields that are not None.
    InputKind(("{0}.left",), lambda fill: Pair(fill(), None), lambda rows: [rows]),
    InputKind((), lambda _: 2.5, lambda _: None),
    InputKind((), lambda _: None, lambda _: None),
    InputKind(("{0}",), lambda fill: fill(), lambda rows: rows, is_keyword=True),
    InputKind(
        ('{0}["z"]', '{0}["a"].right'),
        lambda fill: {"z": fill(), "a": Pair("text", fill())},
        lambda rows: {"z": rows, "a": [None, rows]},
        is_keyword=True,
    ),
    InputKind((), lambda fill: fill(3), lambda _: None, vector=True),
)


def _ordered(inputs: tuple[int, ...]) -> list[tuple[str, InputKind]]:
    named = [(f"i{index}", KINDS[kind]) for index, kind in enumerate(inputs)]
    return sorted(named, key=lambda pair: pair[1].is_keyword)


def parameters(inputs: tuple[int, ...]) -> tuple[str, list[str], list[str]]:
    """Return the parameters of a root as text, what it reads in them, and which of them are three numbers.

    Args:
        inputs: the kinds of the arguments after ``x``.

    >>> parameters((6, 1))
    ('self, x, i1, *, i0', ['i1["a"]', 'i0'], [])
    """
    named = _ordered(inputs)
    names = ["self", "x", *[name for name, kind in named if not kind.is_keyword]]
    keywords = [name for name, kind in named if kind.is_keyword]
    reads = [read.format(name) for name, kind in named for read in kind.reads]
    return ", ".join([*names, *(["*", *keywords] if keywords else [])]), reads, [name for name, kind in named if kind.vector]


def arguments(inputs: tuple[int, ...], *, seed: int, rows: int, grads: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments for one call.

    Args:
        inputs: the kinds of the arguments after ``x``.
        seed: of the numbers in them.
        rows: the size of the first dimension.
        grads: whether tensors want gradients.

    >>> [len(part) for part in arguments((6, 1), seed=0, rows=2, grads=False)]
    [2, 1]
    """
    source = torch.Generator().manual_seed(seed)

    def fill(*shape: int) -> torch.Tensor:
        return torch.randn(shape or (rows, 3), generator=source).requires_grad_(grads)

    named = _ordered(inputs)
    positional = (fill(), *[kind.make(fill) for _, kind in named if not kind.is_keyword])
    return positional, {name: kind.make(fill) for name, kind in named if kind.is_keyword}


def dynamic_shapes(inputs: tuple[int, ...]) -> dict[str, Any]:
    """Return what the exporter is told when the first dimension of all tensors of three columns is dynamic.

    Args:
        inputs: the kinds of the arguments after ``x``.

    >>> list(dynamic_shapes((6, 1)))
    ['x', 'i1', 'i0']
    """
    rows = {0: torch.export.Dim("n", min=2, max=16)}
    return {"x": rows, **{name: kind.shapes(rows) for name, kind in _ordered(inputs)}}
