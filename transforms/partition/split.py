"""``split_by_tags``, ``split_by_module``, ``split_balanced``: split a program into a chain of parts, one body for each.

They differ only in the source of the tags.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

import torch
from attrs import field, frozen

from ...ir.arguments import Arg, Ref, thawed
from ...ir.calls.parts import part_names
from ...ir.errors import PartitionError
from ...ir.graph import Get, Graph, Node, common_prefix
from ...ir.names import did_you_mean
from ...ir.program import Program
from ...ir.state import SlotKind
from ...ir.torch_private import OpOverload, pytree, size_number
from ...ir.validation import a_program
from ..transformation import transformation
from .cut import below_parts, cut, joined_flat, outlined_inside, read_below, with_bodies_of
from .placement import ByModule, checked_tags, follows, found_units, module_paths, place


def balanced(sizes: Sequence[float], depths: Sequence[int], parts: int) -> list[int]:
    """Return the end of each part: ``k`` numbers of segments; the last one is the number of all segments.

    Args:
        sizes: the sizes of the segments, at least one for each part.
        depths: the cost of a cut before each segment, and after the last; the cheapest cuts that keep the bound are chosen.
        parts: the number of parts.

    >>> balanced([4, 1, 1, 2, 2, 1], [0] * 7, 3)
    [1, 4, 6]
    """
    sums = _exact_sums(sizes)
    bound = _smallest_bound(sums, parts)
    count = len(sizes)
    # The end of a part that begins at a segment, and the least number of parts for the rest.
    reach = [_reach(sums, start, bound) for start in range(count)]
    need = [0] * (count + 1)
    for start in range(count - 1, -1, -1):
        need[start] = 1 + need[reach[start]]
    ends: list[int] = []
    start = 0
    for left in range(parts - 1, 0, -1):
        fits = [
            end for end in range(start + 1, reach[start] + 1) if need[end] <= left <= count - end
        ]
        # The ideal is an equal share of the rest; everything is multiplied by the number of shares.
        share, shares = sums[count] - sums[start], left + 1
        off = {end: abs((sums[end] - sums[start]) * shares - share) for end in fits}
        start = min(fits, key=lambda end: (depths[end], off[end]))
        ends.append(start)
    return [*ends, count]


def _exact_sums(sizes: Sequence[float]) -> list[int]:
    # Exact integers, because sums are compared for equality: a float is an integer over a power of two.
    ratios = [size.as_integer_ratio() for size in sizes]
    unit = max(below for _, below in ratios)
    return [0, *accumulate([above * (unit // below) for above, below in ratios])]


def _smallest_bound(sums: Sequence[int], parts: int) -> int:
    low, high = max(end - start for start, end in pairwise(sums)), sums[-1]
    while low < high:
        middle = (low + high) // 2
        used, start = 0, 0
        while start < len(sums) - 1:
            used, start = used + 1, _reach(sums, start, middle)
        low, high = (low, middle) if used <= parts else (middle + 1, high)
    return high


def _reach(sums: Sequence[int], start: int, bound: int) -> int:
    # The last segment that still fits, counted from the front; sums are monotonic, so bisection works.
    return bisect_right(sums, sums[start] + bound) - 1


@transformation(
    proven=True,
    requires={"state sunk", "token free"},
    establishes={"split"},
    forgets={"flat", "deduplicated"},
    inverse="join",
    laws=[
        "join restores the program, with its nodes in a legal order",
        "the parts run in tag order; each accepts and returns exactly the values that cross its boundary, in graph order",
        "each part has exactly the state that it reads, and state that one part reads is in one part",
    ],
)
def split_by_tags(
    program: Program,
    tags: Sequence[str],
    *,
    tag_of: Mapping[str, str] | Callable[[Node], str | None] | None = None,
) -> Program:
    """Split a program into parts, one for each tag.

    Before::

        w = get up.weight;  up = aten.linear.default(x, w)            in up
        w_1 = get down.weight;  down = aten.linear.default(up, w_1)   in down

    After ``split_by_tags(program, ("a", "b"), tag_of={"up": "a", "down": "b"})``::

        graph ""           up = call a(x);  down = call b(up)
        graph "a"          w = get up.weight;  up = aten.linear.default(x, w)           in up
        graph "b"          w_1 = get down.weight;  down = aten.linear.default(up, w_1)  in down

    Reads of state go to every part that uses them, projections of tuples to the part of the tuple, boundaries of regions and of
    preserved calls to the part of their contents: their own tags are ignored.  A node without a tag goes to the part of its last
    dependency; if no dependency is tagged, it goes to the first part that uses it.  A tag without nodes becomes an empty part.  A
    program that is already split is joined first.

    State and modules move below the part: ``up.weight`` becomes ``a.up.weight``.  State that several parts read is one tensor
    with a name in each. ``split_provenance`` returns the provenance map, ``parts`` lists the parts.

    Args:
        program: a program with sunk state, flat or outlined.
        tags: the names of the parts, in the order in which they run.
        tag_of: the tag of a node: a function of a node of the flat program, whose ``stack`` begins at the root; or a mapping from
            names of nodes or paths of modules, where the innermost one counts; by default, ``node.meta["tag"]``.

    Returns:
        The program as a root that calls the parts; the parts are outlined if the program was, and flat otherwise.

    Raises:
        PartitionError: the order of the tags contradicts the dependencies, a region or a preserved call would be cut, a tag or a
            key is unknown, or a tag cannot be the name of a module.
        PipelineError: the state of the program is still an input: run ``transform``, or ``sink_state``, first.
        TypeError: ``tags`` or ``tag_of`` has another type.

    >>> import purefx as px
    >>> nodes = [px.Node(n, px.Op("toy.neg"), (px.Ref(x),)) for n, x in (("y", "x"), ("z", "y"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("z"),))})
    >>> print(px.split_by_tags(program, ("a", "b"), tag_of={"y": "a", "z": "b"}).main)
    graph @""(x) {
      y = call @a(x) as a
      z = call @b(y) as b
      return (z,)
    }
    """
    names = checked_tags(tags)
    flat, outlined = joined_flat(program)
    placing = place(flat, names, tag_of)
    made = cut(
        flat,
        placing,
        reserved=() if part_names(program) else [node.name for node in program.main.nodes],
    )
    made = below_parts(flat, made, placing.names, made.main.called)
    if outlined:
        made = outlined_inside(made)
    made = with_bodies_of(program, made)
    return program if made == program else made


def split_by_module(program: Program, modules: Mapping[str, str]) -> Program:
    """Split a program into parts by module.

    Nodes outside of these modules go to the part of their last dependency, or, without one, to the first part that uses them;
    ``""`` is the root, with all nodes that no other path covers.

    Args:
        program: a program with sunk state, flat or outlined.
        modules: the name of the part by module path; of nested modules the innermost counts.  Parts run in the order in which
            they are first named.

    Returns:
        The program as a root that calls the parts.

    Raises:
        PartitionError: a path is not a module, there is no path, or the order of the parts contradicts the dependencies.
        PipelineError: the state of the program is still an input: run ``transform``, or ``sink_state``, first.

    >>> import purefx as px
    >>> nodes = [px.Node(m, px.Op("toy.neg"), (px.Ref(x),), stack=(px.Frame(m),)) for m, x in (("a", "x"), ("b", "a"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("b"),))})
    >>> [part.name for part in px.parts(px.split_by_module(program, {"a": "stage0", "b": "stage1"}))]
    ['stage0', 'stage1']
    """
    a_program(program, "split_by_module", modules=modules)
    if not isinstance(modules, Mapping):
        raise TypeError(
            f"split_by_module: modules is a mapping from paths of modules to names of parts, not a {type(modules).__name__}"
        )
    split_by_tags.check_facts(program, asked_by="split_by_module")
    if not modules:
        raise PartitionError(
            "split_by_module: modules is empty; name the part of at least one path"
        )
    known = module_paths(joined_flat(program)[0])
    for path in modules:
        if path not in known:
            raise PartitionError(
                f"split_by_module: {path!r} is not the path of a module{did_you_mean(path, known)}"
            )
    return split_by_tags(
        program, tuple(dict.fromkeys(modules.values())), tag_of=ByModule(dict(modules))
    )


Cost = Literal["bytes", "flops"] | Callable[[Node], float]
"""The cost of a node: see ``split_balanced``."""


@frozen
class _Chosen:
    """The tag of each node by its name."""

    of: Mapping[str, str] = field(repr=False)

    def __call__(self, node: Node) -> str | None:
        return self.of.get(node.name)


def split_balanced(program: Program, k: int, *, cost: Cost = "bytes") -> Program:
    """Split a program into ``k`` parts such that the largest is as small as possible.

    Args:
        program: a program with sunk state, flat or outlined.
        k: the number of parts; their names are ``stage0``, ``stage1`` and so on, and each has at least one node.
        cost: ``"bytes"`` counts the bytes of the parameters that a node is the first to read, ``"flops"`` the floating-point
            operations, like torch's counter; a function returns the cost of a node, a number of at least 0.  If all costs are 0,
            each node counts as 1.

    Returns:
        The program as a root that calls the parts, the nodes in their order.

    Raises:
        PartitionError: the program cannot be cut in that many places.
        PipelineError: the state of the program is still an input: run ``transform``, or ``sink_state``, first.
        TypeError: ``k`` is not an int, or ``cost`` is not a function.
        ValueError: ``cost`` is another string, or returns something that is not a number of at least 0.

    >>> import purefx as px
    >>> nodes = [px.Node(n, px.Op("toy.neg"), (px.Ref(x),)) for n, x in (("a", "x"), ("b", "a"), ("c", "b"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("c"),))})
    >>> split = px.split_balanced(program, 2, cost=lambda node: 2 if node.name == "c" else 1)
    >>> [len(split.graphs[part.graph].nodes) for part in px.parts(split)]
    [2, 1]
    """
    a_program(program, "split_balanced", k=k)
    if type(k) is not int:
        raise TypeError(
            f"split_balanced: k is the number of parts, an int, not a {type(k).__name__}"
        )
    split_by_tags.check_facts(program, asked_by="split_balanced")
    flat, _ = joined_flat(program)
    graph = flat.main
    items = [
        number
        for number, node in enumerate(graph.nodes)
        if type(node.do) is not Get and not follows(node, graph)
    ]
    segments = _segments(flat, items)
    if not 1 <= k <= len(segments):
        raise PartitionError(
            f"split_balanced: the program can be split into 1 to {len(segments)} parts, because it cannot be cut in more places; "
            f"k is {k}"
        )
    costs = _costs(flat, cost, items)
    sizes = [sum([costs[number] for number in segment]) for segment in segments]
    nodes = graph.nodes
    depths = [0, *(_shared(nodes[one[-1]], nodes[two[0]]) for one, two in pairwise(segments)), 0]
    ends = balanced(sizes if any(sizes) else [len(segment) for segment in segments], depths, k)
    of: dict[str, str] = {}
    part = 0
    for number, segment in enumerate(segments):
        part += number == ends[part]
        of.update((nodes[item].name, f"stage{part}") for item in segment)
    return split_by_tags(
        program, tuple([f"stage{number}" for number in range(k)]), tag_of=_Chosen(of)
    )


def _shared(left: Node, right: Node) -> int:
    # The number of module calls that a cut between two nodes crosses.
    return len(common_prefix([left.stack, right.stack]))


def _segments(flat: Program, items: list[int]) -> list[list[int]]:
    # Runs of nodes that cannot be cut.
    spans = sorted(
        [(members[0], members[-1]) for _, members in found_units(flat) if members], reverse=True
    )
    segments: list[list[int]] = []
    until = -1
    for number in items:
        if number > until:
            segments.append([])
        segments[-1].append(number)
        while spans and spans[-1][0] <= number:
            until = max(until, spans.pop()[1])
    return segments


def _costs(flat: Program, cost: Any, items: list[int]) -> list[float]:
    if cost == "bytes":
        return _parameter_bytes(flat)
    if cost == "flops":
        return _flops(flat.main)
    if isinstance(cost, str):
        raise ValueError(  # noqa: TRY004  its type is right
            f'split_balanced: cost={cost!r}: pass "bytes", "flops" or a function of a node'
        )
    if not callable(cost):
        raise TypeError(
            f'split_balanced: cost is "bytes", "flops" or a function of a node, not a {type(cost).__name__}'
        )
    found = [0.0] * len(flat.main.nodes)
    for number in items:
        value: Any = cost(node := flat.main.nodes[number])
        if not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(
                f"split_balanced: cost returns {value!r} for node {node.name!r}; return a number of at least 0"
            )
        found[number] = value
    return found


def _flops(graph: Graph) -> list[float]:
    # Run operators on tensors without contents; one that cannot run there counts 0, as in torch's own counter.
    from torch.utils.flop_counter import (
        FlopCounterMode,
    )  # here, because it is slow to import and rarely used

    metas, found = graph.metas, list[float]()

    def empty(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            sizes: Any = [empty(size) for size in value.shape]
            return torch.empty(sizes, dtype=value.dtype, device="meta")
        return size_number(value) if isinstance(value, torch.SymInt | torch.SymFloat) else value

    def operand(arg: Arg) -> Any:
        return pytree.tree_map(empty, metas[arg.name].get("val")) if type(arg) is Ref else arg

    for node in graph.nodes:
        counter = FlopCounterMode(display=False)
        target: Any = node.target if node.op_name.startswith("aten.") else None
        if isinstance(target, OpOverload) and node.refs():
            with contextlib.suppress(Exception), torch.no_grad(), counter:
                args, kwargs = (
                    thawed(node.args, operand),
                    {key: thawed(arg, operand) for key, arg in node.kwargs},
                )
                target(*args, **kwargs)
        found.append(counter.get_total_flops())
    return found


def _parameter_bytes(flat: Program) -> list[float]:
    state, nodes = flat.state, flat.main.nodes
    slots = flat.main.reads
    counted: set[int] = set()
    found: list[float] = []
    for node in nodes:
        size = 0
        for name in [
            *(slots[name] for name in node.refs() if name in slots),
            *sorted(read_below(flat, node)),
        ]:
            slot = state[name]
            if (
                slot.kind is SlotKind.PARAMETER
                and slot.cell not in counted
                and isinstance(slot.value, torch.Tensor)
            ):
                counted.add(slot.cell)
                size += slot.value.numel() * slot.value.element_size()
        found.append(size)
    return found
