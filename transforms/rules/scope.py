"""``Scope``: one graph while rules or edits rewrite it, where it stands, and what is noted at one place of it.

What can be asked and made there is in ``place.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from attrs import Factory, define, field, frozen

from ...ir.calls.call_graph import all_instances, bodies_of
from ...ir.graph import Node, Op
from ...ir.inference import CallValues, values_of
from ...ir.program import Program
from .draws import Draws
from .new_state import Addition, NewState

__all__ = ["Notes", "Places", "Scope"]


class Places:
    """Where the graphs of a program stand, looked for when somebody asks.

    Args:
        program: the program.

    >>> from purefx.ir import Graph
    >>> places = Places(Program.of({"": Graph((), ())}))
    >>> places.of(""), places.decided
    (('',), frozenset())
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def _all(self) -> Mapping[str, tuple[str, ...]]:
        return all_instances(self.program)

    def of(self, graph: str) -> tuple[str, ...]:
        """Return the modules that a graph is the body of."""
        return self._all[graph]

    @cached_property
    def decided(self) -> frozenset[str]:
        """The graphs in which more decides about values than the operators and their operands.

        Operators run them, or what they call them from, or regions are opened in them.
        """
        program, found = self.program, set[str]()
        for name in reversed(program.bottom_up):
            graph = program.graphs[name]
            found.update([body for node in graph.callers if name in found or type(node.do) is Op for body in bodies_of(node)])
            if any(type(do) is Op and do.effects.scope for do in graph.distinct):
                found.add(name)
        return frozenset(found)


@frozen(eq=False)
class Scope:
    """One graph while it is rewritten."""

    program: Program
    graph: str
    """The id of the graph; a body that several modules share is rewritten once."""
    places: Callable[[], tuple[str, ...]] = field(repr=False)
    """Gives its ``paths``; who does not ask for them need not look for all calls."""
    known: Mapping[str, Any] = field(repr=False)
    """The fake values of the graph, by name."""
    node_of: Callable[[str], Node | None] = field(repr=False)
    """The node that computes a value by now; None for an input."""
    state: NewState = field(repr=False)
    calls: CallValues = field(repr=False)
    """The fake values of each call, where those that share the graph have others."""
    is_changed: Callable[[str], bool] | None = field(default=None, repr=False)
    """Says whether something writes the memory of a value; None where it is not asked."""
    _at: dict[int, Mapping[str, Any]] = field(factory=dict, repr=False, init=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules that it is the body of, from the root; one path alone where it is not shared."""
        return self.places()

    def values_at(self, instance: int) -> Mapping[str, Any]:
        """Return the fake values at one instance, by name; those that differ between its calls are left out."""
        if instance not in self._at:
            several = [values_of(graph) for graph in self.calls.at(self.graph, self.paths[instance])]
            first = several[0]
            self._at[instance] = first if len(several) == 1 else {}
        return self._at[instance]


@define(eq=False)
class Notes:
    """What was asked and made at one place, for one instance."""

    asked: bool = False
    """Whether the instance was asked for."""
    added: dict[str, Addition] = Factory(dict)
    """New state, by the name that the body writes."""
    dropped: dict[str, None] = Factory(dict)
    """State that goes once it is not read, likewise."""
    reads: dict[str, None] = Factory(dict)
    """The reads of such state."""
    draws: Draws = Factory(Draws)
