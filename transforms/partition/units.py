"""Units: nodes that must be in one part, whatever the tags say.

One idea: a region (``no_grad``, autocast) opens and closes on one thread, and a call with a preserved signature is one call;
neither can be cut.  A unit has the tag that its nodes have; two tags in one are an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.borders import is_border
from ...ir.errors import PartitionError
from ...ir.node import Get, Node, Op, Stack
from ...ir.program import Program
from .tags import shown

__all__ = ["Units", "found_units", "with_units"]

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
        if (depth > 0 or scope < 0) and found and type(node.do) is not Get and not is_border(node):
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
        units: what can not be cut.
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
