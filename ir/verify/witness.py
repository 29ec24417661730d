"""``Witness``: what the maker of a graph saw of it while it made it, so that ``verify`` need not look for it again.

It is no opinion: whoever reads a graph node by node knows which values are defined, which operators there are and of which types
their arguments are.  It speaks of a graph that was well-formed when it was made; where something was in doubt there is none.  A
later change of the stacks alone, as import makes, leaves the rest of it true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from attrs import field, frozen

from ..graph import Graph, Node, Op, Stack

__all__ = ["SoundStacks", "Witness"]


@frozen(eq=False)
class SoundStacks:
    """Stacks in which no rule finds anything, neither in one alone nor in all of them as those of one root graph.

    >>> id(()) in SoundStacks(((),)).ids
    True
    """

    stacks: tuple[Stack, ...] = field(repr=False)
    """They are held, so that no other object gets the ``id`` of one."""

    @cached_property
    def ids(self) -> frozenset[int]:
        """Their ids, and that of the empty stack."""
        return frozenset([id(()), *map(id, self.stacks)])


@frozen(eq=False)
class Witness:
    """What is known of a graph that is well-formed but for its stacks.

    >>> Witness(Graph((), ()), {}, (), (), ()).speaks_of(Graph((), ()))
    True
    """

    graph: Graph
    """The graph as it was made."""
    ops: Mapping[int, tuple[Op, int]]
    """Each distinct ``Op`` object by its ``id``, with the position of the first node that has it."""
    projections: Sequence[int]
    """The positions of the nodes that take an item."""
    bodies: Sequence[tuple[int, str]]
    """The graphs that are given to operators, with the positions of those."""
    asked: Sequence[int]
    """The positions of nodes that stand for all: any other calls what one of these calls, with arguments of the same types."""
    stacks: SoundStacks | None = None

    def speaks_of(self, graph: Graph) -> bool:
        """Return whether what is known is true of a graph: of the same one, or one that differs in stacks alone.

        Args:
            graph: any graph.
        """
        mine = self.graph
        if graph is mine:
            return True
        if len(graph.nodes) != len(mine.nodes) or len(graph.inputs) != len(mine.inputs) or graph.output is not mine.output:
            return False
        return all(one is other for one, other in zip(graph.inputs, mine.inputs, strict=True)) and all(
            one is other or _same_but_stack(one, other) for one, other in zip(graph.nodes, mine.nodes, strict=True)
        )


def _same_but_stack(one: Node, other: Node) -> bool:
    if one.name is not other.name or one.do is not other.do or one.meta is not other.meta:
        return False
    return one.args is other.args and one.kwargs is other.kwargs
