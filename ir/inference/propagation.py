"""``Propagation``: one walk through a program that infers fake values, body by body, for each call.

A body is walked once for each distinct set of operand values; its meta holds if the operands are those it was recorded for.  So
one walk yields the values of every call, and the meta of a shared body what all of its calls have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import torch
from attrs import evolve

from ..arguments import Arg, Body, Ref
from ..calls.call_graph import bodies_of
from ..errors import UnsupportedProgram
from ..graph import Call, Get, Graph, Input, Node, Op
from ..names import join
from ..program import Program
from ..signature import RestType, Token, UserInput
from ..tensors import disagreement
from ..torch_private import FakeTensor, device_of
from .results import agrees, gives_nothing, is_runnable
from .values import FakeValues, running
from .walk import UNKNOWN, Called, Request, Walk, without_value

BRANCHES: Mapping[str, slice] = {"higher_order.cond": slice(1, 3), "higher_order.while_loop": slice(1, 2)}
"""Operators that give what a body gives, and which of their arguments those bodies are."""


def branches_of(node: Node) -> list[str]:
    """Return the graphs of which a node gives what they give; none for most.

    >>> from ..operators import op_of
    >>> cond = op_of(torch.ops.higher_order.cond)
    >>> branches_of(Node("y", cond, (Ref("p"), Body("yes"), Body("no"), ()))), branches_of(Node("y", Op("toy.neg")))
    (['yes', 'no'], [])
    """
    wanted = BRANCHES.get(node.do.name) if type(node.do) is Op else None
    return [] if wanted is None else [arg.graph for arg in node.args[wanted] if type(arg) is Body]


def disagreement_of_branches(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    """Return in words which body of a node gives something else than the node, or than another one; None if all agree.

    Args:
        node: of any operator.
        graphs: those of the program.
    """
    told = [(f"the branch {name!r} gives", _given(graphs[name])) for name in branches_of(node) if name in graphs]
    pairs = [(one, other, False) for one, other in pairwise(told)]  # of two sizes an operator can make one that a run knows
    if "val" in node.meta:
        pairs += [(one, ("its meta says", _parts(node.meta["val"])), True) for one in told]
    for (who, mine), (other, theirs), sized in pairs:
        if len(mine) != len(theirs):
            return f"{who} {len(mine)} values, and {other} {len(theirs)}"
        for number, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            if _differ(left, right, sized=sized):
                at = f" as value {number}" if len(mine) > 1 else ""
                return f"{who} {_shown(left)}{at}, and {other} {_shown(right)}"
    return None


def _given(graph: Graph) -> tuple[Any, ...]:
    def value(arg: Arg) -> Any:
        return graph.metas.get(arg.name, {}).get("val") if type(arg) is Ref else None

    return tuple(map(value, _parts(graph.output)))


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _differ(mine: Any, theirs: Any, *, sized: bool) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    if (mine.dtype, device_of(mine).type, mine.dim()) != (theirs.dtype, device_of(theirs).type, theirs.dim()):
        return True
    return sized and any(
        type(one) is type(other) is int and one != other for one, other in zip(mine.shape, theirs.shape, strict=True)
    )


def _shown(value: torch.Tensor) -> str:
    return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"


Item = TypeVar("Item", Node, Input)

NOWHERE = "/"
"""Stands for the paths of all modules that hold no state."""


class Propagation:
    """Works out the values of one program.

    Args:
        program: the program.
        changed: graph and name of the values whose meta cannot be trusted.
        lenient: whether an operator that refuses its arguments has an unknown value; else that is an error.
    """

    def __init__(self, program: Program, changed: frozenset[tuple[str, str]] = frozenset(), *, lenient: bool = False) -> None:
        self.source = program
        self.changed = changed
        self.lenient = lenient
        self.values = FakeValues(program)
        self.slots = dict(program.state.slots.items())
        self.found: dict[str, list[Called]] = {}
        """How each graph runs: once for each call that gives it something else."""
        self.memory: dict[Hashable, list[Called]] = {}
        """The same, for a body that reads state whose values it does not say by what that is."""
        self.reading = _readers(program)
        self.shared = shared_bodies(program)
        self.numbers: dict[tuple[str, str], int] = {}
        """What the reads of a body find in a module, as a number."""
        self.descriptions: dict[Hashable, int] = {}
        self.unsaid = self._unsaid()
        self.open = self._lacking()
        """Graphs in which something is to be worked out, or below which."""

    def program(self) -> Program:
        """Return the program with values; the same object if nothing was to do."""
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
            given = [self._given(formal, spec) for formal, spec in source.inputs]
            return self.run(Request(source.root, given, ""))

    def _lacking(self) -> set[str]:
        source, found = self.source, {graph for graph, _ in self.changed}
        if self.shared:
            found.update(self._misfits(), self._misreads)
        for name in source.bottom_up:
            graph = source.graphs[name]
            if not found.isdisjoint(graph.callees) or any(map(self.is_to_infer, self._without_tensor(graph))):
                found.add(name)
        return found

    def _without_tensor(self, graph: Graph) -> list[Node | Input]:
        # What meta does not call one tensor of the program's mode: nearly all are, and need no closer look.
        mode, values = self.values.mode, (*graph.inputs, *graph.nodes)
        said = [(value, value.meta.get("val")) for value in values]
        return [value for value, told in said if type(told) is not FakeTensor or told.fake_mode is not mode]

    def is_to_infer(self, value: Node | Input) -> bool:
        """Return whether a value is missing that can be worked out."""
        return self._lacks(value) and (not isinstance(value, Node) or type(value.do) is Call or is_runnable(value))

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
                    if any(given is not UNKNOWN and not agrees(given, told) for told, given in pairs):
                        yield node.do.graph

    @cached_property
    def _misreads(self) -> frozenset[str]:
        # Shared bodies whose reads say something else than they find in one of the modules that the bodies stand in.
        source, slots = self.source, self.slots
        found: set[str] = set()
        looked: dict[str, tuple[list[tuple[str, Any]], list[tuple[str, str]]]] = {}
        todo, seen = [(source.root, "")], {(source.root, "")}
        while todo:
            name, path = todo.pop()
            parts = looked.get(name)
            if parts is None:
                parts = looked[name] = self._told_reads(name), self._inner(name)
            for read, told in parts[0]:
                slot = slots.get(join(path, read))
                if slot is not None and disagreement(told, slot.value) is not None:
                    found.add(name)
            for prefix, body in parts[1]:
                inner = body, join(path, prefix) if prefix else path
                if inner not in seen and inner[1] in self.modules:
                    seen.add(inner)
                    todo.append(inner)
        return frozenset(found)

    def _told_reads(self, name: str) -> list[tuple[str, Any]]:
        # What a shared body says of the state that it reads.
        nodes = self.source.graphs[name].nodes if name in self.shared else ()
        return [(node.do.slot, node.meta["val"]) for node in nodes if type(node.do) is Get and "val" in node.meta]

    def _inner(self, name: str) -> list[tuple[str, str]]:
        # The bodies in a body that read state, each with the path of its module.
        found: dict[tuple[str, str], None] = {}
        for node in self.source.graphs[name].callers:
            prefix = node.do.instance.path if type(node.do) is Call else ""
            found.update(((prefix, body), None) for body in bodies_of(node) if body in self.reading)
        return list(found)

    @cached_property
    def modules(self) -> frozenset[str]:
        """The modules that hold state, themselves or through others, and the root."""
        found = {""}
        for name in self.source.state.slots:
            while name not in found:
                found.add(name)
                name = name.rpartition(".")[0]
        return frozenset(found)

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
            if agrees(request.given, known.given):
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

    def _read(self, name: str, path: str) -> int:
        # What the reads find of which a body does not say the values, as a number: that of equal layers is alike.
        if name not in self.shared:
            return 0  # it runs once
        asked = name, path if path in self.modules else NOWHERE
        todo = [asked]
        while todo:
            body, where = todo[-1]
            slots, inner = self.unsaid[body]
            below = [(callee, self._below(where, prefix)) for prefix, callee in inner]
            missing = [place for place in below if place not in self.numbers]
            todo.extend(missing)
            if not missing:
                todo.pop()
                reads = [self._described(join(where, slot)) for slot in slots]
                found = (body, *reads, *[self.numbers[place] for place in below])
                self.numbers[body, where] = self.descriptions.setdefault(found, len(self.descriptions))
        return self.numbers[asked]

    def _below(self, path: str, prefix: str) -> str:
        # Where no state is, it does not matter where a body stands.
        below = join(path, prefix) if prefix else path
        return below if below in self.modules else NOWHERE

    def _described(self, name: str) -> Hashable:
        slot = self.slots.get(name)
        value = None if slot is None else slot.value
        if not isinstance(value, torch.Tensor):
            return slot if slot is None else id(value)
        strides = value.stride() if value.layout is torch.strided else ()
        return (value.dtype, device_of(value), value.layout, value.shape, strides)

    def _unsaid(self) -> dict[str, tuple[list[str], list[tuple[str, str]]]]:
        # For each body the reads whose values its meta does not say, and the bodies in it that have such or in which are some.
        found: dict[str, tuple[list[str], list[tuple[str, str]]]] = {}
        for name in self.source.bottom_up if self.shared else ():
            nodes = self.source.graphs[name].nodes if name in self.reading else ()
            slots = [node.do.slot for node in nodes if type(node.do) is Get and self._is_unsaid(name, node)]
            bodies = [(prefix, body) for prefix, body in self._inner(name) if any(found[body])]
            found[name] = slots, bodies
        return found

    def _is_unsaid(self, name: str, node: Node) -> bool:
        return name in self._misreads or (name, node.name) in self.changed or self._lacks(node)

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
    # What all calls say of a value; nothing if they do not agree, for it would be wrong of some.
    first = items[0]
    if all(item is first for item in items):
        return first
    said = [item.meta.get("val", UNKNOWN) for item in items]
    if all(value is not UNKNOWN for value in said) and all(agrees(value, said[0]) for value in said[1:]):
        return source if any(item is source for item in items) else first
    return evolve(source, meta=without_value(source.meta)) if "val" in source.meta else source


def shared_bodies(program: Program) -> frozenset[str]:
    """Return the graphs that more than one call runs, or that such a graph runs.

    >>> shared_bodies(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    users = Counter(body for name in program.order for body in program.graphs[name].callees)
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


class CallValues:
    """What the bodies of one program say of their calls.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> CallValues(program).body("", CallValues(program).root) is program.main
    True
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def shared(self) -> frozenset[str]:
        """The graphs that more than one call runs."""
        return shared_bodies(self.program)

    @cached_property
    def root(self) -> Called | None:
        """How the root runs; None where meta says all that it says of every call, or nothing."""
        program = self.program
        if not self.shared or not any("val" in part.meta for part in (*program.main.inputs, *program.main.nodes)):
            return None  # nothing is shared, or the program came without values
        work = Propagation(program, lenient=True)
        return None if self.shared.isdisjoint(work.open) else work.walked()

    def body(self, name: str, call: Called | None) -> Graph:
        """Return a graph with the values of a call.

        Args:
            name: the graph.
            call: how it runs there; None if its meta says that.
        """
        return self.program.graphs[name] if call is None else call.body

    def inner(self, call: Called | None, node: Node, name: str) -> Called | None:
        """Return how a body runs that a node calls or passes to an operator; None if its meta says so, or it is unknown.

        Args:
            call: how the caller runs.
            node: the node of the caller.
            name: the body.
        """
        found = [] if call is None else call.inner.get((node.name, name), [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _standing(self) -> dict[tuple[str, str], list[Called | None]]:
        found: dict[tuple[str, str], list[Called | None]] = {}
        todo: list[tuple[str, str, Called | None]] = [(self.program.root, "", self.root)]
        while todo:
            name, path, call = todo.pop()
            known = found.setdefault((name, path), [])
            if any(call is other for other in known):
                continue
            known.append(call)
            for node in self.program.graphs[name].callers:
                below = join(path, node.do.instance.path) if type(node.do) is Call else path
                todo.extend((body, below, self.inner(call, node, body)) for body in bodies_of(node))
        return found

    def at(self, name: str, path: str) -> list[Graph]:
        """Return a graph with the values of each call that gives it others, where it stands.

        Args:
            name: the graph.
            path: the module that it stands in.
        """
        if self.root is None:
            return [self.program.graphs[name]]
        return [self.body(name, call) for call in self._standing.get((name, path), [None])]
