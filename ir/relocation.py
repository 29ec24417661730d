"""``Relocation``: the paths that a body writes, written for another place.

A body names state, the modules that it calls and the calls around its nodes relative to the module that it stands in.  Whoever
moves nodes into another body, or below another module, says once how a path is written there.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from .graph import Call, Do, Frame, Get, Graph, Node, Stack


@define(eq=False)
class Relocation:
    """Writes paths in another way; what is written alike stays the same object.

    >>> below = Relocation(lambda path: f"a.{path}")
    >>> below.do(Get("weight")), below.stack((Frame("b", 1),))
    (Get(slot='a.weight'), (Frame(path='a.b', call=1),))
    """

    way: Callable[[str], str]
    """Gives the path as it is written in the new place."""
    outer: Stack = ()
    """The calls that are around all nodes there."""
    _frames: dict[Frame, Frame] = field(factory=dict, init=False)
    _stacks: dict[int, tuple[Stack, Stack]] = field(factory=dict, init=False)
    """By the id of a stack, which is held here: hashing all frames of each node takes longer than the rest."""

    def do(self, do: Do) -> Do:
        """Return what a node does there."""
        if type(do) is Get:
            path = self.way(do.slot)
            return do if path == do.slot else Get(path)
        if type(do) is Call:
            frame = self.frame(do.instance)
            return do if frame is do.instance else Call(frame, do.graph)
        return do

    def frame(self, frame: Frame) -> Frame:
        """Return a call as it is named there."""
        path = self.way(frame.path)
        return frame if path == frame.path else Frame(path, frame.call)

    def stack(self, stack: Stack) -> Stack:
        """Return the calls around a node as they are named there; nodes of one call share one tuple."""
        if not stack:
            return self.outer
        known = self._stacks.get(id(stack))
        if known is None:
            made = (*self.outer, *self.frames(stack))
            known = self._stacks[id(stack)] = stack, stack if made == stack else made
        return known[1]

    def frames(self, stack: Stack) -> Stack:
        """Return those of the calls around a node that are around it there too, as they are named there."""
        known = self._frames
        return tuple([known.get(frame) or known.setdefault(frame, self.frame(frame)) for frame in stack])

    def node(self, node: Node) -> Node:
        """Return a node as it is written there."""
        return node.evolve(do=self.do(node.do), stack=self.stack(node.stack))

    def graph(self, graph: Graph) -> Graph:
        """Return a body as it is written there."""
        return graph.with_nodes(map(self.node, graph.nodes))
