"""``Happening``: what one node does to the world, by name of value and slot.

One idea: effects are stated by argument, on the operator; here they are what they come to in one place of one graph.  How
they are found is in ``happenings.py``.
"""

from __future__ import annotations

from attrs import frozen

__all__ = ["NOTHING", "Happening", "Shared"]


@frozen
class Shared:
    """What one of several results of a call may share storage with."""

    values: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    first: int = 0
    """The first of the results that it may share storage with; its own number where there is none."""


@frozen
class Happening:
    """What one node does to the world, by name of value: resolved from its op, call or bodies."""

    writes: tuple[str, ...] = ()
    """Values whose storage it changes."""
    writes_slots: tuple[str, ...] = ()
    """State that it changes without being handed it (a call whose body reads its own state)."""
    reads_slots: tuple[str, ...] = ()
    """State that it reads without being handed it."""
    aliases: tuple[str, ...] = ()
    """Values that its result may share storage with."""
    aliases_slots: tuple[str, ...] = ()
    """State that its result may share storage with without being handed it."""
    results: tuple[Shared, ...] = ()
    """The same for each of the results of a call that gives several."""
    random: bool = False
    ordered: bool = False
    domains: tuple[tuple[str, ...], ...] = ()
    """Further domains in which it is in order: (domain,) with all of one, (domain, group) with a group; () with every one."""
    completes: tuple[str, ...] = ()
    """Values whose contents are only there when it has run."""
    scope: tuple[int, int] = (0, 0)
    """How many regions it closes that it did not open, and how many it opens and leaves open."""


NOTHING = Happening()
