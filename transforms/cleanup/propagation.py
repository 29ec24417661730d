"""``Propagation``: one walk through a program that works out fake values, graph by graph.

One idea: every graph is walked once to keep what is found, with what its first call gives it, because that is what the meta
of a shared body says; further calls of a body are only followed for what they give, where that is asked.  Values that are new
or came out differently are remembered, and what uses them is asked again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from ...ir.errors import UnsupportedProgram
from ...ir.fakes import FakeValues, running
from ...ir.graph import Graph, Input
from ...ir.node import Call, Get, Node
from ...ir.program import Program
from ...ir.signature import RestType, Token, UserInput
from .likeness import likely
from .runnable import gives_nothing, is_runnable
from .walk import UNKNOWN, Request, Walk, bodies_of

__all__ = ["Propagation"]


class Propagation:
    """Works out the values of one program.

    Args:
        program: the program.
        changed: graph and name of the values whose meta can not be trusted.
    """

    def __init__(self, program: Program, changed: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.source = program
        self.changed = changed
        self.values = FakeValues(program)
        self.made: dict[str, Graph] = {}
        self.moved: set[str] = set()
        """Graphs in which something came out differently."""
        self.unnamed = 0
        """How often an operator made symbols for sizes that only a run knows."""
        self.results: dict[tuple[str, str], list[tuple[Sequence[Any], Any]]] = {}
        """What bodies have given for what; for a body that reads state, by the module that it stood in."""
        self.reading = _readers(program)
        self.first = _first_calls(program)
        """The call that the meta of each graph speaks of: caller and node."""
        self.open = self._lacking()
        """Graphs in which something is to be worked out, or below which."""

    def program(self) -> Program:
        """Return the program with values; the same object where nothing was to do."""
        source = self.source
        if source.root not in self.open:
            return source
        with running(self.values.mode):
            given = [self._given(formal, spec) for formal, spec in zip(source.main.inputs, source.signature.inputs, strict=True)]
            self.run(Request(source.root, given, "", keep=True))
        graphs = {name: graph for name, graph in self.made.items() if graph is not source.graphs[name]}
        return source.evolve(graphs=source.graphs.update(graphs)) if graphs else source

    def _lacking(self) -> set[str]:
        source, found = self.source, {graph for graph, _ in self.changed}
        for name in source.bottom_up:
            graph = source.graphs[name]
            asked = [node for node in graph.nodes if type(node.do) is Call or is_runnable(node)]
            if not found.isdisjoint(graph.callees) or any(map(self._lacks, (*graph.inputs, *asked))):
                found.add(name)
        return found

    def _lacks(self, value: Node | Input) -> bool:
        meta = value.meta
        return not ("val" in meta and self.values.is_ours(meta["val"])) and not (type(value) is Node and gives_nothing(value))

    def _given(self, formal: Input, spec: Any) -> Any:
        kept = formal if (self.source.root, formal.name) not in self.changed else Input(formal.name)
        if type(spec) is Token or (type(spec) is UserInput and type(spec.type) is RestType):
            return kept.meta.get("val", UNKNOWN)
        try:
            return self.values.of_input(kept, spec)
        except UnsupportedProgram:
            return UNKNOWN

    def run(self, request: Request) -> Any:
        """Return what a graph gives for some values.

        Args:
            request: the graph, and the values.
        """
        todo = [self._walk(request)]
        value: Any = None
        while todo:
            try:
                inner = todo[-1].send(value)
            except StopIteration as done:
                value = done.value
                todo.pop()
            else:
                todo.append(self._walk(inner))
                value = None
        return value

    def _walk(self, request: Request) -> Generator[Request, Any, Any]:
        # Yields the bodies that have to be walked before it can go on; returns what the graph gives.
        name, graph = request.graph, self.source.graphs[request.graph]
        keep = request.keep and name not in self.made
        key = (name, request.path if name in self.reading else "")
        known = [] if keep else [value for given, value in self.results.get(key, ()) if likely(request.given, given)]
        if known:
            return known[0]
        if keep:
            self.made[name] = graph
        work, unnamed = Walk(self, name, request.path, keep), self.unnamed
        inputs = [work.input(formal, value) for formal, value in zip(graph.inputs, request.given, strict=True)]
        nodes: list[Node] = []
        for node in graph.nodes:
            inner = work.request(node)
            nodes.append(work.node(node, (yield inner) if inner is not None else UNKNOWN))
        if keep:
            self._keep(name, inputs, nodes)
            self.moved.update([name] if work.moved else [])
        value = work.resolved(graph.output)
        if unnamed == self.unnamed:  # else each call has sizes of its own
            self.results.setdefault(key, []).append((request.given, value))
        return value

    def _keep(self, name: str, inputs: Sequence[Input], nodes: Sequence[Node]) -> None:
        graph = self.source.graphs[name]
        if _differ(inputs, graph.inputs) or _differ(nodes, graph.nodes):
            self.made[name] = Graph(tuple(inputs), tuple(nodes), graph.output)


def _first_calls(program: Program) -> dict[str, tuple[str, str]]:
    # In the order in which a run meets them: what is called is looked into before the caller goes on.
    found: dict[str, tuple[str, str]] = {}
    todo = [_calls(program, program.root)]
    while todo:
        for caller, node, name in todo[-1]:
            if name not in found:
                found[name] = (caller, node)
                todo.append(_calls(program, name))
                break
        else:
            todo.pop()
    return found


def _calls(program: Program, graph: str) -> Iterator[tuple[str, str, str]]:
    return ((graph, node.name, name) for node in program.graphs[graph].callers for name in bodies_of(node))


def _readers(program: Program) -> set[str]:
    # Bodies that read state, themselves or through others.
    found: set[str] = set()
    for name in program.bottom_up:
        graph = program.graphs[name]
        if not found.isdisjoint(graph.callees) or any(type(node.do) is Get for node in graph.nodes):
            found.add(name)
    return found


def _differ(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return any(mine is not theirs for mine, theirs in zip(new, old, strict=True))
