"""The plan: what becomes of every body, where it stands.

One idea: a body may be shared, and stand in many modules, of which one is swapped; so what becomes of it is decided for each
pair of body and path.  Pairs of which the same becomes share a graph again, and what nothing becomes of stays the same object.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from attrs import define, field, frozen

from ...ir.callers import Standing, called_at
from ...ir.graph import Graph
from ...ir.names import Names
from ...ir.program import Program
from .bodies import Changes, Swap, rewritten
from .state import covering

__all__ = ["Decision", "instances", "new_graphs"]


def instances(program: Program, swapped: Mapping[str, Any]) -> list[Standing]:
    """Return the bodies where they stand, each after those that it calls; those of swapped modules are left out.

    >>> from purefx.ir import Graph, Program
    >>> instances(Program.of({"": Graph((), ())}), {})
    [('', '')]
    """
    done: dict[Standing, None] = {}
    opened: set[Standing] = set()
    todo = [((program.root, ""), False)]
    while todo:
        place, closing = todo.pop()
        if closing:
            done.setdefault(place)
        elif place not in opened:
            opened.add(place)
            todo.append((place, True))
            inner = [found for node in program.graphs[place[0]].callers for found in called_at(node, place[1])]
            todo.extend((found, False) for found in reversed(inner) if covering(swapped, found[1]) is None)
    return list(done)


@frozen(eq=False)
class Decision:
    """What is done in one body at one place, besides what its callees have become."""

    swaps: dict[str, Swap]
    slots: dict[str, str]

    @property
    def key(self) -> Hashable:
        """Equal for decisions that give the same graph."""
        swaps = [(name, id(swap.graft), swap.order, swap.through, tuple(swap.kept.items())) for name, swap in self.swaps.items()]
        return tuple(swaps), tuple(self.slots.items())


def new_graphs(program: Program, decisions: Mapping[Standing, Decision], names: Names) -> dict[str, Graph]:
    """Return the graphs of the program, each as what it has become; more of them where a shared body has become several.

    Args:
        program: the program.
        decisions: what is done in the bodies where they stand, callees first.
        names: ids of graphs that are taken.
    """
    work = _Renewal(program, decisions, names)
    for place in decisions:
        work.renew(place)
    return work.graphs


@define
class _Renewal:
    program: Program
    decisions: Mapping[Standing, Decision]
    names: Names
    graphs: dict[str, Graph] = field(factory=dict)
    ids: dict[Standing, str] = field(factory=dict)
    """What became of a body at a place."""
    made: dict[tuple[str, Hashable], str] = field(factory=dict)
    touched: set[Standing] = field(factory=set)
    kept: set[str] = field(factory=set)
    """Bodies that stay as they are in some place, or whose id went to the first that came of them."""

    def __attrs_post_init__(self) -> None:
        for place, decision in self.decisions.items():
            if decision.swaps or decision.slots or not self.touched.isdisjoint(self._inner(place, decision)):
                self.touched.add(place)
        self.kept.update(place[0] for place in self.decisions if place not in self.touched)
        self.made.update({(name, None): name for name in self.kept})

    def _inner(self, place: Standing, decision: Decision) -> list[Standing]:
        callers = self.program.graphs[place[0]].callers
        return [found for node in callers if node.name not in decision.swaps for found in called_at(node, place[1])]

    def renew(self, place: Standing) -> None:
        """Make the graph of a body at a place, where it is not there yet."""
        name, path = place
        graph, decision = self.program.graphs[name], self.decisions[place]
        if place not in self.touched:
            self.ids[place], self.graphs[name] = name, graph
            return
        callees: dict[tuple[str, str], str] = {}
        for node in graph.callers:
            if node.name not in decision.swaps:
                callees.update({(node.name, body): self.ids[body, where] for body, where in called_at(node, path)})
        # What it calls may have become something else under the same id: then it is what it was.
        same = all(body == became for (_, body), became in callees.items()) and not (decision.swaps or decision.slots)
        key = (name, None if same else (decision.key, tuple(callees.items())))
        if key not in self.made:
            self.made[key] = self.names.fresh(name) if name in self.kept else name
            self.kept.add(name)
            changes = Changes(decision.swaps, callees, decision.slots)
            self.graphs[self.made[key]] = graph if same else rewritten(graph, changes)
        self.ids[place] = self.made[key]
