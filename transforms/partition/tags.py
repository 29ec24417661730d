"""Tags: ``tag_of`` in its three forms becomes a tag for each node; conflicting tags are explained by a dependency path.

Nothing is moved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import frozen

from ...ir.effects.declared import LIBRARIES, NodeEffects
from ...ir.effects.resolved import node_effects
from ...ir.errors import PartitionError
from ...ir.graph import Get, Graph, Node, Op
from ...ir.names import did_you_mean
from ...ir.own_operators import is_boundary
from ...ir.program import Program

__all__ = ["ByModule", "TagOf", "backward_edge", "checked_tags", "follows", "wanted_tags"]


@frozen
class ByModule:
    """Tags by path of module, of which the innermost one around a node counts.

    >>> from purefx.ir import Frame
    >>> ByModule({"layers.0": "stage0"})(Node("y", Op("toy.neg"), stack=(Frame("layers.0.up"),)))
    'stage0'
    """

    of: Mapping[str, str]

    def __call__(self, node: Node) -> str | None:
        """Return the tag of a node."""
        for frame in reversed(node.stack):
            path = frame.path
            while path:
                if path in self.of:
                    return self.of[path]
                path = path.rpartition(".")[0]
        return self.of.get("")


TagOf = Mapping[str, str] | Callable[[Node], str | None] | None
"""A mapping by name of node or path of module, a function of a node, or None: what ``meta["tag"]`` says."""


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
    if tag_of is None:
        return lambda node: node.meta.get("tag")
    if isinstance(tag_of, Mapping):
        return _by_mapping(program, tag_of)
    if not callable(tag_of):
        said = "a mapping from names of nodes or paths of modules, or a function of a node"
        raise TypeError(f"tag_of is {said}, not a {type(tag_of).__name__}")
    return tag_of


def _by_mapping(program: Program, tag_of: Mapping[str, str]) -> Callable[[Node], Any]:
    nodes, modules = program.main.by_name, module_paths(program)
    for key in tag_of:
        if key not in nodes and key not in modules:
            said = "which is neither the name of a node of the flat program nor the path of a module"
            raise PartitionError(f"tag_of has the key {key!r}, {said}{did_you_mean(key, {*modules, *nodes})}")
        if key in nodes and key in modules and ByModule({key: key})(nodes[key]) is None:
            raise PartitionError(
                f"tag_of has the key {key!r}, which is the name of a node that is not in the module {key!r}: "
                "pass a function of the node, which has `name` and `stack`"
            )
    by_module = ByModule({key: tag for key, tag in tag_of.items() if key in modules})
    return lambda node: tag_of[node.name] if node.name in tag_of else by_module(node)


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
    nodes, tag = program.main.nodes, wanted[number] or 0
    path = [number]
    while earlier := [other for other in before[path[-1]] if low[other] > tag]:
        path.append(max(earlier, key=lambda other: low[other]))
        if wanted[path[-1]] is not None:
            break
    path.reverse()
    done = node_effects(program, program.main)
    first, last = tags[low[path[0]]], tags[tag]
    steps = [
        f"    {shown(nodes[other])} {_why(nodes[one], done[one], nodes[other], done[other])}" for one, other in pairwise(path)
    ]
    head = f"{shown(nodes[number])} has the tag {last!r}, which comes before {first!r}, but it depends on {shown(nodes[path[0]])}"
    return "\n".join([f"{head} of {first!r}:", *steps, f"put {first!r} before {last!r} in the tags, or tag differently"])


def _why(node: Node, did: NodeEffects, later: Node, does: NodeEffects) -> str:
    name = node.name
    if name in later.refs():
        return f"uses {name!r}"
    if did.random and does.random:
        return f"draws random numbers after {name!r} does"
    if any(key[0] == LIBRARIES for key in (*did.domains, *does.domains) if key):
        return (
            f"stays in order with {name!r}: operators of other libraries may log or count; where one does not, say so with "
            "px.declare(op, px.PURE)"
        )
    if (does.waits and did.message) or (does.message and did.waits):
        return f"keeps its place behind {name!r}: one waits for a process that may wait for the other"
    if does.writes or does.writes_slots:
        return f"writes what {name!r} reads or writes before it"
    if did.writes or did.writes_slots:
        return f"reads what {name!r} writes"
    return f"has effects that stay behind those of {name!r}"
