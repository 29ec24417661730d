"""``Places``: the bodies where they stand, which calls of a module each of them is, and how the pieces of cut calls lie.

A body and the path of the module that it stands in are one instance; a call of a module is one call with all of its pieces,
wherever those stand.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from ..ir.calls.call_graph import Instance, Label, heights, with_inner_instances
from ..ir.graph import Call
from ..ir.names import join
from ..ir.program import Program
from ..ir.verify import check

__all__ = ["Called", "Label", "Places", "below"]

Called = tuple[str, int]
"""A call of a module, with all of its pieces: the path of the module, and the call number."""


class Places:
    """The bodies where they stand in the hierarchy, and which calls of its module each of them is."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rank = {name: index for index, name in enumerate(program.bottom_up)}
        self.inner: dict[Instance, list[Instance]] = {}
        """For each body, in calling order, those that it calls or gives to operators, in order."""
        self.labels: dict[Instance, list[Label]] = {}
        """The calls that run a body, as far as no other body has the same number there."""
        self.pieces: dict[Called, dict[int, Instance]] = {}
        """The bodies that each call of a module runs, by part."""
        for outer, inner in with_inner_instances(program):
            self.inner[outer] = inner
            self._number_calls(outer)
            if any(self.rank.get(name, math.inf) >= self.rank[outer[0]] for name, _ in inner):
                check(program)  # a body that reaches itself or is missing stands nowhere: this raises, and says where

    def _number_calls(self, outer: Instance) -> None:
        for node in self.program.graphs[outer[0]].callers:
            if type(do := node.do) is Call:
                path, call, part = below(outer[1], do), do.instance.call, do.instance.part
                pieces = self.pieces.setdefault((path, call), {})
                if part not in pieces:
                    found = pieces[part] = do.graph, path
                    self.labels.setdefault(found, []).append((call, part))

    @cached_property
    def cut(self) -> Mapping[Called, Sequence[Instance]]:
        """The calls that several bodies run, each with those."""
        return {call: tuple(pieces.values()) for call, pieces in self.pieces.items() if len(pieces) > 1}

    @cached_property
    def heights(self) -> Mapping[Instance, int] | None:
        """How deep each instance nests; None where pieces of calls need one another, which then nest in no order.

        An instance nests deeper than all pieces of the calls that it runs a piece of, so equal calls of a module, whose pieces
        are equal one by one, nest equally deep.
        """
        if not self.cut:
            return self._heights_of_bodies()
        heights: dict[Instance, int] = {}
        needs = {instance: {*inner, *self._siblings(instance)} for instance, inner in self.inner.items()}
        try:
            for instance in TopologicalSorter(needs).static_order():
                heights[instance] = 1 + max([heights[inner] for inner in needs[instance]], default=-1)
        except CycleError:
            return None
        return heights

    def _siblings(self, outer: Instance) -> Iterator[Instance]:
        for node in self.program.graphs[outer[0]].callers:
            if type(node.do) is Call:
                yield from self.cut.get((below(outer[1], node.do), node.do.instance.call), ())

    def _heights_of_bodies(self) -> dict[Instance, int]:
        # How deep each instance nests, whatever else is of the calls that it runs a piece of.
        found = heights(self.program)
        return {instance: found[instance[0]] for instance in self.inner}

    def innermost_first(self) -> list[Instance]:
        """Return the instances, each after those that it calls and after all that nest no deeper than those.

        Equal bodies of a module nest equally deep: when a caller comes, every body that may be equal to one that it calls was
        there.
        """
        depth = self._heights_of_bodies() if self.heights is None else self.heights
        return sorted(self.inner, key=lambda instance: (depth[instance], self.rank[instance[0]]))

    @cached_property
    def _runs(self) -> Mapping[str, Sequence[Sequence[Label]]]:
        # For each module with cut calls the pieces that run in one call, in order, for each such call.
        found: dict[tuple[Hashable, str], list[Label]] = {}
        for outer in self.inner:
            labels = self.labels.get(outer)
            around: Hashable = (outer[1], labels[0][0]) if labels else outer
            for node in self.program.graphs[outer[0]].callers:
                if type(do := node.do) is Call and ((path := below(outer[1], do)), do.instance.call) in self.cut:
                    last = (node.stack[-1].path, node.stack[-1].call) if node.stack else around
                    found.setdefault((last, path), []).append((do.instance.call, do.instance.part))
        runs: dict[str, list[Sequence[Label]]] = {}
        for (_, path), labels in found.items():
            runs.setdefault(path, []).append(labels)
        return runs

    def crossed(self, path: str, calls: Collection[int]) -> frozenset[int]:
        """Return those of some equal calls of a module that must keep their numbers.

        Pieces that are called alike belong together in the order in which they run; where the second pieces run in another
        order than the first ones, only numbers say which belong together.
        """
        found: set[int] = set()
        for labels in self._runs.get(path, ()):
            orders: dict[int, list[int]] = {}
            for call, part in labels:
                if call in calls:
                    orders.setdefault(part, []).append(call)
            first, *others = orders.values() or ([],)
            if any(order != first for order in others):
                found.update(*orders.values())
        return frozenset(found)


def below(path: str, call: Call) -> str:
    """Return the path of the module that a body calls, from the path of the module that it stands in."""
    return join(path, call.instance.path)
