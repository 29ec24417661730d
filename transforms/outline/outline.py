"""``outline``: turn the flat program into the tree of module calls, or only as many calls as the fuel allows.

Nodes are scheduled first, as far as the dependency relation allows, then extracted (``extraction.py``).  At each level of the
hierarchy, each call is contracted to one item.  Calls in a dependency cycle are dissolved: their nodes and inner calls become
items of the caller; a call with a preserved signature is never dissolved.  The items are sorted topologically, earliest node
first, which preserves the given order as far as possible.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Collection, Hashable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from ...ir.effects.dependencies import dependencies
from ...ir.errors import FlatCallWarning, UnsupportedProgram
from ...ir.graph import Frame, Node, Stack
from ...ir.names import escaped
from ...ir.persistent import closure, grouped
from ...ir.program import Program
from ..transformation import UNLIMITED, Fuel, transformation
from .extraction import Walk

Item = Hashable
"""An item of a level: a frame (a module call), or the number of a node."""

Edges = dict[Item, dict[Item, None]]
"""The predecessors of each item."""

Calls = dict[Frame, None]
"""Module calls, as an ordered set."""


def gather(program: Program, flat: Collection[Frame]) -> tuple[list[Node], list[Frame]]:
    """Return the nodes of the root with every module call contiguous, and the calls that cannot be contiguous.

    Args:
        program: its root has module stacks.
        flat: calls that are not gathered.

    Raises:
        UnsupportedProgram: a call with a preserved signature cannot be contiguous.
    """
    nodes = list(program.main.nodes)
    stacks = [
        tuple([frame for frame in node.stack if frame not in flat]) if flat else node.stack
        for node in nodes
    ]
    before = dependencies(program, program.main)
    order: list[int] = []
    dissolved: Calls = dict.fromkeys(flat)
    todo: list[tuple[list[int], int]] = [(list(range(len(nodes))), 0)]
    while todo:
        run, depth = todo.pop()
        if depth < 0:
            order.extend(run)
            continue
        for members, is_call in reversed(
            _arrange(run, depth, stacks, before, program.call_signatures, dissolved)
        ):
            todo.append((members, depth + 1 if is_call else -1))
    return [nodes[number] for number in order], list(dissolved)


def _arrange(
    run: list[int],
    depth: int,
    stacks: list[Stack],
    before: list[list[int]],
    preserved: Collection[Frame],
    dissolved: Calls,
) -> list[tuple[list[int], bool]]:
    items = {number: _item(number, depth, stacks) for number in run}
    edges = _item_edges(run, items, before)
    while torn := _torn(edges, preserved):
        dissolved.update(torn)
        for number in run:
            if items[number] in torn:
                stacks[number] = (*stacks[number][:depth], *stacks[number][depth + 1 :])
                items[number] = _item(number, depth, stacks)
        edges = _item_edges(run, items, before)
    pieces = groupby(_sorted_by_item(run, items, edges), key=items.__getitem__)
    return [(list(members), isinstance(item, Frame)) for item, members in pieces]


def _item(number: int, depth: int, stacks: Sequence[Stack]) -> Item:
    return stacks[number][depth] if len(stacks[number]) > depth else number


def _torn(edges: Edges, preserved: Collection[Frame]) -> Calls:
    # The calls in one dependency cycle, without the preserved ones.
    calls = sorted(
        [item for item in _circle(edges) if isinstance(item, Frame)],
        key=lambda frame: (frame.path, frame.call),
    )
    torn = dict.fromkeys([call for call in calls if call not in preserved])
    if calls and not torn:
        frame = calls[0]
        raise UnsupportedProgram(
            f"the call signature of {frame.path} (call {frame.call}) was preserved, but other modules need its results before it "
            "has all of its arguments, so it is not a single call; export again without preserving it"
        )
    return torn


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


def _sorted_by_item(run: list[int], items: dict[int, Item], edges: Edges) -> list[int]:
    members = grouped([(items[number], number) for number in run])
    sorter = TopologicalSorter(edges)
    sorter.prepare()
    ready: list[int] = []
    """The first members of the ready items."""
    order: list[int] = []
    while sorter.is_active():
        for item in sorter.get_ready():
            heapq.heappush(ready, members[item][0])
        item = items[heapq.heappop(ready)]
        order.extend(members[item])
        sorter.done(item)
    return order


def _circle(edges: Edges) -> set[Item]:
    # The items of one cycle, with all that depend on it and that it depends on; empty without a cycle.
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        start: Item = error.args[1][0]
        after: Edges = {}
        for item, earlier in edges.items():
            for other in earlier:
                after.setdefault(other, {})[item] = None
        before = closure([start], lambda item: edges.get(item, ()))
        return before.keys() & closure([start], lambda item: after.get(item, ()))
    return set()


def _not_allowed(program: Program, fuel: Fuel, flat: Collection[Frame]) -> Collection[Frame]:
    # The calls that stay flat because the fuel does not suffice; they are extracted in the order of their last nodes.
    ends: dict[Frame, tuple[int, int]] = {}
    for number, node in enumerate(program.main.nodes if fuel.limited else ()):
        ends.update(
            {frame: (number, -depth) for depth, frame in enumerate(node.stack) if frame not in flat}
        )
    return [
        frame for frame in sorted(ends, key=ends.__getitem__) if not fuel.burn("cut out", frame)
    ]


@transformation(
    proven=True,
    establishes={"outlined"},
    forgets={"flat", "deduplicated"},
    inverse="inline",
    laws=[
        "inlining restores the program",
        "a legal reordering of the program gives the same hierarchy",
        "each call passes exactly the free values of its body, and returns exactly the values that are used outside",
    ],
)
def outline(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn module stacks into calls of bodies.

    Before::

        linear = aten.linear.default(x, p_weight)          in mlp/mlp.up
        gelu = aten.gelu.default(linear)                    in mlp
        return gelu

    After::

        graph ""           gelu = call mlp(x)
        graph "mlp"        linear = call up(x);  gelu = aten.gelu.default(linear)
        graph "mlp.up"     linear = aten.linear.default(x, p_weight)

    Args:
        program: a program whose root has module stacks.
        fuel: a rewrite is one extracted call, in the order in which they end, inner ones first; the others stay flat.

    Returns:
        The program with one body for each module call.  A call that cannot be contiguous, because other nodes need its results
        and it needs theirs, stays flat in its caller; ``FlatCallWarning`` names it.

    Raises:
        UnsupportedProgram: such a call has a preserved call signature.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> px.outline(program).graphs["a"].nodes[0].stack
    ()
    """
    if not any(node.stack for node in program.main.nodes):
        return program
    walk = walked(program)
    refused = _not_allowed(program, fuel, walk.flat)
    return (
        _contiguous_walk(program, [*walk.flat, *refused]).program() if refused else walk.program()
    )


def walked(program: Program) -> Walk:
    """Return the walk over the root of a program, after gathering its calls if they are not contiguous.

    Args:
        program: its root has module stacks.

    Raises:
        UnsupportedProgram: a call with a preserved signature cannot be contiguous.
    """
    walk = _contiguous_walk(program, ())
    if flat := walk.flat:
        message = f"the call{'s'[: len(flat) > 1]} {', '.join(map(str, flat))} stay{'s'[: len(flat) == 1]}"
        warnings.warn(
            escaped(f"{message} flat in the caller, because other nodes must run in between"),
            FlatCallWarning,
            stacklevel=2,
        )
    return walk


def _contiguous_walk(program: Program, flat: Collection[Frame]) -> Walk:
    walk = Walk(program, program.main.nodes, flat)
    if walk.reentered:
        walk = Walk(program, *gather(program, flat))
        assert not walk.reentered, "gathering makes every call contiguous"
    return walk
