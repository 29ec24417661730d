"""Crossings: values that are used outside a preserved call that makes them, or inside one, and that its signature hides.

One idea: a value leaves every call on its stack that is not on its user's; where one of those has a preserved signature,
the value must be a leaf of its result, or it crosses.  Likewise it enters every call on its user's stack that is not on its
own: whoever stands in for that module reads the state, so a version of the state must be there by then.  Other values
that enter unnamed harm nobody: a stand-in does not need them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from ...ir.arguments import Ref
from ...ir.borders import GIVES, TAKES
from ...ir.node import Frame, Node, Op, Stack, common_prefix
from ...ir.program import Program

__all__ = ["Crossing", "Leaves", "crossings", "is_given", "user_stack"]


@frozen
class Crossing:
    """One use of a value beyond the border of a preserved call that does not name it."""

    value: str
    used: int
    """The number of the node that uses it; the number of nodes for the output of the root."""


class Leaves:
    """What the preserved calls of a flat program take and give."""

    def __init__(self, program: Program) -> None:
        self.takes: dict[Frame, tuple[str, ...]] = {}
        self.gives: dict[Frame, frozenset[str]] = {}
        for node in program.main.nodes:
            if type(node.do) is Op and node.stack and node.stack[-1] in program.call_signatures:
                names = [leaf.name for leaf in node.args if type(leaf) is Ref]
                if node.do.name == TAKES.name:
                    self.takes[node.stack[-1]] = tuple(names)
                elif node.do.name == GIVES.name:
                    self.gives[node.stack[-1]] = frozenset(names)

    def hides(self, name: str, made: Stack, user: Stack) -> bool:
        """Say whether a value gets from where it is made to a user past a signature that does not name it."""
        return _passes(name, made, user, self.gives)

    def enters(self, name: str, made: Stack, user: Stack) -> bool:
        """Say whether a value gets into a preserved call that does not take it."""
        return _passes(name, user, made, self.takes)

    def crosses(self, name: str, made: Stack, user: Stack) -> bool:
        """Say whether a value gets past a signature that does not name it, one way or the other."""
        return made is not user and (self.hides(name, made, user) or self.enters(name, made, user))


def _passes(name: str, inner: Stack, outer: Stack, named: Mapping[Frame, Collection[str]]) -> bool:
    # Whether a value is on both sides of the border of a call that does not name it.
    unnamed = [depth for depth, frame in enumerate(inner) if frame in named and name not in named[frame]]
    return bool(unnamed) and unnamed[-1] >= len(common_prefix([inner, outer]))


def user_stack(node: Node) -> Stack:
    """Return the calls around the use of a value: what a call takes is used by its caller."""
    return node.stack[:-1] if type(node.do) is Op and node.do.name == TAKES.name else node.stack


def is_given(node: Node) -> bool:
    """Say whether a node names the results of a preserved call."""
    return type(node.do) is Op and node.do.name == GIVES.name


def crossings(program: Program, leaves: Leaves) -> Iterator[Crossing]:
    """Yield every use of a value that a preserved signature hides, in order of use."""
    nodes = program.main.nodes
    made = {node.name: node.stack for node in nodes}
    for number, node in enumerate(nodes):
        stack = user_stack(node)
        for name in dict.fromkeys(node.refs()):
            if name in made and leaves.crosses(name, made[name], stack):
                yield Crossing(name, number)
    for name in dict.fromkeys(program.main.output_refs()):
        if name in made and leaves.hides(name, made[name], ()):
            yield Crossing(name, len(nodes))
