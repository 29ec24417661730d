"""Scheduling: make the nodes of each module call contiguous, as far as the dependency relation allows.

At each level of the hierarchy each call is contracted to one item.  A call is split only where items form a dependency cycle,
in an order that depends on the relation and not on the given order of nodes; a call with a preserved signature stays whole if
possible.  The items are sorted topologically, earliest node first, which changes the given order as little as possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Sequence
from graphlib import TopologicalSorter

from attrs import evolve

from ...ir.effects.dependencies import dependencies
from ...ir.graph import Frame, Node, Stack
from ...ir.program import Program

__all__ = ["gather", "strongly_connected"]

Item = Hashable
"""What a level is made of: a frame (a module call), or the number of a node that stands for itself."""


Edges = dict[Item, dict[Item, None]]
"""For each item those that come before it."""


def gather(program: Program) -> list[Node]:
    """Return the nodes of the root graph with every module call in one run.

    Calls that are really cut come back in pieces, told apart by ``Frame.part``.
    """
    nodes = list(program.main.nodes)
    before = dependencies(program, program.main)
    order: list[int] = []
    todo: list[tuple[list[int], int]] = [(list(range(len(nodes))), 0)]
    while todo:
        run, depth = todo.pop()
        if depth < 0:
            order.extend(run)
            continue
        pieces = _arrange(run, depth, nodes, before, program.call_signatures)
        for members, is_call in reversed(pieces):
            todo.append((members, depth + 1 if is_call else -1))
    gathered = [nodes[number] for number in order]
    return _renumbered(gathered) if any(frame.part for node in gathered for frame in node.stack) else gathered


def _renumbered(nodes: list[Node]) -> list[Node]:
    # A call inside the pieces of another is cut as well, though it is whole in each: its parts are numbered over all of
    # them, because path, call and part name one body.
    known: dict[Stack, Stack] = {(): ()}
    counts: dict[tuple[str, int], int] = {}

    def numbered(stack: Stack) -> Stack:
        for depth in range(1, len(stack) + 1):
            piece, last = stack[:depth], stack[depth - 1]
            if piece not in known:
                part = counts[last.path, last.call] = counts.get((last.path, last.call), -1) + 1
                known[piece] = (*known[piece[:-1]], evolve(last, part=part))
        return known[stack]

    return [node.evolve(stack=numbered(node.stack)) for node in nodes]


def _arrange(
    run: list[int], depth: int, nodes: list[Node], before: list[list[int]], whole: Collection[Frame]
) -> list[tuple[list[int], bool]]:
    items: dict[int, Item] = {}
    for number in run:
        stack = nodes[number].stack
        items[number] = stack[depth] if len(stack) > depth else number
    if not _is_one_run_each(run, items):
        edges = _item_edges(run, items, before)
        if _split_circles(run, depth, items, edges, nodes, before, whole):
            edges = _item_edges(run, items, before)
        run = _sorted_by_item(run, items, edges)
    pieces: list[tuple[list[int], bool]] = []
    last: Item = None
    for number in run:
        item = items[number]
        if item is not last and item != last:
            pieces.append(([], isinstance(item, Frame)))
            last = item
        pieces[-1][0].append(number)
    return pieces


def _is_one_run_each(run: Sequence[int], items: dict[int, Item]) -> bool:
    seen: set[Item] = set()
    last: Item = None
    for number in run:
        item = items[number]
        if item is not last and item != last:
            if item in seen:
                return False
            seen.add(item)
            last = item
    return True


def _item_edges(run: list[int], items: dict[int, Item], before: list[list[int]]) -> Edges:
    edges: Edges = {}
    for number in run:
        item = items[number]
        mine = edges.setdefault(item, {})
        for earlier in before[number]:
            other = items.get(earlier, item)
            if other is not item and other != item:
                mine[other] = None
    return edges


def _split_circles(
    run: list[int],
    depth: int,
    items: dict[int, Item],
    edges: Edges,
    nodes: list[Node],
    before: list[list[int]],
    whole: Collection[Frame],
) -> bool:
    # Calls that depend on one another in a circle are cut into pieces; `items` and the stacks of the nodes change.  Says
    # whether there was any.
    found = False
    for circle in strongly_connected(edges):
        if len(circle) < 2:
            continue
        found = True
        members = [number for number in run if items[number] in circle]
        units = _units(members, depth, nodes, before, whole)
        for number, part in _pieces(members, items, before, units).items():
            frame = items[number]
            if part and isinstance(frame, Frame):
                piece = evolve(frame, part=part)
                items[number] = piece
                stack = nodes[number].stack
                nodes[number] = nodes[number].evolve(stack=(*stack[:depth], piece, *stack[depth + 1 :]))
    return found


def _pieces(members: list[int], items: dict[int, Item], before: list[list[int]], units: dict[int, int]) -> dict[int, int]:
    # Emit what is ready: nodes that stand for themselves first, then one call at a time, in the order of its name, as far
    # as it goes.  Each visit of a call is a piece of it.  What is one unit is emitted at once.
    sorter = TopologicalSorter(_unit_edges(members, before, units))
    sorter.prepare()
    ready: dict[Item, list[int]] = {}

    def collect() -> None:
        for unit in sorter.get_ready():
            heapq.heappush(ready.setdefault(_bucket(items[unit]), []), unit)

    collect()
    parts: dict[int, int] = {}
    visits: dict[Item, int] = {}
    while ready:
        bucket = "" if "" in ready else min(ready, key=_by_name)
        while bucket in ready:
            unit = heapq.heappop(ready[bucket])
            parts[unit] = visits.get(bucket, 0)
            sorter.done(unit)
            collect()
            if not ready[bucket]:
                del ready[bucket]
        visits[bucket] = visits.get(bucket, 0) + 1
    return {number: parts[units.get(number, number)] for number in members}


def _unit_edges(members: list[int], before: list[list[int]], units: dict[int, int]) -> dict[int, dict[int, None]]:
    inside = set(members)
    edges: dict[int, dict[int, None]] = {}
    for number in members:
        unit = units.get(number, number)
        mine = edges.setdefault(unit, {})
        for earlier in before[number]:
            if earlier in inside and units.get(earlier, earlier) != unit:
                mine[units.get(earlier, earlier)] = None
    return edges


def _units(
    members: list[int], depth: int, nodes: list[Node], before: list[list[int]], whole: Collection[Frame]
) -> dict[int, int]:
    # Calls that must stay whole are one unit each, named by their first node; those that depend on one another in a circle
    # cannot stay whole, whatever is done.
    units: dict[int, int] = {}
    first: dict[Frame, int] = {}
    for number in members if whole else ():
        frame = next((frame for frame in nodes[number].stack[depth:] if frame in whole), None)
        if frame is not None:
            units[number] = first.setdefault(frame, number)
    if units:
        edges: Edges = {unit: {**others} for unit, others in _unit_edges(members, before, units).items()}
        torn = {unit for circle in strongly_connected(edges) if len(circle) > 1 for unit in circle}
        units = {number: unit for number, unit in units.items() if unit not in torn}
    return units


def _bucket(item: Item) -> Item:
    return item if isinstance(item, Frame) else ""


def _by_name(item: Item) -> tuple[str, int, int]:
    assert isinstance(item, Frame)
    return (item.path, item.call, item.part)


def _sorted_by_item(run: list[int], items: dict[int, Item], edges: Edges) -> list[int]:
    members: dict[Item, list[int]] = {}
    for number in run:
        members.setdefault(items[number], []).append(number)
    sorter = TopologicalSorter(edges)
    sorter.prepare()  # circles were split, so the items can be sorted
    ready: list[int] = []
    """The first members of the items that can come."""
    order: list[int] = []
    while sorter.is_active():
        for item in sorter.get_ready():
            heapq.heappush(ready, members[item][0])
        item = items[heapq.heappop(ready)]
        order.extend(members[item])
        sorter.done(item)
    return order


def strongly_connected(edges: Edges) -> list[set[Item]]:
    """Return the strongly connected components of a graph given by its edges, without recursion.

    >>> [sorted(part) for part in strongly_connected({1: {2: None}, 2: {1: None}, 3: {1: None}})]
    [[1, 2], [3]]
    """
    number: dict[Item, int] = {}
    low: dict[Item, int] = {}
    path: list[Item] = []
    on_path: set[Item] = set()
    found: list[set[Item]] = []
    for start in edges:
        if start in number:
            continue
        work = [(start, iter(edges.get(start, ())))]
        number[start] = low[start] = len(number)
        path.append(start)
        on_path.add(start)
        while work:
            item, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in on_path:
                    low[item] = min(low[item], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[item])
                if low[item] == number[item]:
                    component: set[Item] = set()
                    while True:
                        last = path.pop()
                        on_path.discard(last)
                        component.add(last)
                        if last == item:
                            break
                    found.append(component)
    return found
