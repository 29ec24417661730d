"""Tags: ``tag_of`` in its three forms becomes a tag for each node; conflicting tags are explained by a dependency path.

Nothing is moved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import frozen

from ...ir.effects.declared import COMMUNICATION, LIBRARIES, NodeEffects
from ...ir.effects.dependencies import in_domains
from ...ir.effects.resolved import node_effects
from ...ir.errors import PartitionError
from ...ir.graph import Get, Graph, Node, Op, Stack
from ...ir.names import did_you_mean
from ...ir.own_operators import is_boundary
from ...ir.program import Program

__all__ = ["ByModule", "TagOf", "backward_edge", "checked_tags", "follows", "wanted_tags"]


@frozen
class ByModule:
    """Tags by path of module, of which the innermost one around a node counts.

    >>> ByModule({"layers.0": "stage0"}).of
    {'layers.0': 'stage0'}
    """

    of: Mapping[str, str]


TagOf = ByModule | Mapping[str, str] | Callable[[Node], str | None] | None
"""A mapping by name of node or path of module, one by path alone, a function of a node, or None: what ``meta["tag"]`` says."""


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags as a tuple.

    Args:
        tags: what the caller passed.

    Raises:
        TypeError: it is not a sequence of strings.
        PartitionError: a tag cannot be the name of a module, or stands there twice.

    >>> checked_tags(["a", "b"])
    ('a', 'b')
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise TypeError(f"tags is a sequence of strings, one for each part in the order in which they run, not {tags!r}")
    found: tuple[Any, ...] = tuple(tags)
    for tag in found:
        if type(tag) is not str:
            raise TypeError(f"a tag is a string, the name of the part; {tag!r} is a {type(tag).__name__}")
        if not tag or any(mark in tag for mark in "./@#") or hasattr(torch.nn.Module, tag) or tag == "training":
            raise PartitionError(
                f"{tag!r} cannot be the name of a part, which is a module of its own: take a name that torch.nn.Module "
                "has not, without any of the characters . / @ #"
            )
    if not found or len(set(found)) < len(found):
        twice = sorted({tag for tag in found if found.count(tag) > 1})
        raise PartitionError(f"tags names each part once; {'there is none' if not found else f'{twice} stand there twice'}")
    return found


def follows(node: Node, graph: Graph) -> bool:
    """Return whether a node follows others, so that its tag is not used.

    Args:
        node: of the flat program.
        graph: the graph that it is in.

    >>> from purefx.ir import Ref
    >>> graph = Graph((), (Node("w", Get("weight")), Node("y", Op("toy.neg"), (Ref("w"),))))
    >>> [follows(node, graph) for node in graph.nodes]
    [True, False]
    """
    do = node.do
    if type(do) is Get:
        return node.name in graph.users
    if node.projection is not None:
        return node.projection[0] in graph.by_name
    return type(do) is Op and (do.effects.scope != 0 or is_boundary(node))


def wanted_tags(program: Program, tags: Sequence[str], tag_of: TagOf) -> list[int | None]:
    """Return for each node of a flat program the number of the tag that it shall have; None if it follows others.

    Args:
        program: a flat program.
        tags: all tags.
        tag_of: see ``split_by_tags``.

    Raises:
        PartitionError: a tag is none of the tags, or a key of a mapping is neither a node nor a module.
        TypeError: ``tag_of`` is none of its forms.
    """
    graph = program.main
    ask = _asking(program, tag_of)
    numbers: dict[Any, int] = {tag: number for number, tag in enumerate(tags)}
    found: list[int | None] = []
    for node in graph.nodes:
        tag = None if follows(node, graph) else ask(node)
        number = None if tag is None else numbers.get(tag) if type(tag) is str else None
        if tag is not None and number is None:
            raise PartitionError(f"{shown(node)} has the tag {tag!r}, which is none of the tags {list(tags)}")
        found.append(number)
    return found


def shown(node: Node) -> str:
    """Return a node as messages name it: its name, its module.

    >>> shown(Node("y", Op("toy.neg")))
    "node 'y'"
    """
    return f"node {node.name!r}" + (f" in {node.stack[-1]}" if node.stack else "")


def _asking(program: Program, tag_of: TagOf) -> Callable[[Node], Any]:
    if isinstance(tag_of, ByModule):
        return _by_module(program, tag_of.of)
    if tag_of is None:
        return lambda node: node.meta.get("tag")
    if isinstance(tag_of, Mapping):
        return _by_mapping(program, tag_of)
    if not callable(tag_of):
        said = "a mapping from names of nodes or paths of modules, or a function of a node"
        raise TypeError(f"tag_of is {said}, not a {type(tag_of).__name__}")
    return tag_of


def _by_module(program: Program, of: Mapping[str, str]) -> Callable[[Node], Any]:
    modules = module_paths(program)
    for path in of:
        if path not in modules:
            raise PartitionError(f"{path!r} is the path of no module{did_you_mean(path, modules)}")
    return _by_stack(of)


def _by_stack(of: Mapping[str, str]) -> Callable[[Node], str | None]:
    known: dict[Stack, str | None] = {}

    def asked(node: Node) -> str | None:
        if node.stack not in known:
            known[node.stack] = innermost(node.stack, of)
        return known[node.stack]

    return asked


def _by_mapping(program: Program, tag_of: Mapping[str, str]) -> Callable[[Node], Any]:
    nodes, modules = program.main.by_name, module_paths(program)
    for key in tag_of:
        if key not in nodes and key not in modules:
            said = "which is neither the name of a node of the flat program nor the path of a module"
            raise PartitionError(f"tag_of has the key {key!r}, {said}{did_you_mean(key, {*modules, *nodes})}")
        if key in nodes and key in modules and innermost(nodes[key].stack, {key: key}) is None:
            raise PartitionError(
                f"tag_of has the key {key!r}, which is the name of a node that is not in the module {key!r}: "
                "say which one is meant with a function of the node, which has `name` and `stack`"
            )
    by_stack = _by_stack({key: tag for key, tag in tag_of.items() if key in modules})
    return lambda node: tag_of[node.name] if node.name in tag_of else by_stack(node)


def innermost(stack: Stack, by_path: Mapping[str, str]) -> str | None:
    """Return the entry of a mapping for the innermost module around a node that it names; None if it names none.

    Args:
        stack: of the node.
        by_path: by path of module; a module stands for those below it.

    >>> from purefx.ir import Frame
    >>> innermost((Frame("a"), Frame("a.b.c")), {"a": 1, "a.b": 2})
    2
    """
    for frame in reversed(stack):
        path = frame.path
        while path:
            if path in by_path:
                return by_path[path]
            path = path.rpartition(".")[0]
    return by_path.get("")


def module_paths(program: Program) -> frozenset[str]:
    """Return the paths of all modules that a flat program lists or is inside of, those above them too.

    Args:
        program: a flat program.

    >>> sorted(module_paths(Program.of({"": Graph((), ())})))
    ['']
    """
    found: set[str] = {"", *(module.path for module in program.modules)}
    for stack in {node.stack for node in program.main.nodes}:
        found.update(frame.path for frame in stack)
    for path in tuple(found):
        above = path.rpartition(".")[0]
        while above not in found:
            found.add(above)
            above = above.rpartition(".")[0]
    return frozenset(found)


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
    done = node_effects(program, program.main)
    first, last = tags[low[path[0]]], tags[wanted[number] or 0]
    steps = [
        f"    {shown(nodes[other])} {_why(nodes[one], done[one], nodes[other], done[other])}" for one, other in pairwise(path)
    ]
    head = f"{shown(nodes[number])} has the tag {last!r}, which comes before {first!r}, but it depends on {shown(nodes[path[0]])}"
    circle = _reaches(before, wanted, low[path[0]], wanted[number] or 0)
    return "\n".join([f"{head} of {first!r}:", *steps, _advice(first, last, circle=circle)])


def _why(node: Node, did: NodeEffects, later: Node, does: NodeEffects) -> str:
    if node.name in later.refs():
        return f"uses {node.name!r}"
    if did.random and does.random:
        return f"draws random numbers after {node.name!r} does"
    if did.ordered and does.ordered:
        return f"is an ordered effect after {node.name!r}"
    if next(in_domains([did.domains, does.domains]), None) is not None:
        return f"stays in order with {node.name!r}: {_domain(did, does)}"
    if did.scope != (0, 0) or does.scope != (0, 0):
        return f"is kept behind {node.name!r} by the boundary of a region"
    if (does.waits and did.message) or (does.message and did.waits):
        return f"keeps its place behind {node.name!r}: one waits for a process that may wait for the other"
    if does.completes:
        return f"waits for what {node.name!r} uses before it"
    if did.completes:
        return f"uses what {node.name!r} waits for"
    if does.writes or does.writes_slots:
        return f"writes what {node.name!r} reads or writes before it"
    return f"reads what {node.name!r} writes"


def _domain(did: NodeEffects, does: NodeEffects) -> str:
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
