"""What is said where tags can not be had in their order: the nodes, and the path between them.

One idea: the path is followed back along the dependency relation to a node of a later part; each step says which value is
used, or which effect keeps the two in order.  It is only worked out when the error is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...ir.effects.declared import COMMUNICATION, LIBRARIES
from ...ir.effects.dependencies import in_domains
from ...ir.effects.happenings import happenings
from ...ir.effects.resolved import Happening
from ...ir.node import Node
from ...ir.program import Program
from .tags import shown

__all__ = ["backward_edge"]


def backward_edge(
    program: Program,
    tags: Sequence[str],
    wanted: Sequence[int | None],
    before: list[list[int]],
    low: Sequence[int],
    number: int,
) -> str:
    """Return the message for a node that is in an earlier part than one that it depends on.

    Args:
        program: a flat program.
        tags: the parts in order.
        wanted: the number of the tag of each node.
        before: the dependency relation.
        low: the earliest part of each node before that one.
        number: the node.
    """
    nodes = program.main.nodes
    path = [number]
    while wanted[path[-1]] is None or path[-1] == number:
        path.append(max(before[path[-1]], key=lambda other: low[other]))
    path.reverse()
    done = happenings(program, program.main)
    first, last = tags[low[path[0]]], tags[wanted[number] or 0]
    steps = [
        f"    {shown(nodes[other])} {_why(nodes[one], done[one], nodes[other], done[other])}" for one, other in pairwise(path)
    ]
    head = f"{shown(nodes[number])} has the tag {last!r}, which comes before {first!r}, but it depends on {shown(nodes[path[0]])}"
    circle = _reaches(before, wanted, low[path[0]], wanted[number] or 0)
    return "\n".join([f"{head} of {first!r}:", *steps, _advice(first, last, circle=circle)])


def _why(node: Node, did: Happening, later: Node, does: Happening) -> str:
    if node.name in later.refs():
        return f"uses {node.name!r}"
    if did.random and does.random:
        return f"draws random numbers after {node.name!r} does"
    if did.ordered and does.ordered:
        return f"is an ordered effect after {node.name!r}"
    if next(in_domains([did.domains, does.domains]), None) is not None:
        return f"stays in order with {node.name!r}: {_domain(did, does)}"
    if did.scope != (0, 0) or does.scope != (0, 0):
        return f"is kept behind {node.name!r} by the border of a region"
    if does.completes:
        return f"waits for what {node.name!r} uses before it"
    if did.completes:
        return f"uses what {node.name!r} waits for"
    if does.writes or does.writes_slots:
        return f"writes what {node.name!r} reads or writes before it"
    return f"reads what {node.name!r} writes"


def _domain(did: Happening, does: Happening) -> str:
    domains = {key[0] for key in (*did.domains, *does.domains) if key}
    if domains == {LIBRARIES}:
        return "operators of other libraries may log or count; where one does not, say so with px.declare(op, px.PURE)"
    return "both communicate" if domains == {COMMUNICATION} else "nothing is known of one of them"


def _reaches(before: list[list[int]], wanted: Sequence[int | None], later: int, earlier: int) -> bool:
    # Whether some node of the one tag depends on some node of the other.
    needed = [False] * len(before)
    for number in range(len(before) - 1, -1, -1):
        if wanted[number] == later or needed[number]:
            for other in before[number]:
                needed[other] = True
    return any(needed[number] and tag == earlier for number, tag in enumerate(wanted))


def _advice(first: str, last: str, *, circle: bool) -> str:
    if circle:
        return (
            f"{first!r} depends on {last!r} as well, so neither can run before the other: tag differently, or pass "
            f"allow_reuse=True, which makes another part of what comes back to {last!r}"
        )
    return f"put {first!r} before {last!r} in the tags, or tag differently"
