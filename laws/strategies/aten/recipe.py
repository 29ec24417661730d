"""``recipes``: what is drawn for an exported program, before it is built: module calls first, nodes inside, then outputs.

One idea: as in the toy tier, everything is a small number read against what is there when it is built, so that any part
can be dropped; but a node is *one* drawn number, because drawing is what a case costs most.  It knows no torch.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
from attrs import frozen

__all__ = ["CallRecipe", "ItemRecipe", "NodeRecipe", "OutputRecipe", "Recipe", "SlotRecipe", "recipes"]

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
