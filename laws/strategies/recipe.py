"""``recipes``: what is drawn for a program, before it is built: module calls first, nodes inside, then outputs.

One idea: everything is a small number read against what is there when it is built (an operand is "the third latest
value"), so any part can be dropped and the rest still is a program; hypothesis shrinks by dropping calls with all that
is in them.  Nothing here knows the values of ``purefx.ir``.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
from attrs import frozen

__all__ = ["CallRecipe", "ItemRecipe", "NodeRecipe", "OutputRecipe", "Recipe", "SlotRecipe", "recipes"]


@frozen
class NodeRecipe:
    """A node: which operator, and numbers that choose its operands."""

    kind: int
    first: int
    second: int


@frozen
class CallRecipe:
    """A module call: which module below the one at hand; a new call, or one that was left and is entered again."""

    module: int
    again: bool
    twice: bool
    """Whether another call does the same: of the same module, or of the next."""
    kept: bool
    """Whether its call signature is preserved; such a call is never entered again."""
    elsewhere: bool
    """Whether the module may be any, and not only one below the one at hand."""
    items: tuple[ItemRecipe, ...]


ItemRecipe = NodeRecipe | CallRecipe


@frozen
class SlotRecipe:
    """A piece of state: whose it is, its kind, whether it is tied to or shares memory with an earlier one, whether read."""

    module: int
    kind: int
    sharing: int
    other: int
    is_input: bool


@frozen
class OutputRecipe:
    """An output of the root: a value, a constant, the new contents of state or of an input."""

    kind: int
    value: int
    target: int


@frozen
class Recipe:
    """All that is drawn for a flat program."""

    slots: tuple[SlotRecipe, ...]
    inputs: int
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    order: int
    """0 leaves the nodes of each call side by side; others seed a legal reordering."""


SMALL = st.integers(0, 7)

KINDS = st.integers(0, 14)

# Hypothesis drops at most five numbers at a time (its `node_program("X" * 5)`), and the list and the choice of an item take
# two of them: what takes more is never dropped whole, and the smallest program found is not small.  So flags share a number.
NODES = st.builds(NodeRecipe, KINDS, st.integers(0, 11), SMALL)

FLAGS = st.integers(0, 4**4 - 1)
"""Four flags, each rare."""

SLOTS = st.builds(
    lambda module, kind, sharing, other: SlotRecipe(module, kind % 3, sharing, other, is_input=kind // 3 != 3),
    SMALL, st.integers(0, 11), st.integers(0, 4), SMALL,
)  # fmt: skip

OUTPUTS = st.builds(OutputRecipe, st.integers(0, 6), st.integers(0, 11), SMALL)

SIZES = {0: 10, 1: 8, 2: 5, 3: 3}
"""The largest number of items at each depth of calls."""


def _call(module: int, flags: int, items: tuple[ItemRecipe, ...]) -> CallRecipe:
    again, twice, kept, elsewhere = (flags // 4**place % 4 == 3 for place in range(4))
    return CallRecipe(module, again, twice, kept, elsewhere, items)


@cache
def _items(depth: int) -> st.SearchStrategy[tuple[ItemRecipe, ...]]:
    items: st.SearchStrategy[ItemRecipe] = NODES
    if depth < 3:
        calls = st.builds(_call, SMALL, FLAGS, _items(depth + 1))
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
        st.lists(SLOTS, max_size=4).map(tuple),
        st.integers(1, 2),
        _items(0),
        st.lists(OUTPUTS, max_size=6).map(tuple),
        st.one_of(st.just(0), st.integers(1, 1 << 16)),
    )
