"""Placing: which node goes to which part.

One idea: a part runs as a whole, so a node may not be in an earlier part than any that it depends on, by value or by effect.
A node without a tag follows what it depends on: the latest part among those; one that depends on nothing tagged goes to
the first part that uses it.  Then every node is as early as it can be, and the order within a part is the original one.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ...ir.effects.dependencies import dependencies
from ...ir.errors import PartitionError
from ...ir.node import Get
from ...ir.program import Program
from .explaining import backward_edge
from .pieces import in_pieces
from .tags import TagOf, shown, wanted_tags
from .units import Units, found_units, with_units

__all__ = ["READ", "Placing", "place"]

READ = -1
"""The part of a read of state that nodes use: it is in every part that uses it."""

NONE = -1


@frozen
class Placing:
    """The parts, and the part of each node of a flat program.

    >>> Placing(("a", "b"), (0, 1)).names
    ('a', 'b')
    """

    names: tuple[str, ...]
    of: tuple[int, ...]
    """For each node the number of its part, ``READ`` for reads that follow their users."""


def place(program: Program, tags: tuple[str, ...], tag_of: TagOf, *, allow_reuse: bool = False) -> Placing:
    """Return the part of each node.

    Args:
        program: a flat program.
        tags: the parts in the order in which they run.
        tag_of: see ``split_by_tags``.
        allow_reuse: whether a tag may become several parts.

    Raises:
        PartitionError: the tags can not be had in that order, or cut what must be in one part.

    >>> from purefx.ir import Graph, Node, Op
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.rand")),))})
    >>> place(program, ("a", "b"), {"y": "b"}).of
    (1,)
    """
    wanted = wanted_tags(program, tags, tag_of)
    units = found_units(program)
    wanted = with_units(units, program.main.nodes, wanted, tags)
    before = dependencies(program, program.main)
    if allow_reuse:
        names, of = in_pieces(tags, _inherited(program, before, wanted), before)
    else:
        names, of = tags, _settled(program, tags, wanted, before, units)
    _check_units(program, units, names, of)
    users = program.main.users
    reads = [
        READ if type(node.do) is Get and node.name in users else part for node, part in zip(program.main.nodes, of, strict=True)
    ]
    return Placing(names, tuple(reads))


def _settled(
    program: Program, tags: tuple[str, ...], wanted: list[int | None], before: list[list[int]], units: Units
) -> list[int]:
    # A unit without a tag goes to the latest part among those of its nodes; what follows it may have to move then.
    while True:
        of = _placed(program, tags, wanted, before)
        moved = False
        for _, members in units:
            latest = max(of[number] for number in members)
            if any(of[number] != latest for number in members) and wanted[members[0]] is None:
                moved = True
                for number in members:
                    wanted[number] = latest
        if not moved:
            return of


def _placed(program: Program, tags: tuple[str, ...], wanted: Sequence[int | None], before: list[list[int]]) -> list[int]:
    low: list[int] = []
    for number, earlier in enumerate(before):
        tag, least = wanted[number], NONE
        for other in earlier:
            if low[other] > least:  # noqa: PLR1730  a call of `max` for each takes twice the time of all this
                least = low[other]
        if tag is not None and least > tag:
            raise PartitionError(backward_edge(program, tags, wanted, before, low, number))
        low.append(least if tag is None else tag)
    of = _from_users(low, before)
    for number, earlier in enumerate(before):
        if of[number] == NONE:  # nothing that has a part depends on it, nor on what depends on it
            of[number] = max([of[other] for other in earlier], default=0)
    return of


def _from_users(low: list[int], before: list[list[int]]) -> list[int]:
    # What depends on nothing that has a part goes to the first part that depends on it.
    of = list(low)
    first: dict[int, int] = {}
    for number in range(len(of) - 1, -1, -1):
        if of[number] == NONE:
            of[number] = first.get(number, NONE)
        for earlier in before[number] if of[number] != NONE else ():
            if low[earlier] == NONE:
                first[earlier] = min(of[number], first.get(earlier, of[number]))
    return of


def _inherited(program: Program, before: list[list[int]], wanted: Sequence[int | None]) -> list[int | None]:
    # Tags for nodes that depend on nothing tagged: those of what depends on them.
    low: list[int] = []
    for number, earlier in enumerate(before):
        tag = wanted[number]
        low.append(max([low[other] for other in earlier], default=NONE) if tag is None else tag)
    of = _from_users(low, before)
    return [
        tag if tag is not None or low[number] != NONE or of[number] == NONE or type(node.do) is Get else of[number]
        for number, (tag, node) in enumerate(zip(wanted, program.main.nodes, strict=True))
    ]


def _check_units(program: Program, units: Units, names: Sequence[str], of: Sequence[int]) -> None:
    nodes = program.main.nodes
    for what, members in units:
        first = members[0] if members else 0
        for number in members:
            if of[number] != of[first]:
                raise PartitionError(
                    f"{what} would be cut, and must be in one part: {shown(nodes[first])} goes to {names[of[first]]!r} and "
                    f"{shown(nodes[number])} to {names[of[number]]!r}; give its nodes one tag"
                )
