"""``recipes``: what is drawn for a program around a pattern, before it is built.

Small numbers choose what is simple, so that a program that breaks a law shrinks to one operator after the other.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
from attrs import frozen

__all__ = ["Hit", "Recipe", "Step", "recipes"]

FEEDS = 12
"""How many ways there are to come by an operand (``build.py``)."""

STEPS = 12
"""How many kinds of other nodes there are."""

ENDS = 6
"""How many ways there are to use what a pattern gives."""


@frozen
class Step:
    """A node beside the patterns: what it does, and to which value."""

    kind: int
    value: int


@frozen
class Hit:
    """A pattern: on which operands, where those come from, what stands between its nodes, and what becomes of its result."""

    instance: int
    feeds: tuple[int, ...]
    between: tuple[tuple[int, Step], ...]
    """After which of its nodes another node stands."""
    end: int
    changed: int
    """Which literal is another; 0 for none."""


@frozen
class Recipe:
    """All that is drawn for a program."""

    before: tuple[Step, ...]
    hits: tuple[Hit, ...]
    after: tuple[Step, ...]
    outputs: tuple[int, ...]
    place: int
    """In the root, in a body that two modules share, in a body that is called twice, in a branch."""
    sunk: bool
    dynamic: int
    """Above 1 one of the sizes of the inputs is known only when it runs: in the root alone."""
    variant: int


def _often(usual: int, others: st.SearchStrategy[int], *, of: int) -> st.SearchStrategy[int]:
    # The usual number most of the time.
    return st.integers(0, of).flatmap(lambda drawn: others if drawn == of else st.just(usual))


STEP = st.builds(Step, st.integers(0, STEPS - 1), st.integers(0, 7))

FEED = st.one_of(st.just(0), st.integers(0, FEEDS - 1), st.integers(0, FEEDS - 1))

BETWEEN = st.one_of(
    st.just(()), st.just(()), st.just(()), st.lists(st.tuples(st.integers(0, 3), STEP), min_size=1, max_size=2).map(tuple)
)


def _hits(*, changed: bool) -> st.SearchStrategy[Hit]:
    return st.builds(
        Hit,
        st.integers(0, 1 << 10),
        st.tuples(FEED, FEED, FEED, FEED),
        BETWEEN,
        _often(0, st.integers(0, ENDS - 1), of=2),
        st.integers(1, 24) if changed else st.just(0),
    )


OUTPUTS = st.one_of(st.just(()), st.lists(st.integers(0, 9), max_size=2).map(tuple))
"""Half of the time nothing else is returned: of a large pattern nearly every value is an inner one, and stays for its users."""

PLACES = st.sampled_from((0, 0, 0, 0, 0, 1, 1, 2, 3))


@cache
def recipes(*, changed: bool = False) -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    Args:
        changed: whether a literal of each pattern is another.

    >>> from hypothesis import find
    >>> found = find(recipes(), lambda recipe: True)
    >>> len(found.hits), found.hits[0].feeds, found.place
    (1, (0, 0, 0, 0), 0)
    """
    return st.builds(
        Recipe,
        st.one_of(st.just(()), st.lists(STEP, max_size=2).map(tuple)),
        st.lists(_hits(changed=changed), min_size=1, max_size=3).map(tuple),
        st.one_of(st.just(()), st.lists(STEP, max_size=3).map(tuple)),
        OUTPUTS,
        PLACES,
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 1 << 16),
    )
