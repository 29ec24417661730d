"""``recipes``: what is drawn for a module tree: calls first, the steps of each body inside, then inputs and outputs.

One idea: everything is a small number read against what is there when the text is written (an operand is "the second
latest value"), so any call or step can be dropped and the rest still is a module.  Nothing here knows torch.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
from attrs import frozen

__all__ = ["Again", "Body", "Call", "Item", "Output", "Recipe", "Region", "SlotRecipe", "Step", "recipes"]


@frozen
class Step:
    """One operation: which, and numbers that choose its operands."""

    kind: int
    first: int
    second: int


@frozen
class Region:
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
class Call:
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
class Body:
    """A class of our own: its state, its steps, and what it gives back."""

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
class Recipe:
    """All that is drawn for a module tree."""

    root: Body
    inputs: tuple[int, ...]
    """Kinds of further arguments, after ``x``."""
    outputs: tuple[Output, ...]
    sizes: int
    """0 to 2: static; 3: the first dimension is dynamic.  2: what nobody uses is left as it is; in the others most of it is
    given back or written."""
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
