"""``Survey``: what the rules look at, gathered in one walk over the graphs that the root reaches.

One idea: facts are collected once (calls, reads, stacks, operators, tables without garbage) and every rule is a loop
over a small collection.  A graph that passes the fast screen is never walked again.  It judges nothing but types.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..arguments import Body
from ..graph import Graph, Input
from ..node import Call, Get, Node, Op
from ..program import Module, Program
from ..signature import Constraints, Signature
from ..state import Slot, State
from .kinds import leaves, short
from .rule import Finding
from .screen import GETITEM, Census, Ops, Screen
from .well_formed import MAP_TYPE, graph_faults, is_formal, node_faults, slot_faults

__all__ = ["Survey"]


class Survey:
    """A program as the rules see it.

    Args:
        program: what to look at; any of its fields may be garbage.
        thorough: doubt every graph, so that the rules walk all of them; for tests of the fast screen.

    >>> from purefx.ir import Graph, Program
    >>> list(Survey(Program.of({"": Graph((), (), ())})).censuses)
    ['']
    """

    def __init__(self, program: Program, *, thorough: bool = False) -> None:
        self.program = program
        self.thorough = thorough
        self.table_faults: list[Finding] = []
        self.root: str = program.root if type(program.root) is str else ""
        self.graphs: dict[str, Graph] = self._graphs(program.graphs)
        state: Any = program.state
        self.state: State = state if type(state) is State else State()
        self.slots: dict[str, Slot] = dict(self.state.pairs) if self.state.checked else self._slots(self.state.slots)
        self.signature: Signature = program.signature if type(program.signature) is Signature else Signature()
        self.constraints: Constraints = program.constraints if type(program.constraints) is Constraints else Constraints()
        modules: Any = program.modules
        self.modules: list[Module] = [m for m in modules if type(m) is Module] if type(modules) is tuple else []
        self.screen = Screen()
        self.ops: Ops = self.screen.ops
        self.censuses: dict[str, Census] = {}
        """The graphs that the root reaches, each before those that it calls."""
        self.suspects: list[Census] = []
        """Those of them in which the fast screen doubts something."""
        self.puzzles: dict[str, Exception] = {}
        """Why the screen broke off in a graph, where something in it can not even be looked at."""
        self.derived: dict[str, Any] = {}
        """What several rules derive from it, each once."""
        self._walk()

    @cached_property
    def ordered_slots(self) -> list[tuple[str, Slot]]:
        """The well-formed slots in the order of the state."""
        order: Any = self.state.order
        names = order if type(order) is tuple else ()
        return [(name, self.slots[name]) for name in names if type(name) is str and name in self.slots]

    @property
    def main(self) -> Graph | None:
        """The root graph, where there is one."""
        return self.graphs.get(self.root)

    def inputs_of(self, census: Census) -> list[Input]:
        """Return the well-formed inputs of a graph."""
        inputs: Any = census.graph.inputs
        return [formal for formal in inputs if is_formal(formal)] if type(inputs) is tuple else []

    def nodes_of(self, census: Census) -> list[tuple[int, Node]]:
        """Return the well-formed nodes of a graph with their positions."""
        if census.nodes is None:
            nodes: Any = census.graph.nodes
            pairs = enumerate(nodes if type(nodes) is tuple else ())
            census.nodes = list(pairs) if census.sound else [(index, node) for index, node in pairs if not node_faults(node)]
        return census.nodes

    def _walk(self) -> None:
        todo = [self.root]
        while todo:
            name = todo.pop()
            graph = self.graphs.get(name)
            if graph is None or name in self.censuses:
                continue
            census = None if self.thorough else self._screened(name, graph)
            if census is None:
                census = self._take_stock(name, graph)
                self.suspects.append(census)
            self.censuses[name] = census
            todo.extend([callee for _, callee in reversed(census.callees)])

    def _screened(self, name: str, graph: Graph) -> Census | None:
        try:
            return self.screen.census(name, graph)
        except Exception as error:  # noqa: BLE001  garbage: the slow rules find it, or else the verifier tells the error
            self.puzzles[name] = error
            return None

    def _take_stock(self, name: str, graph: Graph) -> Census:
        # The census of a doubtful graph: like the screen's, but garbage is stepped over.
        census = Census(name, graph)
        if graph_faults(graph):
            return census
        last: Any = ()
        for index, node in self.nodes_of(census):
            if node.stack is not last and node.stack:
                census.stacks.append((index, node.stack))
            last = node.stack
            match node.do:
                case Op() as op:
                    self.ops.setdefault(id(op), (op, name, index))
                    if op.name == GETITEM:
                        census.projections.append((index, node))
                case Call(graph=callee):
                    census.calls.append((index, node))
                    census.callees.append((index, callee))
                case Get():
                    census.gets.append((index, node))
            self._note_bodies(census, index, node)
        return census

    @staticmethod
    def _note_bodies(census: Census, index: int, node: Node) -> None:
        for value in (*node.args, *(value for _, value in node.kwargs)):
            for leaf in leaves(value):
                if type(leaf) is Body and type(leaf.graph) is str:
                    census.bodies.append((index, leaf.graph))
                    census.callees.append((index, leaf.graph))

    def _graphs(self, table: Any) -> dict[str, Graph]:
        found: dict[str, Graph] = {}
        for name, graph in self._entries(table):
            if type(name) is str and type(graph) is Graph:
                found[name] = graph
            else:
                self.table_faults.append(Finding(f"program.graphs has {short(graph)} under {short(name)}"))
        return found

    def _slots(self, table: Any) -> dict[str, Slot]:
        found: dict[str, Slot] = {}
        if type(table) is not MAP_TYPE:
            self.table_faults.append(Finding(f"program.state.slots is {short(table)}, not a PMap"))
        for name, slot in self._entries(table):
            faults = slot_faults(name, slot)
            if not faults and type(name) is str:
                found[name] = slot
                continue
            if type(name) is not str:
                faults = [*faults, f"program.state.slots has the key {short(name)}"]
            self.table_faults.extend(Finding(fault) for fault in faults)
        return found

    def _entries(self, table: Any) -> list[tuple[Any, Any]]:
        # The order of a PMap means nothing: what comes of it is only looked up, and findings are sorted.
        return list(table.items()) if type(table) is MAP_TYPE else []
