"""Placement: which node goes to which part.

Nodes that must be in one part form a unit, whatever their tags.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ...ir.effects.dependencies import dependencies
from ...ir.errors import PartitionError
from ...ir.graph import Get, Node, Op, Stack
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from .tags import TagOf, backward_edge, shown, wanted_tags

__all__ = ["READ", "Placing", "found_units", "place"]

Units = list[tuple[str, list[int]]]
"""What each unit is, in words, and the numbers of its nodes."""


def found_units(program: Program) -> Units:
    """Return the regions and the preserved calls of a flat program, outermost ones; reads of state are in none, others in one.

    Args:
        program: a flat program.

    >>> from purefx.ir import Graph
    >>> found_units(Program.of({"": Graph((), ())}))
    []
    """
    nodes = program.main.nodes
    units = _regions(nodes) if any(type(node.do) is Op and node.do.effects.scope for node in nodes) else []
    return _disjoint(units + (_preserved(program) if len(program.call_signatures) else []))


def _disjoint(units: Units) -> Units:
    # A region that begins in a preserved call and ends behind it makes one unit of both.
    owner: dict[int, int] = {}
    found: dict[int, tuple[str, list[int]]] = {}
    for index, (what, members) in enumerate(units):
        mine = set(members)
        for other in {owner[number] for number in members if number in owner}:
            what, inside = f"{found[other][0]} together with {what}", found.pop(other)[1]
            mine.update(inside)
        found[index] = (what, sorted(mine))
        owner.update(dict.fromkeys(mine, index))
    return list(found.values())


def _regions(nodes: Sequence[Node]) -> Units:
    found: Units = []
    depth = 0
    for number, node in enumerate(nodes):
        scope = node.do.effects.scope if type(node.do) is Op else 0
        if scope > 0 and depth == 0:
            found.append((f"the region that {shown(node)} opens", []))
        depth += scope
        if (depth > 0 or scope < 0) and found and type(node.do) is not Get and not is_boundary(node):
            found[-1][1].append(number)
    return found


def _preserved(program: Program) -> Units:
    signatures = program.call_signatures
    units: dict[object, list[int]] = {}
    known: dict[Stack, object] = {}
    for number, node in enumerate(program.main.nodes):
        if node.stack not in known:
            known[node.stack] = next((frame for frame in node.stack if frame in signatures), None)
        frame = known[node.stack]
        if frame is not None and type(node.do) is not Get:
            units.setdefault(frame, []).append(number)
    return [(f"{frame}, whose call signature was preserved,", members) for frame, members in units.items()]


def with_units(units: Units, nodes: Sequence[Node], wanted: list[int | None], tags: Sequence[str]) -> list[int | None]:
    """Return the tags with those of units for all nodes of a unit.

    Args:
        units: what cannot be cut.
        nodes: of the flat program.
        wanted: the number of the tag of each node.
        tags: all tags.

    Raises:
        PartitionError: the nodes of a unit have two tags.
    """
    found = list(wanted)
    for what, members in units:
        chosen = {found[number]: number for number in reversed(members) if found[number] is not None}
        if len(chosen) > 1:
            said = " and ".join(f"{shown(nodes[number])} {tags[tag or 0]!r}" for tag, number in sorted(chosen.items()))
            raise PartitionError(f"{what} would be cut, and must be in one part: of its nodes {said}")
        for tag in chosen:
            for number in members:
                found[number] = tag
    return found


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


def place(program: Program, tags: tuple[str, ...], tag_of: TagOf) -> Placing:
    """Return the part of each node.

    Args:
        program: a flat program.
        tags: the parts in the order in which they run.
        tag_of: see ``split_by_tags``.

    Raises:
        PartitionError: the tags cannot be obtained in that order, or cut what must be in one part.

    >>> from purefx.ir import Graph, Node, Op
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.rand")),))})
    >>> place(program, ("a", "b"), {"y": "b"}).of
    (1,)
    """
    nodes, users = program.main.nodes, program.main.users
    units = found_units(program)
    wanted = with_units(units, nodes, wanted_tags(program, tags, tag_of), tags)
    before = dependencies(program, program.main)
    unit = list(range(len(nodes)))
    for _, members in units:
        for number in members:
            unit[number] = members[0]
    # A unit without a tag goes to the part of its last dependency; where it has none, to the first part that depends on it.
    low = _raised([NONE if tag is None else tag for tag in wanted], unit, before)
    for number, tag in enumerate(wanted):
        if tag is not None and any(low[other] > tag for other in before[number]):
            raise PartitionError(backward_edge(program, tags, wanted, before, low, number))
    used = _from_users(low, unit, before)
    of = _raised([max(part, 0) for part in used], unit, before)
    is_read = [type(node.do) is Get and node.name in users for node in nodes]
    return Placing(tags, tuple([READ if read else part for read, part in zip(is_read, of, strict=True)]))


def _raised(start: list[int], unit: list[int], before: list[list[int]]) -> list[int]:
    # The least parts such that no node is before one that it depends on, and each unit is in one part.
    of = list(start)
    while True:
        last = list(of)
        for number, earlier in enumerate(before):
            of[unit[number]] = max([of[unit[number]], *[of[unit[other]] for other in earlier]])
        if of == last:
            return [of[first] for first in unit]


def _from_users(low: list[int], unit: list[int], before: list[list[int]]) -> list[int]:
    # What depends on nothing that has a part goes to the first part that depends on it.
    of = list(low)
    while True:
        last = list(of)
        for number in range(len(of) - 1, -1, -1):
            part = of[unit[number]]
            for other in [unit[other] for other in before[number]] if part != NONE else ():
                if low[other] == NONE and (of[other] == NONE or part < of[other]):
                    of[other] = part
        if of == last:
            return [of[first] for first in unit]
