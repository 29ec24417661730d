"""Cutting out some module calls only, because the fuel is not enough for all.

One idea: calls are cut out in the order in which they end, inner ones first, so those that are not stay flat in the root
and outlining again finishes the work.  While the others are cut, the nodes bear the inner part of their stacks only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from ...ir.node import Call, Node, Stack
from ...ir.program import Program
from ..fuel import Fuel

__all__ = ["cut_some", "what_fuel_allows"]


def what_fuel_allows(program: Program, fuel: Fuel) -> Collection[Stack] | None:
    """Return the calls that may be cut out, each as the stack of its nodes; None for all.

    Args:
        program: its root carries module stacks.
        fuel: is asked for each call, in the order of their last nodes.
    """
    if not fuel.limited:
        return None
    ends: dict[Stack, tuple[int, int]] = {}
    sizes: dict[Stack, int] = {}
    for number, node in enumerate(program.main.nodes):
        for depth in range(1, len(node.stack) + 1):
            ends[node.stack[:depth]] = (number, -depth)
            sizes[node.stack[:depth]] = sizes.get(node.stack[:depth], 0) + 1
    allowed: set[Stack] = set()
    for call in sorted(ends, key=ends.__getitem__):
        if not fuel.burn("cut out", call[-1], f"({sizes[call]} {'node' if sizes[call] == 1 else 'nodes'})"):
            return allowed
        allowed.add(call)
    return None


def cut_some(program: Program, allowed: Collection[Stack], cut: Callable[[Program], Program]) -> Program:
    """Return the program with some of its module calls cut out.

    Args:
        program: its root carries module stacks.
        allowed: the calls, and with each those inside it.
        cut: cuts out all calls of a program.
    """
    if not allowed:
        return program
    outer: dict[Stack, Stack] = {}
    """For each stack the part of it that stays."""
    stays: dict[str, Stack] = {}
    callers: dict[tuple[str, int], Stack] = {}
    nodes: list[Node] = []
    for node in program.main.nodes:
        kept = outer.get(node.stack)
        if kept is None:
            kept = outer[node.stack] = _outer(node.stack, allowed)
        inner = node.stack[len(kept) :]
        stays[node.name] = kept
        if inner:
            callers[inner[0].path, inner[0].call] = kept
        nodes.append(evolve(node, stack=inner) if kept else node)
    result = cut(program.with_main(evolve(program.main, nodes=tuple(nodes))))

    def placed(node: Node) -> Node:
        # A call is named after the value that it gives back, or else bears a new name.
        stack = stays.get(node.name)
        if stack is None and type(node.do) is Call:
            stack = callers[node.do.instance.path, node.do.instance.call]
        return evolve(node, stack=stack) if stack else node

    return result.with_main(evolve(result.main, nodes=tuple([placed(node) for node in result.main.nodes])))


def _outer(stack: Stack, allowed: Collection[Stack]) -> Stack:
    depth = len(stack)
    while depth and stack[:depth] in allowed:
        depth -= 1
    return stack[:depth]
