"""Arguments: what leaves a preserved call unnamed and is what the call was given, the very object, is used as that.

One idea: the exporter calls an object after the last operator that gave it back, so what a parent uses after its child said
``x.to(x.dtype)`` is called the child's, and is still the parent's own ``x``.  Whoever stands in for the child need not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...ir.arguments import Ref, replace_refs
from ...ir.fakes import operand_given_back, values_of
from ...ir.graph import Graph
from ...ir.names import Names
from ...ir.node import Get, Node, Stack, common_prefix
from ...ir.program import Program
from ...ir.state import reading_place
from ..fuel import Fuel
from ..metas import alike
from .crossings import Crossing, Leaves, is_given, user_stack

__all__ = ["used_as_given"]


def used_as_given(program: Program, leaves: Leaves, crossed: Sequence[Crossing], fuel: Fuel) -> Program:
    """Return a program in which what a preserved call was given goes by the name that it had before.

    Args:
        program: one whose state is sunk.
        leaves: what its preserved calls take and give.
        crossed: the uses that those hide.
        fuel: a rewrite is one use.
    """
    work = _Objects(program, leaves)
    count = len(program.main.nodes)
    for crossing in crossed:
        user = program.main.nodes[crossing.used] if crossing.used < count else None
        work.use(crossing.value, crossing.used, () if user is None else user_stack(user), fuel)
    return work.program()


class _Objects:
    def __init__(self, program: Program, leaves: Leaves) -> None:
        self.source = program
        self.graph = program.main
        self.leaves = leaves
        self.instead: dict[int, dict[str, Ref]] = {}
        """For the number of a user, what it uses instead; the output of the root is the last."""
        self.before: dict[int, list[Node]] = {}
        self.read: dict[tuple[str, Stack], str] = {}
        """The reads that were added, by slot and place."""

    @cached_property
    def values(self) -> dict[str, Any]:
        return values_of(self.graph)

    @cached_property
    def names(self) -> Names:
        return Names([*(formal.name for formal in self.graph.inputs), *(node.name for node in self.graph.nodes)])

    def use(self, name: str, number: int, stack: Stack, fuel: Fuel) -> None:
        """Let a user use what a value is, if that was given to the calls that hide it."""
        made = self.graph.by_name[name].stack
        giving = self._giving(name, made, stack)
        if number < len(self.graph.nodes) and is_given(self.graph.nodes[number]):
            giving = giving or stack
        found = self._object(name, giving or stack)
        if giving and not self._is_inside(found, giving):
            return
        if found is None or not fuel.burn("use", found, "for", name):
            return
        node = self.graph.by_name.get(found)
        if node is not None and type(node.do) is Get and self.leaves.hides(found, node.stack, stack):
            found = self._again(node, node.do.slot, number, stack)
        self.instead.setdefault(number, {})[name] = Ref(found)

    def _object(self, name: str, stack: Stack) -> str | None:
        # The value that is the same object, and that the user may have; state can be read anywhere.
        begin = name
        while (node := self.graph.by_name.get(name)) is not None and self.leaves.hides(name, node.stack, stack):
            if type(node.do) is Get:
                break
            if self._giving(name, node.stack, stack):
                return None
            step = operand_given_back(self.graph, name, self.values)
            if step is None or not self._fits(step, name):
                return None
            name = step
        return name if name != begin else None

    def _giving(self, name: str, made: Stack, stack: Stack) -> Stack:
        # The innermost call that gives a value back, of those that it leaves: from there on it goes by what that one calls it.
        for depth in range(len(made), len(common_prefix([made, stack])), -1):
            if name in self.leaves.gives.get(made[depth - 1], ()):
                return made[:depth]
        return ()

    def _is_inside(self, name: str | None, giving: Stack) -> bool:
        # What was made in the call that gives it back is that result; what was given to it may be meant as the argument as well.
        node = self.graph.by_name.get(name) if name is not None else None
        return node is not None and type(node.do) is not Get and node.stack[: len(giving)] == giving

    def _fits(self, operand: str, name: str) -> bool:
        # What an operator in place made of another shape is not what its operand is said to be.
        mine, theirs = self.values.get(operand), self.values.get(name)
        return mine is None or theirs is None or alike(mine, theirs)

    def _again(self, node: Node, slot: str, number: int, stack: Stack) -> str:
        depth, name = reading_place(self.source.state, slot, stack)
        place = (name, stack[:depth])
        if place not in self.read:
            self.read[place] = self.names.fresh(node.name)
            read = Node(self.read[place], Get(name), (), (), stack[:depth], node.meta)
            self.before.setdefault(number, []).append(read)
        return self.read[place]

    def program(self) -> Program:
        """Return the program with what is used instead; the same object where nothing is."""
        if not self.instead:
            return self.source
        nodes: list[Node] = []
        for number, node in enumerate(self.graph.nodes):
            nodes += self.before.get(number, ())
            nodes.append(node.using(self.instead[number]) if number in self.instead else node)
        count = len(self.graph.nodes)
        nodes += self.before.get(count, ())
        output = replace_refs(self.graph.output, self.instead.get(count, {}))
        return self.source.with_main(Graph(self.graph.inputs, tuple(nodes), output))
