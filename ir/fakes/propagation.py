"""``Propagation``: one walk through a program that works out fake values, body by body, for each call.

One idea: a body is walked once for each call that gives it something else; what meta says holds where the operands are what it
was said for.  So one walk tells what runs in every call, and a shared body may say what all of its calls have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve

from ..arguments import Ref
from ..errors import UnsupportedProgram
from ..graph import Graph, Input
from ..node import Call, Get, Node
from ..paths import join, way_to
from ..program import Program
from ..signature import RestType, Token, UserInput
from ..verify.tensors import disagreement
from .likeness import likely
from .runnable import gives_nothing, is_runnable
from .values import FakeValues, running
from .walk import UNKNOWN, Called, Request, Walk, bodies_of, without_value

__all__ = ["Propagation", "shared_bodies"]

Item = TypeVar("Item", Node, Input)

READS = 4_096
"""How many reads of state are looked at to tell that two modules run a body alike."""


class Propagation:
    """Works out the values of one program.

    Args:
        program: the program.
        changed: graph and name of the values whose meta can not be trusted.
        lenient: whether an operator that refuses its arguments has an unknown value; else that is an error.
    """

    def __init__(self, program: Program, changed: frozenset[tuple[str, str]] = frozenset(), *, lenient: bool = False) -> None:
        self.source = program
        self.changed = changed
        self.lenient = lenient
        self.values = FakeValues(program)
        self.found: dict[str, list[Called]] = {}
        """How each graph runs: once for each call that gives it something else."""
        self.memory: dict[Hashable, list[Called]] = {}
        """The same, for a body that reads state whose values it does not say by what that is."""
        self.reading = _readers(program)
        self.shared = shared_bodies(program)
        self.facts: dict[int, Hashable] = {}
        self.unsaid = self._unsaid()
        self.open = self._lacking()
        """Graphs in which something is to be worked out, or below which."""

    def program(self) -> Program:
        """Return the program with values; the same object where nothing was to do."""
        source = self.source
        if self.walked() is None:
            return source
        missed = self._missed()
        graphs = {name: self._merged(name, missed) for name in self.found}
        graphs = {name: graph for name, graph in graphs.items() if graph is not source.graphs[name]}
        return source.evolve(graphs=source.graphs.update(graphs)) if graphs else source

    def walked(self) -> Called | None:
        """Return how the root runs; None where meta says all of it."""
        source = self.source
        if source.root not in self.open:
            return None
        with running(self.values.mode):
            given = [self._given(formal, spec) for formal, spec in zip(source.main.inputs, source.signature.inputs, strict=True)]
            return self.run(Request(source.root, given, ""))

    def _lacking(self) -> set[str]:
        source, found = self.source, {graph for graph, _ in self.changed}
        if self.shared:
            found.update(self._misfits(), self._misreads())
        for name in source.bottom_up:
            graph = source.graphs[name]
            asked = [node for node in graph.nodes if type(node.do) is Call or is_runnable(node)]
            if not found.isdisjoint(graph.callees) or any(map(self._lacks, (*graph.inputs, *asked))):
                found.add(name)
        return found

    def _lacks(self, value: Node | Input) -> bool:
        meta = value.meta
        return not ("val" in meta and self.values.is_ours(meta["val"])) and not (type(value) is Node and gives_nothing(value))

    def _misfits(self) -> Iterable[str]:
        # Shared bodies whose inputs say something else than one of their calls gives them.
        for name in self.source.order:
            graph = self.source.graphs[name]
            said: dict[str, Any] = {part.name: part.meta["val"] for part in (*graph.inputs, *graph.nodes) if "val" in part.meta}
            for node in graph.callers:
                if type(node.do) is Call and node.do.graph in self.shared:
                    formals = self.source.graphs[node.do.graph].inputs
                    pairs = [(f.meta["val"], said.get(arg.name, UNKNOWN)) for f, arg in zip(formals, node.args, strict=True)
                             if type(arg) is Ref and "val" in f.meta]  # fmt: skip
                    if any(given is not UNKNOWN and not likely(given, told) for told, given in pairs):
                        yield node.do.graph

    def _misreads(self) -> Iterable[str]:
        # Shared bodies whose reads say something else than they find in one of the modules that the bodies stand in.
        source, slots = self.source, self.source.state.slots
        modules = {path for name in slots for path in way_to(name)}
        todo, seen = [(source.root, "")], {(source.root, "")}
        while todo:
            name, path = todo.pop()
            for node in source.graphs[name].nodes if name in self.shared else source.graphs[name].callers:
                if type(node.do) is Get:
                    slot = slots.get(join(path, node.do.slot))
                    if slot is not None and disagreement(node.meta.get("val"), slot.value) is not None:
                        yield name
                below = join(path, node.do.instance.path) if type(node.do) is Call else path
                inner = {(body, below) for body in bodies_of(node) if body in self.reading and below in modules} - seen
                todo.extend(inner)
                seen |= inner

    def _given(self, formal: Input, spec: Any) -> Any:
        kept = formal if (self.source.root, formal.name) not in self.changed else Input(formal.name)
        if type(spec) is Token or (type(spec) is UserInput and type(spec.type) is RestType):
            return kept.meta.get("val", UNKNOWN)
        try:
            return self.values.of_input(kept, spec)
        except (UnsupportedProgram, KeyError):  # a running module keeps no state in its program
            return UNKNOWN

    def run(self, request: Request) -> Called:
        """Return how a graph runs with some values.

        Args:
            request: the graph, and the values.
        """
        todo = [self._walk(request)]
        called: Any = None
        while todo:
            try:
                inner = todo[-1].send(called)
            except StopIteration as done:
                called = done.value
                todo.pop()
            else:
                todo.append(self._walk(inner))
                called = None
        return called

    def _walk(self, request: Request) -> Generator[Request, Called, Called]:
        # Yields the bodies that have to be walked before it can go on; returns how the graph runs.
        name, graph = request.graph, self.source.graphs[request.graph]
        memory = self.memory.setdefault((name, self._read(name, request.path)), [])
        for known in memory:
            if likely(request.given, known.given):
                return known
        call = Called(name, request.given, graph)
        self.found.setdefault(name, []).append(call)
        work = Walk(self, call, request.path)
        call.inputs = [work.input(formal, value) for formal, value in zip(graph.inputs, request.given, strict=True)]
        for node in graph.nodes:
            inner = work.request(node)
            call.nodes.append(work.node(node, (yield inner) if inner is not None else None))
        call.moved, call.value = bool(work.moved), work.resolved(graph.output)
        if not (call.fresh or call.depends):  # else each call has sizes of its own
            memory.append(call)
        return call

    def _read(self, name: str, path: str) -> Hashable:
        # What the reads find of which a body does not say the values: that of equal layers is alike.
        slots = self.unsaid.get(name, ())
        if slots is None:
            return path
        state = self.source.state.slots
        return tuple([None if (slot := state.get(join(path, read))) is None else self._described(slot.value) for read in slots])

    def _described(self, value: Any) -> Hashable:
        if not isinstance(value, torch.Tensor):
            return id(value)
        facts = self.facts.get(id(value))
        if facts is None:
            strides = value.stride() if value.layout is torch.strided else ()
            facts = self.facts[id(value)] = (value.dtype, value.device, value.layout, tuple(value.shape), strides)
        return facts

    def _unsaid(self) -> dict[str, tuple[str, ...] | None]:
        # The reads in a body and below it whose values meta does not say, from its module; None where there are too many.
        source = self.source
        wrong = set(self._misreads()) if self.shared else set[str]()
        found: dict[str, tuple[str, ...] | None] = {}
        for name in source.bottom_up:
            slots: dict[str, None] | None = {}
            for node in source.graphs[name].nodes:
                do = node.do
                if (
                    type(do) is Get
                    and slots is not None
                    and (name in wrong or (name, node.name) in self.changed or self._lacks(node))
                ):
                    slots[do.slot] = None
                for body in bodies_of(node) if slots is not None else ():
                    inner = found[body]
                    prefix = do.instance.path if type(do) is Call else ""
                    slots = (
                        None if inner is None or slots is None else slots | dict.fromkeys(join(prefix, slot) for slot in inner)
                    )
            found[name] = None if slots is None or len(slots) > READS else tuple(slots)
        return found

    def _missed(self) -> set[str]:
        # Bodies that some call was not followed into: that one runs as meta says.
        missed = {
            body
            for calls in self.found.values()
            for call in calls
            for node in call.nodes
            for body in bodies_of(node)
            if (node.name, body) not in call.inner
        }
        for name in reversed(self.source.bottom_up):
            if name in missed:
                missed.update(self.source.graphs[name].callees)
        return missed

    def _merged(self, name: str, missed: set[str]) -> Graph:
        source = self.source.graphs[name]
        # A walk that an operator's refusal ended says nothing of what comes after it.
        calls = [call for call in self.found[name] if len(call.nodes) == len(source.nodes)]
        runs = [(call.inputs, call.nodes) for call in calls]
        if name in missed or len(calls) < len(self.found[name]):
            runs.append((list(source.inputs), list(source.nodes)))
        if len(runs) == 1:
            return calls[0].body if calls else source
        inputs = [_common(formal, [run[0][place] for run in runs]) for place, formal in enumerate(source.inputs)]
        nodes = [_common(node, [run[1][place] for run in runs]) for place, node in enumerate(source.nodes)]
        return Called(name, (), source, inputs, nodes).body


def _common(source: Item, items: Sequence[Item]) -> Item:
    # What all calls say of a value; nothing where they do not agree, for it would be wrong of some.
    first = items[0]
    if all(item is first for item in items):
        return first
    said = [item.meta.get("val", UNKNOWN) for item in items]
    if all(value is not UNKNOWN for value in said) and all(likely(value, said[0]) for value in said[1:]):
        return source if any(item is source for item in items) else first
    return evolve(source, meta=without_value(source.meta)) if "val" in source.meta else source


def shared_bodies(program: Program) -> frozenset[str]:
    """Return the graphs that more than one call runs, or that such a graph runs.

    >>> shared_bodies(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    users = Counter(body for _, node in program.nodes() for body in bodies_of(node))
    found = {name for name, count in users.items() if count > 1}
    for name in reversed(program.bottom_up):
        if name in found:
            found.update(program.graphs[name].callees)
    return frozenset(found)


def _readers(program: Program) -> set[str]:
    # Bodies that read state, themselves or through others.
    found: set[str] = set()
    for name in program.bottom_up:
        graph = program.graphs[name]
        if not found.isdisjoint(graph.callees) or any(type(node.do) is Get for node in graph.nodes):
            found.add(name)
    return found
