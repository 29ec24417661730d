"""``recipes``: what is drawn for a toy program, and strategies of it; ``build.py`` makes the flat program.

Module calls are drawn first, nodes inside, then outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import hypothesis.strategies as st
from attrs import frozen

Drawn = TypeVar("Drawn")

__all__ = [
    "CallRecipe", "ItemRecipe", "NodeRecipe", "OutputRecipe", "PrintedWhole", "Recipe", "SlotRecipe",
    "filled", "nested", "recipes",
]  # fmt: skip


class PrintedWhole:
    """Prints as its ``repr`` says.

    Hypothesis shows a value by the calls that built it, each of which prints its operands four times to choose a layout: what is
    nested eight deep would take hours, after the test has failed.
    """

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  the name and the operands are IPython's
        printer.text("..." if cycle else repr(self))


@frozen
class NodeRecipe:
    """A node: which operator, and numbers that choose its operands."""

    kind: int
    first: int
    second: int


@frozen
class CallRecipe(PrintedWhole):
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
    is_input: bool = True


@frozen
class OutputRecipe:
    """An output of the root: a value, a constant, the new contents of state or of an input."""

    kind: int
    value: int
    target: int = 0


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for a flat program."""

    slots: tuple[SlotRecipe, ...]
    inputs: int
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    order: int
    """0 leaves the nodes of each call side by side; others seed a legal reordering."""
    swarm: int = 0
    """Which kinds of nodes it may have; 0 is all of them."""


SMALL = st.integers(0, 7)

KINDS = st.integers(0, 15)

# Hypothesis drops at most five numbers at a time (its `node_program("X" * 5)`), and the list and the choice of an item take
# two of them: what takes more is never dropped whole, and the smallest program found is not small.  So flags share a number.
NODES = st.builds(NodeRecipe, KINDS, st.integers(0, 11), SMALL)

FLAGS = st.integers(0, 4**4 - 1)
"""Four flags, each rare."""

SLOTS = st.builds(
    lambda module, kind, sharing, other: SlotRecipe(module, kind % 3, sharing, other, is_input=kind // 3 != 3),
    SMALL, st.integers(0, 11), st.integers(0, 4), SMALL,
)  # fmt: skip

SWARMS = st.integers(0, 119).map(lambda drawn: drawn - 104 if drawn > 104 else 0)
"""Which kinds of nodes a program may have: 0, in seven of eight, is all of them; what three divides leaves out what acts.

Programs that have everything seldom have two of anything near each other, and where all may act a pass has nothing to do."""

OUTPUTS = st.builds(OutputRecipe, st.integers(0, 6), st.integers(0, 11), SMALL)


def _call(module: int, flags: int, items: tuple[ItemRecipe, ...]) -> CallRecipe:
    again, twice, kept, elsewhere = (flags // 4**place % 4 == 3 for place in range(4))
    return CallRecipe(module, again, twice, kept, elsewhere, items)


def nested(
    nodes: st.SearchStrategy[NodeRecipe],
    calls: Callable[[st.SearchStrategy[tuple[ItemRecipe, ...]]], st.SearchStrategy[CallRecipe]],
    sizes: Sequence[int],
) -> st.SearchStrategy[tuple[ItemRecipe, ...]]:
    """Return a strategy of nodes and calls in any order, at the root twice as many calls.

    Args:
        nodes: what stands in a call.
        calls: makes the strategy of calls of that of the items inside.
        sizes: the largest number of items at each depth of calls; at the last there are nodes only.

    >>> from hypothesis import find
    >>> find(nested(NODES, lambda inside: st.builds(_call, SMALL, FLAGS, inside), (2, 1)), lambda items: len(items) > 0)
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    found = st.lists(nodes, max_size=sizes[-1]).map(tuple)
    for depth in reversed(range(1, len(sizes) - 1)):
        found = st.lists(st.one_of(nodes, calls(found)), max_size=sizes[depth]).map(tuple)
    call = calls(found)
    return filled(st.one_of(nodes, call, call), sizes[0]).map(tuple)


def filled(parts: st.SearchStrategy[Drawn], size: int) -> st.SearchStrategy[list[Drawn]]:
    """Return a strategy of lists that are at least half full as often as not: by itself one in three has an element or none.

    Args:
        parts: the elements.
        size: the most of them.

    >>> from hypothesis import find
    >>> find(filled(st.just(1), 4), lambda found: len(found) > 2), find(filled(st.just(1), 4), lambda found: True)
    ([1, 1, 1], [])
    """
    return st.one_of(st.lists(parts, max_size=size), st.lists(parts, min_size=size // 2, max_size=size))


ITEMS = nested(NODES, lambda inside: st.builds(_call, SMALL, FLAGS, inside), (10, 8, 5, 3))


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
        ITEMS,
        filled(OUTPUTS, 6).map(tuple),
        st.one_of(st.just(0), st.integers(1, 1 << 16)),
        SWARMS,
    )
