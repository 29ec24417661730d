"""``Propagation``: one walk through a program that infers fake values, body by body, for each call.

A body is walked once for each distinct set of operand values; its meta holds if the operands are those it was recorded for.  So
one walk yields the values of every call, and the meta of a shared body what all of its calls have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import torch
from attrs import evolve

from ..arguments import Body, Ref
from ..calls.call_graph import bodies_of
from ..errors import UnsupportedProgram
from ..graph import Call, Get, Graph, Input, Node, Op
from ..names import join
from ..program import Program
from ..signature import RestType, Token, UserInput
from ..tensors import disagreement
from ..torch_private import FakeTensor, device_of
from .results import agrees, is_runnable, values_of
from .values import FakeValues, gives_nothing, running
from .walk import UNKNOWN, Called, Walk, without_value

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
        if len(mine) != len(theirs) or any(_differ(*both, sized=sized) for both in zip(mine, theirs, strict=True)):
            return f"{who} {', '.join(map(shown_value, mine))}, and {other} {', '.join(map(shown_value, theirs))}"
    return None


def _given(graph: Graph) -> tuple[Any, ...]:
    parts = _parts(graph.output)
    return tuple([graph.metas.get(arg.name, {}).get("val") if type(arg) is Ref else None for arg in parts])


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _differ(mine: Any, theirs: Any, *, sized: bool) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    if (mine.dtype, device_of(mine).type, mine.dim()) != (theirs.dtype, device_of(theirs).type, theirs.dim()):
        return True
    pairs = zip(mine.shape, theirs.shape, strict=True)
    return sized and any(type(one) is type(other) is int and one != other for one, other in pairs)


def shown_value(value: Any) -> str:
    """Return a fake value in words.

    >>> shown_value(3), shown_value((1, 2)), shown_value(torch.ones(2))
    ('the int 3', '2 values', 'a torch.float32 of shape (2,) on cpu')
    """
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"the {type(value).__name__} {value}"


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
        """The same, by the graph and what it reads."""
        self.shared = shared_bodies(program)
        self.reads: dict[tuple[str, str], int] = {}
        """What a body reads in a module, as a number."""
        self.descriptions: dict[Hashable, int] = {}
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
        if self.source.root not in self.open:
            return None
        with running(self.values.mode):
            return self.run(self.source.root, [self._given(formal, spec) for formal, spec in self.source.inputs], "")

    def _lacking(self) -> set[str]:
        source, found = self.source, {graph for graph, _ in self.changed}
        found.update(self._disagreeing() if self.shared else ())
        for name in source.bottom_up:
            graph = source.graphs[name]
            if not found.isdisjoint(graph.callees) or any(map(self._is_to_infer, (*graph.inputs, *graph.nodes))):
                found.add(name)
        return found

    def _is_to_infer(self, value: Node | Input) -> bool:
        told = value.meta.get("val")
        if type(told) is FakeTensor and told.fake_mode is self.values.mode:
            return False  # nearly all are
        if "val" in value.meta and self.values.is_ours(told):
            return False
        return type(value) is not Node or (not gives_nothing(value) and (type(value.do) is Call or is_runnable(value)))

    def _disagreeing(self) -> Iterator[str]:
        # Shared bodies that one of their calls gives, or lets read, something else than their meta says.
        graphs = self.source.graphs
        reads = {name: [node for node in graphs[name].nodes if type(node.do) is Get] for name in self.shared}
        seen, looked = set[tuple[str, str]](), set[str]()
        todo = [(self.source.root, "")]
        while todo:
            name, path = todo.pop()
            if (name, path) in seen:
                continue
            seen.add((name, path))
            for node in reads.get(name, ()):
                slot = self.slots.get(join(path, node.do.slot)) if type(node.do) is Get else None
                if slot is not None and disagreement(node.meta.get("val"), slot.value) is not None:
                    yield name
            said = values_of(graphs[name]) if graphs[name].callers and name not in looked else {}
            for node in graphs[name].callers:
                inner = join(path, node.do.instance.path) if type(node.do) is Call else path
                todo.extend((body, inner if inner in self.modules else NOWHERE) for body in bodies_of(node))
                if type(node.do) is Call and node.do.graph in self.shared and name not in looked:
                    pairs = [(formal.meta["val"], said[arg.name])
                             for formal, arg in zip(graphs[node.do.graph].inputs, node.args, strict=True)
                             if type(arg) is Ref and "val" in formal.meta and arg.name in said]  # fmt: skip
                    if not all(agrees(given, told) for told, given in pairs):
                        yield node.do.graph
            looked.add(name)

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

    def run(self, name: str, given: Sequence[Any], path: str) -> Called:
        """Return how a graph runs.

        Args:
            name: the graph.
            given: the values of its inputs.
            path: the module that it stands in, whose state its reads name.
        """
        # It runs once for values and state that are described alike.
        memory = self.memory.setdefault((name, self._read(name, path) if name in self.shared else 0), [])
        for known in memory:
            if agrees(given, known.given):
                return known
        call = Called(name, given, self.source.graphs[name])
        self.found.setdefault(name, []).append(call)
        Walk(self, call, path).run()
        if not (call.fresh or call.depends):  # else each call has sizes of its own
            memory.append(call)
        return call

    def _read(self, name: str, path: str) -> int:
        # What a body reads in a module, as a number: that of equal layers is alike.
        place = name, path if path in self.modules else NOWHERE
        if place not in self.reads:
            found: list[Hashable] = [name]
            for node in self.source.graphs[name].nodes:
                if type(node.do) is Get:
                    slot = self.slots.get(join(place[1], node.do.slot))
                    found.append(None if slot is None else _described(slot.value))
                for body in bodies_of(node):
                    inner = join(place[1], node.do.instance.path) if type(node.do) is Call else place[1]
                    found.append(self._read(body, inner))
            self.reads[place] = self.descriptions.setdefault(tuple(found), len(self.descriptions))
        return self.reads[place]

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


def _described(value: Any) -> Hashable:
    if not isinstance(value, torch.Tensor):
        return id(value)
    strides = value.stride() if value.layout is torch.strided else ()
    return value.dtype, device_of(value), value.layout, value.shape, strides


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
