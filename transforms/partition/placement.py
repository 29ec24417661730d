"""Placement: which node goes to which part.

Nodes that must be in one part form a unit, whatever their tags; a tag that comes back makes another part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from types import MappingProxyType

from attrs import frozen

from ...ir.effects.dependencies import dependencies
from ...ir.errors import PartitionError
from ...ir.graph import Get, Node, Op, Stack
from ...ir.names import Names
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


def in_pieces(tags: tuple[str, ...], wanted: Sequence[int | None], before: list[list[int]]) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the parts, and the part of each node.

    Args:
        tags: the tags in the order in which they are tried.
        wanted: the number of the tag of each node; a node without one goes to the part that runs when it can.
        before: for each node those that it depends on.

    >>> in_pieces(("a", "b"), [0, 1, 0], [[], [0], [1]])
    (('a', 'b', 'a_1'), [0, 1, 2])
    """
    work = _Pieces(len(tags), wanted, before)
    visits = _with_unused(work.run(), tags)
    names, fresh = [], Names(tags)
    part_of: dict[int, int] = {}
    seen: set[int] = set()
    for number, (tag, visit) in enumerate(visits):
        names.append(fresh.fresh(tags[tag]) if tag in seen else tags[tag])
        seen.add(tag)
        part_of[visit] = number
    return tuple(names), [part_of[visit] for visit in work.of]


def _with_unused(visits: list[int], tags: Sequence[str]) -> list[tuple[int, int]]:
    # A tag that no node has is a part without nodes, before the first part whose tag comes later.
    found = [(tag, number) for number, tag in enumerate(visits)]
    for tag in range(len(tags)):
        if tag not in visits:
            at = next((index for index, (other, _) in enumerate(found) if other > tag), len(found))
            found.insert(at, (tag, -1 - tag))
    return found


class _Pieces:
    """One walk over the nodes in an order in which each tag goes on for as long as it can."""

    def __init__(self, count: int, wanted: Sequence[int | None], before: list[list[int]]) -> None:
        self.count = count
        self.wanted = wanted
        self.sorter = TopologicalSorter(dict(enumerate(before)))
        self.sorter.prepare()
        self.ready: dict[int, list[int]] = {}
        self.free: list[int] = []
        """Nodes without a tag that can run."""
        self.of = [0] * len(before)
        self._collect()

    def _collect(self) -> None:
        for number in self.sorter.get_ready():
            tag = self.wanted[number]
            if tag is None:
                self.free.append(number)
            else:
                heapq.heappush(self.ready.setdefault(tag, []), number)

    def run(self) -> list[int]:
        """Return the tag of each visit in order."""
        visits: list[int] = []
        self._visit(None, 0)  # what needs nothing that is tagged goes to the first part
        tag = 0
        while self.ready:
            tag = min(self.ready, key=lambda other: (other - tag) % self.count)
            self._visit(tag, len(visits))
            visits.append(tag)
        return visits or [0]

    def _visit(self, tag: int | None, visit: int) -> None:
        while self.free or tag in self.ready:
            number = self.free.pop() if self.free or tag is None else heapq.heappop(self.ready[tag])
            if tag is not None and tag in self.ready and not self.ready[tag]:
                del self.ready[tag]
            self.of[number] = visit
            self.sorter.done(number)
            self._collect()


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
        PartitionError: the tags cannot be obtained in that order, or cut what must be in one part.

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
    # A unit without a tag goes where a node would go: to the part of its last dependency; where it has none, to the first part
    # that depends on it; and where it has no such either, to the part of what it depends on.
    free = [members for _, members in units if wanted[members[0]] is None]
    low = _agreed(free, lambda least: _lowest(program, tags, wanted, before, least), max)
    used = _agreed(free, lambda most: _from_users(low, before, most), min)
    return _agreed(free, lambda least: _placed(used, before, least), max)


def _agreed(free: list[list[int]], found: Callable[[dict[int, int]], list[int]], of_all: Callable[[list[int]], int]) -> list[int]:
    # The parts of nodes, where all nodes of a unit have one: the last, or the first, that is found for any of them.
    known: dict[int, int] = {}
    while True:
        parts, moved = found(known), False
        for members in free:
            told = [parts[number] for number in members if parts[number] != NONE]
            part = of_all(told) if told else NONE
            if any(parts[number] != part for number in members):
                known.update(dict.fromkeys(members, part))
                moved = True
        if not moved:
            return parts


def _lowest(
    program: Program, tags: tuple[str, ...], wanted: Sequence[int | None], before: list[list[int]], known: Mapping[int, int]
) -> list[int]:
    # The tag of each node, or the part of its last dependency; NONE for what depends on nothing tagged.
    low: list[int] = []
    for number, earlier in enumerate(before):
        tag, least = wanted[number], known.get(number, NONE)
        for other in earlier:
            if low[other] > least:  # noqa: PLR1730  a call of `max` for each takes twice the time of all this
                least = low[other]
        if tag is not None and least > tag:
            placed = [known.get(other) if said is None else said for other, said in enumerate(wanted)]
            raise PartitionError(backward_edge(program, tags, placed, before, low, number))
        low.append(least if tag is None else tag)
    return low


def _from_users(low: list[int], before: list[list[int]], known: Mapping[int, int] = MappingProxyType({})) -> list[int]:
    # What depends on nothing that has a part goes to the first part that depends on it.
    of, first = list(low), dict(known)
    for number in range(len(of) - 1, -1, -1):
        if of[number] == NONE:
            of[number] = first.get(number, NONE)
        for earlier in before[number] if of[number] != NONE else ():
            if low[earlier] == NONE:
                first[earlier] = min(of[number], first.get(earlier, of[number]))
    return of


def _placed(used: list[int], before: list[list[int]], known: Mapping[int, int]) -> list[int]:
    # Nothing that has a part depends on what has none yet, nor on what depends on that.
    of = list(used)
    for number, earlier in enumerate(before):
        if of[number] == NONE:
            of[number] = max([of[other] for other in earlier], default=0)
            of[number] = max(of[number], known.get(number, NONE))
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
