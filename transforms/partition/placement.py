"""Placement: ``tag_of`` in its three forms assigns a tag to each node, and the tags determine the part of each node.

Nodes that must be in one part form a unit; conflicting tags are explained by a dependency path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import frozen

from ...ir.effects.declared import LIBRARIES, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import node_effects
from ...ir.errors import PartitionError
from ...ir.graph import Get, Graph, Node, Op, Stack
from ...ir.names import did_you_mean, way_to
from ...ir.own_operators import is_boundary
from ...ir.program import Program


@frozen
class ByModule:
    """Tags by module path; the innermost module around a node counts.

    >>> from purefx.ir import Frame
    >>> ByModule({"layers.0": "stage0"})(Node("y", Op("toy.neg"), stack=(Frame("layers.0.up"),)))
    'stage0'
    """

    of: Mapping[str, str]

    def __call__(self, node: Node) -> str | None:
        """Return the tag of a node."""
        paths = [path for frame in reversed(node.stack) for path in reversed(way_to(frame.path))]
        return next((self.of[path] for path in (*paths, "") if path in self.of), None)


TagOf = Mapping[str, str] | Callable[[Node], str | None] | None
"""A mapping by name of node or path of module, a function of a node, or None for ``meta["tag"]``."""


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags as a tuple.

    Args:
        tags: the argument of the caller.

    Raises:
        TypeError: it is not a sequence of strings.
        PartitionError: a tag is not a valid name of a module, or is repeated.

    >>> checked_tags(["a", "b"])
    ('a', 'b')
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise TypeError(
            f"tags is a sequence of strings, one for each part in the order in which they run, not {tags!r}"
        )
    found: tuple[Any, ...] = tuple(tags)
    for tag in found:
        if type(tag) is not str:
            raise TypeError(
                f"a tag is a string, the name of the part; {tag!r} is a {type(tag).__name__}"
            )
        if (
            not tag
            or any(mark in tag for mark in "./@#")
            or hasattr(torch.nn.Module, tag)
            or tag == "training"
        ):
            raise PartitionError(
                f"{tag!r} cannot be the name of a part, which is a separate module: use a name that is not an attribute of "
                "torch.nn.Module, without any of the characters . / @ #"
            )
    if not found or len(set(found)) < len(found):
        twice = sorted({tag for tag in found if found.count(tag) > 1})
        raise PartitionError(
            f"tags names each part once; {'pass at least one' if not found else f'{twice} are repeated'}"
        )
    return found


def follows(node: Node, graph: Graph) -> bool:
    """Return whether the part of a node is that of other nodes, so that its tag is ignored.

    Args:
        node: a node of the flat program.
        graph: the graph of the node.

    >>> from purefx.ir import Ref
    >>> graph = Graph((), (Node("w", Get("weight")), Node("y", Op("toy.neg"), (Ref("w"),))))
    >>> [follows(node, graph) for node in graph.nodes]
    [True, False]
    """
    if type(node.do) is Get:
        return node.name in graph.users
    if node.projection is not None:
        return node.projection[0] in graph.by_name
    return node.declared.scope != 0 or is_boundary(node)


def wanted_tags(program: Program, tags: Sequence[str], tag_of: TagOf) -> list[int | None]:
    """Return the number of the tag of each node of a flat program; None for nodes that follow others.

    Args:
        program: a flat program.
        tags: all tags.
        tag_of: see ``split_by_tags``.

    Raises:
        PartitionError: a tag is not one of the tags, or a key of a mapping is neither a node nor a module.
        TypeError: ``tag_of`` is not of a valid form.
    """
    graph = program.main
    tag_for = _tag_function(program, tag_of)
    numbers: dict[Any, int] = {tag: number for number, tag in enumerate(tags)}
    found: list[int | None] = []
    for node in graph.nodes:
        tag = None if follows(node, graph) else tag_for(node)
        number = None if tag is None else numbers.get(tag) if type(tag) is str else None
        if tag is not None and number is None:
            raise PartitionError(
                f"{shown(node)} has the tag {tag!r}, which is not one of the tags {list(tags)}"
            )
        found.append(number)
    return found


def shown(node: Node) -> str:
    """Return the description of a node in messages: its name, its module.

    >>> shown(Node("y", Op("toy.neg")))
    "node 'y'"
    """
    return f"node {node.name!r}" + (f" in {node.stack[-1]}" if node.stack else "")


def _tag_function(program: Program, tag_of: TagOf) -> Callable[[Node], Any]:
    if tag_of is None:
        return lambda node: node.meta.get("tag")
    if isinstance(tag_of, Mapping):
        return _by_mapping(program, tag_of)
    if not callable(tag_of):
        expected = "a mapping from names of nodes or paths of modules, or a function of a node"
        raise TypeError(f"tag_of is {expected}, not a {type(tag_of).__name__}")
    return tag_of


def _by_mapping(program: Program, tag_of: Mapping[str, str]) -> Callable[[Node], Any]:
    nodes, modules = program.main.by_name, module_paths(program)
    for key in tag_of:
        if key not in nodes and key not in modules:
            message = (
                "which is neither the name of a node of the flat program nor the path of a module"
            )
            raise PartitionError(
                f"tag_of has the key {key!r}, {message}{did_you_mean(key, {*modules, *nodes})}"
            )
        if key in nodes and key in modules and ByModule({key: key})(nodes[key]) is None:
            raise PartitionError(
                f"tag_of has the key {key!r}, which is the name of a node that is not in the module {key!r}: "
                "pass a function of the node, which has `name` and `stack`"
            )
    by_module = ByModule({key: tag for key, tag in tag_of.items() if key in modules})
    return lambda node: tag_of[node.name] if node.name in tag_of else by_module(node)


def module_paths(program: Program) -> frozenset[str]:
    """Return the paths of all modules that a flat program lists or calls, and of their parents.

    Args:
        program: a flat program.

    >>> sorted(module_paths(Program.of({"": Graph((), ())})))
    ['']
    """
    frames = {frame for stack in {node.stack for node in program.main.nodes} for frame in stack}
    paths = {each.path for each in (*program.modules, *frames)}
    return frozenset(["", *[above for path in paths for above in way_to(path)]])


def backward_edge(
    program: Program,
    tags: Sequence[str],
    wanted: Sequence[int | None],
    before: list[list[int]],
    low: Sequence[int],
    number: int,
) -> str:
    """Return the message for a node that is in an earlier part than one of its dependencies.

    Args:
        program: a flat program.
        tags: the parts in order.
        wanted: the number of the tag of each node.
        before: the dependency relation.
        low: the earliest possible part of each node before that one.
        number: the node.
    """
    nodes, tag = program.main.nodes, wanted[number] or 0
    path = [number]
    while earlier := [other for other in before[path[-1]] if low[other] > tag]:
        path.append(max(earlier, key=lambda other: low[other]))
        if wanted[path[-1]] is not None:
            break
    path.reverse()
    effects = node_effects(program, program.main)
    first, last = tags[low[path[0]]], tags[tag]
    steps = [
        f"    {shown(nodes[two])} {_why(nodes[one], effects[one], nodes[two], effects[two])}"
        for one, two in pairwise(path)
    ]
    head = f"{shown(nodes[number])} has the tag {last!r}, which comes before {first!r}, but it depends on {shown(nodes[path[0]])}"
    return "\n".join(
        [
            f"{head} of {first!r}:",
            *steps,
            f"put {first!r} before {last!r} in the tags, or tag differently",
        ]
    )


def _why(node: Node, first_effect: NodeEffects, later: Node, effect: NodeEffects) -> str:
    name = node.name
    if name in later.refs():
        return f"uses {name!r}"
    if first_effect.random and effect.random:
        return f"draws random numbers after {name!r} does"
    if any(key[0] == LIBRARIES for key in (*first_effect.domains, *effect.domains) if key):
        return (
            f"stays in order with {name!r}: operators of other libraries may log or count; declare one that does not with "
            "px.declare(op, px.PURE)"
        )
    if (effect.waits and first_effect.message) or (effect.message and first_effect.waits):
        return f"stays after {name!r}: one waits for a process that may wait for the other"
    if effect.writes or effect.writes_slots:
        return f"writes memory that {name!r} reads or writes before it"
    if first_effect.writes or first_effect.writes_slots:
        return f"reads memory that {name!r} writes"
    return f"has effects that must stay after those of {name!r}"


Units = list[tuple[str, list[int]]]
"""The description of each unit, and the numbers of its nodes."""


def found_units(program: Program) -> Units:
    """Return the outermost regions and preserved calls of a flat program; reads are in none, other nodes in at most one.

    Args:
        program: a flat program.

    >>> from purefx.ir import Graph
    >>> found_units(Program.of({"": Graph((), ())}))
    []
    """
    graph = program.main
    units = (
        _regions(graph.nodes)
        if any(type(do) is Op and do.effects.scope for do in graph.distinct)
        else []
    )
    return _disjoint(units + (_preserved(program) if len(program.call_signatures) else []))


def _disjoint(units: Units) -> Units:
    # A region that begins in a preserved call and ends after it is one unit with the call.
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
        scope = node.declared.scope
        if scope > 0 and depth == 0:
            found.append((f"the region that {shown(node)} opens", []))
        depth += scope
        if (
            (depth > 0 or scope < 0)
            and found
            and type(node.do) is not Get
            and not is_boundary(node)
        ):
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
    return [
        (f"{frame}, whose call signature was preserved,", members)
        for frame, members in units.items()
    ]


def with_units(
    units: Units, nodes: Sequence[Node], wanted: list[int | None], tags: Sequence[str]
) -> list[int | None]:
    """Return the tags, where all nodes of a unit have the tag of the unit.

    Args:
        units: the units.
        nodes: the nodes of the flat program.
        wanted: the number of the tag of each node.
        tags: all tags.

    Raises:
        PartitionError: nodes of one unit have different tags.
    """
    found = list(wanted)
    for what, members in units:
        chosen = {
            found[number]: number for number in reversed(members) if found[number] is not None
        }
        if len(chosen) > 1:
            tagged = " and ".join(
                f"{shown(nodes[number])} {tags[tag or 0]!r}"
                for tag, number in sorted(chosen.items())
            )
            raise PartitionError(
                f"{what} would be cut, but must be in one part: its nodes have several tags: {tagged}"
            )
        for tag in chosen:
            for number in members:
                found[number] = tag
    return found


READ = -1
"""The part of a read of state with users: it is in every part that uses it."""

NONE = -1


@frozen
class Placing:
    """The parts, and the part of each node of a flat program.

    >>> Placing(("a", "b"), (0, 1)).names
    ('a', 'b')
    """

    names: tuple[str, ...]
    of: tuple[int, ...]
    """The number of the part of each node, ``READ`` for reads that follow their users."""


def place(program: Program, tags: tuple[str, ...], tag_of: TagOf) -> Placing:
    """Return the part of each node.

    Args:
        program: a flat program.
        tags: the parts in the order in which they run.
        tag_of: see ``split_by_tags``.

    Raises:
        PartitionError: the order of the tags contradicts the dependencies, or a unit would be cut.

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
    # A unit without a tag goes to the part of its last dependency, or without one to the first part that depends on it.
    low = _raised([NONE if tag is None else tag for tag in wanted], unit, before)
    for number, tag in enumerate(wanted):
        if (
            tag is not None
            and low[number] > tag
            and any(low[other] > tag for other in before[number])
        ):
            raise PartitionError(backward_edge(program, tags, wanted, before, low, number))
    is_read = [type(node.do) is Get and node.name in users for node in nodes]
    if any(part == NONE and not read for part, read in zip(low, is_read, strict=True)):
        low = _raised([max(part, 0) for part in _from_users(low, unit, before)], unit, before)
    return Placing(
        tags, tuple([READ if read else part for read, part in zip(is_read, low, strict=True)])
    )


def _raised(start: list[int], unit: list[int], before: list[list[int]]) -> list[int]:
    # The least parts such that no node is before its dependencies, and each unit is in one part.
    part_of, again = list(start), True
    while again:
        again = False
        for number, earlier in enumerate(before):
            part = max([part_of[unit[other]] for other in earlier]) if earlier else NONE
            if part > part_of[unit[number]]:
                part_of[unit[number]] = part
                again = (
                    again or unit[number] != number
                )  # other nodes of its unit may have users before it
    return [part_of[first] for first in unit]


def _from_users(low: list[int], unit: list[int], before: list[list[int]]) -> list[int]:
    # Nodes whose dependencies have no part go to the first part that depends on them.
    part_of = list(low)
    while True:
        last = list(part_of)
        for number in range(len(part_of) - 1, -1, -1):
            part = part_of[unit[number]]
            for other in [unit[other] for other in before[number]] if part != NONE else ():
                if low[other] == NONE and (part_of[other] == NONE or part < part_of[other]):
                    part_of[other] = part
        if part_of == last:
            return [part_of[first] for first in unit]
