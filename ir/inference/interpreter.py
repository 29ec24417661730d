"""The abstract interpreter: one walk over the calls of a program, on fake values.

It walks a graph once for each distinct set of operands and state, called a run.  The meta of a shared body keeps the values that
all its runs have in common; ``CallValues`` has those of each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from attrs import Factory, define, evolve
from torch.export.graph_signature import CustomObjArgument

from ..arguments import Arg, Body, Ref, thawed
from ..calls.call_graph import path_around, reaching
from ..errors import InvalidProgram, UnsupportedProgram, Violation, first_line
from ..forks import cached_property
from ..graph import Call, Get, Graph, Input, Node, Op
from ..meta import Meta, freeze, source_line, without_value
from ..names import join
from ..persistent import closure
from ..program import Program
from ..signature import Token
from ..tensors import disagreement
from ..torch_private import FakeTensor, is_refusal, pytree
from .results import agrees, all_agree, changes_sizes, is_runnable, opens_region, unbacked_in
from .values import (
    UNKNOWN,
    FakeValues,
    depends_on_contents,
    described,
    has_fake_value,
    has_no_result,
    running,
)

GETITEM = "operator.getitem"

Item = TypeVar("Item", Node, Input)


@define(eq=False)
class Run:
    """A graph with its values in one call, or in several calls that pass equal operands.

    The walk evaluates nodes without a value, and nodes with a new or changed operand.
    """

    owner: Interpreter
    source: Graph
    graph: str
    path: str = ""
    """The module whose body it is; its reads are relative to this path."""
    operands: Sequence[Any] = ()
    inputs: list[Input] = Factory(list)
    """The inputs and nodes with the values of this run."""
    nodes: list[Node] = Factory(list)
    known: dict[str, Any] = Factory(dict)
    """The values by name."""
    new: set[str] = Factory(set)
    """Values that are missing in the meta."""
    moved: set[str] = Factory(set)
    """Values that differ from the meta."""
    region: int = 0
    """The number of open regions that change the results of operators."""
    symbols: frozenset[str] = frozenset()
    """The symbols of data-dependent sizes that its operators made."""
    depends: bool = False
    """Whether sizes depend on the contents of tensors: then each call has separate sizes."""
    reads: dict[str, Any] = Factory(dict)
    """The descriptions of the state it reads, by the path from its module."""
    inner: dict[tuple[str, str], list[Run]] = Factory(dict)
    """The runs of the bodies that its nodes call or pass to operators, by node and body."""

    @property
    def body(self) -> Graph:
        """The graph with the values of this run; the same object if its meta has them."""
        return self.source.with_nodes(self.nodes, inputs=tuple(self.inputs))

    @property
    def result(self) -> Any:
        """The value of the output."""
        return self.resolved(self.source.output)

    def walk(self, names: Collection[str] | None = None) -> None:
        """Infer the values of the inputs and of all nodes, or of some nodes whose operands are known or among them."""
        source, nodes = self.source, self.source.nodes
        if not self.inputs:
            pairs = zip(source.inputs, self.operands, strict=True)
            self.inputs = [self._input(formal, value) for formal, value in pairs]
        if names is not None:
            nodes = tuple([nodes[at] for at in sorted(map(source.position.__getitem__, names))])
        self.nodes += [self._node(node) for node in nodes]

    def _input(self, formal: Input, value: Any) -> Input:
        recorded = self.owner.values.recorded(formal)
        # The operand, not an equal value of the meta: a tensor remembers its data-dependent sizes.
        self.known[formal.name] = recorded if value is UNKNOWN else value
        if value is UNKNOWN or (recorded is not UNKNOWN and agrees(value, recorded)):
            return formal
        (self.moved if "val" in formal.meta else self.new).add(formal.name)
        return evolve(formal, meta=_with_value(formal.meta, value))

    def _node(self, node: Node) -> Node:
        owner, do, bodies = self.owner, node.do, node.callees
        recorded, is_changed = self.owner.values.recorded(node), self._is_changed(node)
        is_new = (
            recorded is UNKNOWN
            or owner.values.doubts(self.graph, node.name)
            or (bool(self.new) and not self.new.isdisjoint(node.refs()))
        )
        if type(do) is Op and not (
            is_changed or is_new or bodies or do.effects.writes or do.effects.scope
        ):
            self.known[node.name] = recorded
            return node  # nearly all nodes
        if has_no_result(node):
            return node
        self.region += opens_region(node)
        value = recorded
        if (
            is_changed
            or is_new
            or not (owner.open if type(do) is Call else owner.missing).isdisjoint(bodies)
        ):
            value = self._value(node)
        for body in bodies:
            if (node.name, body) not in self.inner:
                self.inner[node.name, body] = [owner.as_recorded(body)]
        return self._kept(node, recorded, value, is_changed=is_changed)

    def _is_changed(self, node: Node) -> bool:
        owner, do = self.owner, node.do
        if type(do) is Get:
            path = join(self.path, do.slot)
            self.reads[do.slot] = owner.state_at(path)
            # In a shared body, each module has a separate tensor.
            slot = owner.slots.get(path) if self.graph in owner.shared else None
            if slot is not None and disagreement(node.val, slot.value) is not None:
                return True
        return (bool(self.moved) and not self.moved.isdisjoint(node.refs())) or (
            self.graph,
            node.name,
        ) in owner.changed

    def _kept(self, node: Node, recorded: Any, value: Any, *, is_changed: bool) -> Node:
        # The node with its value; the same object if the meta has the value.
        bindings = self.owner.values.bindings.pop(node.name, None)
        symbols = frozenset(map(str, bindings or ()))
        below = node.do.instance.path if type(node.do) is Call else ""
        for run in [run for body in node.callees for run in self.inner[node.name, body]]:
            self.reads.update({join(below, slot): read for slot, read in run.reads.items()})
            self.depends |= run.depends
            symbols |= run.symbols
            is_changed |= bool(run.moved)
            if run.depends:
                symbols = symbols.union(unbacked_in(run.result))
        self.symbols |= symbols
        if value is UNKNOWN and not is_changed:
            value = recorded
        if agrees(value, recorded, symbols):
            self._learn(node, recorded)
            return node
        self._learn(node, value)
        is_new = not is_changed and ("val" not in node.meta or _fills(value, recorded))
        (self.new if is_new else self.moved).add(node.name)
        return evolve(
            node,
            meta=without_value(node.meta)
            if value is UNKNOWN
            else _with_value(node.meta, value, bindings),
        )

    def _learn(self, node: Node, value: Any) -> None:
        if node.callees and type(value) is tuple:
            value = tuple([UNKNOWN if part is None else part for part in value])
        self.known[node.name] = value
        if changes_sizes(node.do) and type(node.args[0]) is Ref:
            self.known[node.args[0].name] = value  # the operator changes the shape of its operand
            self.moved.add(node.args[0].name)

    def _value(self, node: Node) -> Any:
        do, owner = node.do, self.owner
        if type(do) is Get:
            slot = owner.slots.get(
                join(self.path, do.slot)
            )  # a running module keeps no state in its program
            return (
                UNKNOWN
                if slot is None or not isinstance(slot.value, torch.Tensor)
                else owner.values.of_state(slot.value, node.val)
            )
        if self.region:
            return UNKNOWN
        if type(do) is Call:
            operands = [self.resolved(arg) for arg in node.args]
            return _with_gaps(
                self._called(node, do.graph, operands, join(self.path, do.instance.path))
            )
        return _with_gaps(self._operator(node, do)) if is_runnable(node) else UNKNOWN

    def _called(self, node: Node, body: str, operands: Sequence[Any], path: str) -> Any:
        run = self.owner.run(body, operands, path)
        runs = self.inner.setdefault((node.name, body), [])
        if all(run is not other for other in runs):
            runs.append(run)
        return run.result

    def _operator(self, node: Node, do: Op) -> Any:
        args = [self.resolved(arg, node) for arg in node.args]
        if do.name == GETITEM and type(args[0]) is tuple and type(args[1]) is int:
            return (
                args[0][args[1]] if -len(args[0]) <= args[1] < len(args[0]) else UNKNOWN
            )  # other parts may be unknown
        kwargs = {key: self.resolved(arg, node) for key, arg in node.kwargs}
        leaves = pytree.tree_leaves((args, kwargs))
        if any(part is UNKNOWN or isinstance(part, CustomObjArgument) for part in leaves):
            return UNKNOWN  # the exporter describes an object, such as a generator, by its name
        self.depends |= depends_on_contents(do.target)
        try:
            return self.owner.values.run(node, do.target, args, kwargs)
        except Exception as error:  # noqa: BLE001  an operator may raise anything
            if not is_refusal(error) and not do.effects.through_bodies:
                self.owner.refusals[self.graph, node.name] = self, node, error
            return UNKNOWN

    def resolved(self, arg: Arg, node: Node | None = None) -> Any:
        """Return an argument in the form that operators accept: values, literals, and functions for bodies."""

        def leaf(part: Arg) -> Any:
            if type(part) is Body:
                caller = node
                assert caller is not None
                return lambda *operands: self._called(caller, part.graph, operands, self.path)
            value = self.known.get(part.name, UNKNOWN) if type(part) is Ref else part
            # The meta may contain a real tensor from a tracer or a user.
            is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
            return self.owner.values.of_state(value) if is_real else value

        return thawed(arg, leaf)


class Interpreter:
    """Infer the values of one program.

    Args:
        program: the program.
        changed: the graph and name of each value whose meta may be wrong.
        values: the domain; by default the fake values of the program, with its symbolic sizes.
    """

    def __init__(
        self,
        program: Program,
        changed: frozenset[tuple[str, str]] = frozenset(),
        *,
        values: FakeValues | None = None,
    ) -> None:
        self.source = program
        self.changed = changed
        self.values = FakeValues(program) if values is None else values
        self.refusals: dict[tuple[str, str], tuple[Run, Node, Exception]] = {}
        """The errors of operators that reject their arguments, by graph and node; their values are unknown."""
        self.slots = {
            name: slot for name, slot in program.state.slots.items() if has_fake_value(slot.value)
        }
        self.runs: dict[str, list[Run]] = {}
        """The runs of each graph."""
        self.memory: dict[str, list[Run]] = {}
        """The runs that calls with equal operands share."""
        self._as_recorded: dict[str, Run] = {}
        self.shared = shared_bodies(program)
        self.missing = reaching(program, filter(self._is_missing, program.order))
        """Graphs with a value to infer, in them or below them."""
        self.open = reaching(program, self.shared | self.missing)
        """Graphs to walk: these, and shared bodies, whose calls may pass other values than those in the meta."""

    def program(self, *, lenient: bool = False) -> Program:
        """Return the program with all values; the same object if none is missing or wrong.

        Args:
            lenient: accept operators that reject their arguments.

        Raises:
            InvalidProgram: an operator rejects its arguments.
        """
        source = self.source
        if source.root not in self.open:
            return source
        self.walk()
        if self.refusals and not lenient:
            raise InvalidProgram([_refused(*each) for each in self.refusals.values()])
        return source.with_graphs(
            {name: _merged(source.graphs[name], runs) for name, runs in self.runs.items()}
        )

    def walk(self, names: Collection[str] | None = None) -> Run:
        """Walk the program from its root; return the run of the root.

        Args:
            names: the nodes of the root to walk; all by default.
        """
        source, root = self.source, self.source.root
        with running(self.values.mode):
            if root not in self.runs:
                operands = [self._operand(formal, spec) for formal, spec in source.inputs]
                self.runs[root] = [Run(self, source.main, root, operands=operands)]
            self.runs[root][0].walk(names)
        return self.runs[root][0]

    def runs_with(self, graph: str, name: str) -> Sequence[Run]:
        """Return the runs of a graph with the value of a name, in a walk over the needed nodes of the root.

        Args:
            graph: the graph; in a body, all values are inferred.
            name: an input or a node of the graph.
        """
        source, names = self.source, [name]
        if graph != source.root:
            above = reaching(source, [graph])
            names = [
                each.name for each in source.main.callers if not above.isdisjoint(each.callees)
            ]
        run = self.runs[source.root][0] if self.runs else self.walk(())
        if needed := _needed(source.main, names, run.known):
            self.walk(needed)
        return self.runs.get(graph, ())

    def _is_missing(self, name: str) -> bool:
        graph = self.source.graphs[name]
        doubts, changed = self.values.doubts, self.changed
        if any(doubts(name, value) or (name, value) in changed for value in graph.metas):
            return True
        missing = [
            value
            for value in (*graph.inputs, *graph.nodes)
            if self.values.recorded(value) is UNKNOWN
        ]
        return any(isinstance(value, Input) or is_runnable(value) for value in missing)

    def _operand(self, formal: Input, spec: Any) -> Any:
        kept = formal if (self.source.root, formal.name) not in self.changed else Input(formal.name)
        with suppress(
            UnsupportedProgram, KeyError
        ):  # a running module keeps no state in its program
            return (
                kept.meta.get("val", UNKNOWN)
                if type(spec) is Token
                else self.values.of_input(kept, spec)
            )
        return UNKNOWN

    def run(self, name: str, operands: Sequence[Any], path: str) -> Run:
        """Return the run of a graph.

        Args:
            name: the graph.
            operands: the values of its inputs.
            path: the module whose body it is; its reads are relative to this path.
        """
        memory = self.memory.setdefault(name, [])
        for known in memory:
            reads_alike = all(
                self.state_at(join(path, slot)) == read for slot, read in known.reads.items()
            )
            if reads_alike and agrees(operands, known.operands):
                return known
        run = Run(self, self.source.graphs[name], name, path, operands)
        run.walk()
        self.runs.setdefault(name, []).append(run)
        if not (run.symbols or run.depends):  # otherwise each call has separate sizes
            memory.append(run)
        return run

    def as_recorded(self, name: str) -> Run:
        """Return the run of a graph with the values of its meta, for calls that are not walked."""
        todo = [name]  # without recursion: modules may nest deeply
        while todo:
            if (called := todo.pop()) not in self._as_recorded:
                graph = self.source.graphs[called]
                self._as_recorded[called] = run = Run(
                    self, graph, called, inputs=list(graph.inputs), nodes=list(graph.nodes)
                )
                self.runs.setdefault(called, []).append(run)
                todo += graph.callees
        return self._as_recorded[name]

    def state_at(self, slot: str) -> Hashable:
        """Return a description of a slot that determines the values of its reads."""
        return described(self.slots[slot].value if slot in self.slots else None)


def _refused(run: Run, node: Node, error: Exception) -> Violation:
    text, advice = (
        f"its operator rejects its arguments: {first_line(error)}",
        "fix the node, or its operands",
    )
    path = path_around(node, run.path)
    return Violation(
        "inferred-meta", text, run.graph, node.name, path, (), source_line(node.meta), advice
    )


def _needed(graph: Graph, names: Sequence[str], known: Collection[str]) -> Collection[str]:
    # The unknown nodes that values depend on; all if their order matters.
    nodes = graph.by_name
    if any(changes_sizes(do) or (type(do) is Op and do.effects.scope) for do in graph.distinct):
        return nodes.keys() - known

    def operands(name: str) -> list[str]:
        return nodes[name].refs() if name in nodes and name not in known else []

    reached = closure(names, operands)
    return [name for name in reached if name in nodes and name not in known]


def _merged(source: Graph, runs: list[Run]) -> Graph:
    if len(runs) == 1:
        return runs[0].body
    inputs = map(_common, source.inputs, zip(*[run.inputs for run in runs], strict=True))
    nodes = map(_common, source.nodes, zip(*[run.nodes for run in runs], strict=True))
    return source.with_nodes(list(nodes), inputs=tuple(inputs))


def _common(source: Item, items: Sequence[Item]) -> Item:
    # The value that all runs have in common; None if they differ.
    values = [item.meta.get("val", UNKNOWN) for item in items]
    if all_agree(values[0], values[1:]):
        return source if any(item is source for item in items) else items[0]
    return evolve(source, meta=without_value(source.meta)) if "val" in source.meta else source


def shared_bodies(program: Program) -> frozenset[str]:
    """Return the graphs that more than one call runs, and those below them.

    >>> shared_bodies(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    users = Counter(body for name in program.order for body in program.graphs[name].callees)
    found = {name for name, count in users.items() if count > 1}
    for name in reversed(program.bottom_up):
        if name in found:
            found.update(program.graphs[name].callees)
    return frozenset(found)


def _with_gaps(value: Any) -> Any:
    # A result, with None for unknown parts.
    if type(value) is not tuple or not any(part is UNKNOWN for part in value):
        return value
    return (
        UNKNOWN
        if all(part is UNKNOWN for part in value)
        else tuple([None if part is UNKNOWN else part for part in value])
    )


def _fills(value: Any, recorded: Any) -> bool:
    # Whether a value only adds formerly unknown results of a call.
    if not (type(value) is type(recorded) is tuple and len(value) == len(recorded)):
        return False
    return all(old is None or agrees(new, old) for new, old in zip(value, recorded, strict=True))


def _with_value(meta: Meta, value: Any, bindings: Any = None) -> Meta:
    made = {**without_value(meta), "val": freeze(value)}
    return MappingProxyType({**made, "unbacked_bindings": bindings} if bindings else made)


class CallValues(Interpreter):
    """The values of each call of a program; calls that share a body may have other values than its meta.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> CallValues(program).root.body is program.main
    True
    """

    @cached_property
    def root(self) -> Run:
        """The run of the root; with the values of the meta if no body is shared or the program has no values."""
        has_values = any(
            "val" in part.meta for part in (*self.source.main.inputs, *self.source.main.nodes)
        )
        return self.walk() if self.shared and has_values else self.as_recorded(self.source.root)

    def inner(self, run: Run, node: Node, body: str) -> Run:
        """Return the run of a body that a node calls or passes to an operator; with the values of the meta if several exist.

        Args:
            run: the run of the graph of the node.
            node: a node of that graph.
            body: the name of the body.
        """
        found = run.inner.get((node.name, body), ())
        return found[0] if len(found) == 1 else self.as_recorded(body)

    @cached_property
    def calls(self) -> dict[str, list[tuple[Run, dict[str, int]]]]:
        """The runs of each graph, callers first, with the number of times that each module executes it."""
        found: dict[str, dict[int, tuple[Run, dict[str, int]]]] = {
            name: {} for name in reversed(self.source.bottom_up)
        }
        found[self.source.root][id(self.root)] = self.root, {"": 1}
        for name, runs in found.items():
            for run, places in runs.values():
                for node in self.source.graphs[name].callers:
                    for body in node.callees:
                        inner = self.inner(run, node, body)
                        counts = found[body].setdefault(id(inner), (inner, {}))[1]
                        for path, count in places.items():
                            place = (
                                join(path, node.do.instance.path) if type(node.do) is Call else path
                            )
                            counts[place] = counts.get(place, 0) + count
        return {name: list(runs.values()) for name, runs in found.items()}

    def at(self, name: str, path: str) -> list[Graph]:
        """Return a graph once for each of its runs in a module, with the values of the run.

        Args:
            name: the graph.
            path: the module.
        """
        return [run.body for run, places in self.calls.get(name, ()) if path in places] or [
            self.source.graphs[name]
        ]
