"""Regions whose nodes come back without the modules around them: no_grad, autocast, vmap.

One idea: what lost its module stands in the innermost call around it.  A strict export that was decomposed says that the
nodes of a region are in the root, and names the region operator that they came from: such a run of nodes stands in the
innermost call that holds all that it takes and all that uses it; which modules were called inside is lost.  And a strict
export writes the body of a vmap between two plain functions, and says of the closing one that it is in the root: it stands
in the innermost call that holds its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve

from ..node import Node, Op, Stack, common_prefix

__all__ = ["is_from_region", "place_borders", "place_regions"]


def is_from_region(meta: Mapping[str, Any]) -> bool:
    """Say whether the meta of a node names a region operator as where it was traced.

    >>> is_from_region({"torch_fn": ("wrap_with_set_grad_enabled", "")}), is_from_region({})
    (True, False)
    """
    origin: Any = meta.get("torch_fn")
    return isinstance(origin, tuple) and bool(origin) and str(origin[0]).startswith("wrap_with_")


def place_regions(nodes: list[Node], strays: Collection[str], outside: Collection[str]) -> list[Node]:
    """Return nodes in which those that strayed from a region stand in the call around them.

    Args:
        nodes: the nodes of a graph.
        strays: the names of nodes in no call that were in a region.
        outside: values that the graph takes from the caller or gives back.

    >>> from purefx.ir import Frame, Op, Ref
    >>> neg, stack = Op("toy.neg"), (Frame("m"),)
    >>> a, b, c = Node("a", neg, (), (), stack), Node("b", neg, (Ref("a"),)), Node("c", neg, (Ref("b"),), (), stack)
    >>> place_regions([a, b, c], {"b"}, ())[1].stack == stack
    True
    """
    stacks = {node.name: node.stack for node in nodes}
    users: dict[str, list[str]] = {}
    for node in nodes:
        for name in node.refs():
            users.setdefault(name, []).append(node.name)
    placed: list[Node] = []
    run: list[Node] = []
    for node in [*nodes, None]:
        if node is not None and node.name in strays:
            run.append(node)
            continue
        if run:
            stack = _around(run, stacks, users, outside)
            placed.extend([evolve(stray, stack=stack) if stack else stray for stray in run])
            run = []
        if node is not None:
            placed.append(node)
    return placed


def place_borders(nodes: list[Node]) -> list[Node]:
    """Return nodes in which the borders of regions stand in the innermost call that holds their neighbours.

    Args:
        nodes: the nodes of a graph.

    >>> from purefx.ir import Effects, Frame, Op
    >>> neg, leave, stack = Op("toy.neg"), Op("toy.leave", Effects(scope=-1)), (Frame("m"),)
    >>> nodes = [Node("a", neg, (), (), stack), Node("b", leave), Node("c", neg, (), (), stack)]
    >>> place_borders(nodes)[1].stack == stack
    True
    """
    following: Stack | None = None
    after: list[Stack | None] = []
    for node in reversed(nodes):
        after.append(following)
        following = following if _is_border(node) else node.stack
    placed: list[Node] = []
    before: Stack | None = None
    for node, behind in zip(nodes, reversed(after), strict=True):
        if not _is_border(node):
            before = node.stack
        inner = common_prefix([before, behind]) if before is not None and behind is not None and _is_border(node) else ()
        placed.append(evolve(node, stack=inner) if len(inner) > len(node.stack) else node)
    return placed


def _is_border(node: Node) -> bool:
    return type(node.do) is Op and node.do.effects.scope != 0


def _around(run: list[Node], stacks: Mapping[str, Stack], users: Mapping[str, list[str]], outside: Collection[str]) -> Stack:
    members = {node.name for node in run}
    neighbours = [name for node in run for name in (*node.refs(), *users.get(node.name, ())) if name not in members]
    if any(name in outside for name in (*members, *(name for name in neighbours if name not in stacks))):
        return ()
    return common_prefix([stacks[name] for name in neighbours if name in stacks])
