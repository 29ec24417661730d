"""``split_balanced``: a program is split into some number of parts that are about as large as one another.

One idea: the nodes are taken in their order, so every cut is legal that leaves regions and preserved calls whole.  Among the
partitions whose largest part is as small as it can be, the one is taken that cuts fewest module calls, then the evenest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from attrs import field, frozen

from ...ir.errors import PartitionError
from ...ir.node import Get, Node, common_prefix
from ...ir.program import Program
from ...ir.state import SlotKind
from .balance import balanced
from .join import joined_flat
from .split_by_tags import split_by_tags
from .tables import read_below
from .tags import follows
from .units import found_units

__all__ = ["split_balanced"]

Cost = Callable[[Node], float]


@frozen
class _Chosen:
    """The tag of each node by its name."""

    of: Mapping[str, str] = field(repr=False)

    def __call__(self, node: Node) -> str | None:
        return self.of.get(node.name)


def split_balanced(program: Program, k: int, *, cost: Cost | None = None) -> Program:
    """Split a program into ``k`` parts such that the largest is as small as it can be.

    Args:
        program: a program with sunk state, flat or outlined.
        k: how many parts; they are called ``stage0``, ``stage1`` and so on, and each has at least one node.
        cost: what a node costs, a number of at least 0; by default the bytes of the parameters that it is the first to read,
            and one for each node where nothing has parameters.

    Returns:
        The program as a root that calls the parts, the nodes in their order.

    Raises:
        PartitionError: there are not that many places where it can be cut.
        PipelineError: its state is still an input: run ``transform``, or ``sink_state``, first.
        TypeError: ``k`` is not an int.
        ValueError: ``cost`` gives something that is no number of at least 0.

    >>> import purefx as px
    >>> nodes = [px.Node(n, px.Op("toy.neg"), (px.Ref(x),)) for n, x in (("a", "x"), ("b", "a"), ("c", "b"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("c"),))})
    >>> split = px.split_balanced(program, 2, cost=lambda node: 2 if node.name == "c" else 1)
    >>> [len(split.graphs[part.graph].nodes) for part in px.parts(split)]
    [2, 1]
    """
    if type(k) is not int:
        raise TypeError(f"k is the number of parts, an int, not a {type(k).__name__}")
    flat, _ = joined_flat(program)
    graph = flat.main
    items = [number for number, node in enumerate(graph.nodes) if type(node.do) is not Get and not follows(node, graph)]
    segments = _segments(flat, items)
    if not 1 <= k <= len(segments):
        raise PartitionError(f"it can be split into 1 to {len(segments)} parts, since there are no more places to cut; k is {k}")
    costs = _costs(flat, cost)
    sizes = [sum([costs[number] for number in segment]) for segment in segments]
    nodes = graph.nodes
    depths = [0, *(_shared(nodes[one[-1]], nodes[two[0]]) for one, two in pairwise(segments)), 0]
    ends = balanced(sizes if any(sizes) else [len(segment) for segment in segments], depths, k)
    of: dict[str, str] = {}
    part = 0
    for number, segment in enumerate(segments):
        part += number == ends[part]
        of.update((nodes[item].name, f"stage{part}") for item in segment)
    return split_by_tags(program, tuple([f"stage{number}" for number in range(k)]), tag_of=_Chosen(of))


def _shared(left: Node, right: Node) -> int:
    # How many module calls a cut between two nodes goes through.
    return len(common_prefix([left.stack, right.stack]))


def _segments(flat: Program, items: list[int]) -> list[list[int]]:
    # Runs of nodes that may be cut between, but not inside.
    spans = sorted([(members[0], members[-1]) for _, members in found_units(flat) if members], reverse=True)
    segments: list[list[int]] = []
    until = -1
    for number in items:
        if number > until:
            segments.append([])
        segments[-1].append(number)
        while spans and spans[-1][0] <= number:
            until = max(until, spans.pop()[1])
    return segments


def _costs(flat: Program, cost: Cost | None) -> list[float]:
    if cost is None:
        return _parameter_bytes(flat)
    found: list[float] = []
    for node in flat.main.nodes:
        value = 0 if type(node.do) is Get or follows(node, flat.main) else cost(node)
        if not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"cost gives {value!r} for node {node.name!r}; it gives a number of at least 0")
        found.append(value)
    return found


def _parameter_bytes(flat: Program) -> list[float]:
    state, nodes = flat.state, flat.main.nodes
    slots = {node.name: node.do.slot for node in nodes if type(node.do) is Get}
    counted: set[int] = set()
    found: list[float] = []
    for node in nodes:
        size = 0
        for name in [*(slots[name] for name in node.refs() if name in slots), *sorted(read_below(flat, node))]:
            slot = state[name]
            if slot.kind is SlotKind.PARAMETER and slot.cell not in counted and isinstance(slot.value, torch.Tensor):
                counted.add(slot.cell)
                size += slot.value.numel() * slot.value.element_size()
        found.append(size)
    return found
