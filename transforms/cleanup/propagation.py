"""``Propagation``: one walk through a program that works out fake values, graph by graph.

One idea: every graph is walked once to keep what is found, with what its first call gives it, as the meta of a shared body
says it; further calls of a body are only followed for what they give, where that is asked.  Values that are new or came out
differently are remembered, and what uses them is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, evolve, field

from ...ir.arguments import Arg, Body, Items, Record, Ref, bodies_in
from ...ir.errors import InvalidProgram, UnsupportedProgram
from ...ir.fakes import FakeValues, running
from ...ir.graph import Graph, Input
from ...ir.meta import Meta, freeze
from ...ir.node import Call, Get, Node, Op
from ...ir.paths import join
from ...ir.program import Program
from ...ir.signature import RestType, Token, UserInput
from ...ir.torch_private import FakeTensor, OpOverload, is_refusal
from ...ir.verify import Violation
from ..calls import GETITEM
from .likeness import likely
from .runnable import alters, gives_nothing, is_runnable

__all__ = ["Propagation"]

UNKNOWN: Any = object()
"""The value of what nobody can tell."""


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
        self.open = self._lacking()
        """Graphs in which something is to be worked out, or below which."""

    def program(self) -> Program:
        """Return the program with values; the same object where nothing was to do."""
        source = self.source
        if source.root not in self.open:
            return source
        with running(self.values.mode):
            given = [self._given(formal, spec) for formal, spec in zip(source.main.inputs, source.signature.inputs, strict=True)]
            self.walk(source.root, given, "", keep=True)
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

    def walk(self, name: str, given: Sequence[Any], path: str, *, keep: bool) -> Any:
        """Return what a graph gives for some values.

        Args:
            name: its id.
            given: the values of its inputs.
            path: the module whose state its reads name.
            keep: whether this is the walk whose values stay in meta.
        """
        graph = self.source.graphs[name]
        if keep:
            self.made[name] = graph
        work = _Walk(self, name, path, keep)
        inputs = [work.input(formal, value) for formal, value in zip(graph.inputs, given, strict=True)]
        nodes = [work.node(node) for node in graph.nodes]
        if keep and (_differ(inputs, graph.inputs) or _differ(nodes, graph.nodes)):
            self.made[name] = Graph(tuple(inputs), tuple(nodes), graph.output)
        if keep and work.moved:
            self.moved.add(name)
        return work.resolved(graph.output)


def _differ(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return any(mine is not theirs for mine, theirs in zip(new, old, strict=True))


@define
class _Walk:
    """One graph with the values of its inputs."""

    owner: Propagation
    graph: str
    path: str
    keep: bool
    known: dict[str, Any] = field(factory=dict)
    fresh: set[str] = field(factory=set)
    """Values that there were none of before."""
    moved: set[str] = field(factory=set)
    """Values that are not what meta said."""
    level: int = 0
    """How many regions are open in which operators give something else."""

    def told(self, value: Node | Input) -> Any:
        """Return the value that meta has and that may stay."""
        meta = value.meta
        if not self.keep or "val" not in meta or not self.owner.values.is_ours(meta["val"]):
            return UNKNOWN
        return meta["val"]

    def input(self, formal: Input, value: Any) -> Input:
        """Take an input; return it with its value."""
        told = self.told(formal)
        if value is UNKNOWN or (told is not UNKNOWN and likely(value, told)):
            self.known[formal.name] = told
            return formal
        self.known[formal.name] = value
        (self.moved if "val" in formal.meta else self.fresh).add(formal.name)
        return evolve(formal, meta=_with_value(formal.meta, value)) if self.keep else formal

    def node(self, node: Node) -> Node:
        """Take a node; return it with its value."""
        if gives_nothing(node):
            return node
        self.level += alters(node)
        told = self.told(node)
        uses = node.refs()
        is_changed = (self.graph, node.name) in self.owner.changed or not self.moved.isdisjoint(uses)
        is_asked = is_changed or told is UNKNOWN or not self.fresh.isdisjoint(uses) or self._has_open_body(node)
        value = self._value(node) if is_asked else told
        is_changed = is_changed or (is_asked and self._has_moved_body(node))
        return self._kept(node, told, value, is_changed=is_changed)

    def _kept(self, node: Node, told: Any, value: Any, *, is_changed: bool) -> Node:
        bindings = self.owner.values.bindings.pop(node.name, None)
        if _is_unknown(value) and told is not UNKNOWN and not is_changed:
            value = told
        if value is told or (told is not UNKNOWN and value is not UNKNOWN and likely(value, told, _symbols(bindings))):
            self._learn(node, told)
            return node
        self._learn(node, value)
        is_new = not is_changed and ("val" not in node.meta or _is_filled(value, told))
        (self.fresh if is_new else self.moved).add(node.name)
        if not self.keep:
            return node
        return evolve(node, meta=_without_value(node.meta) if value is UNKNOWN else _with_value(node.meta, value, bindings))

    def _learn(self, node: Node, value: Any) -> None:
        if type(node.do) is Call and type(value) is tuple:
            value = tuple([UNKNOWN if part is None else part for part in value])
        self.known[node.name] = value
        target: Any = node.do.target if type(node.do) is Op else None
        if isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags and type(node.args[0]) is Ref:
            self.known[node.args[0].name] = value  # it has another shape from here on, under its old name
            self.moved.add(node.args[0].name)

    def _has_open_body(self, node: Node) -> bool:
        return not self.owner.open.isdisjoint(_bodies(node))

    def _has_moved_body(self, node: Node) -> bool:
        return not self.owner.moved.isdisjoint(_bodies(node))

    def _value(self, node: Node) -> Any:
        match node.do:
            case Get(slot=slot):
                value = self.owner.source.state[join(self.path, slot)].value
                return self.owner.values.of_state(value) if isinstance(value, torch.Tensor) else UNKNOWN
            case Call(instance=instance, graph=body):
                given = [self.resolved(arg) for arg in node.args]
                return _with_gaps(self.body(body, given, join(self.path, instance.path)))
            case _:
                return self._operator(node) if not self.level and is_runnable(node) else UNKNOWN

    def body(self, name: str, given: Sequence[Any], path: str) -> Any:
        """Return what a body gives; the first time its values are kept."""
        owner = self.owner
        return owner.walk(name, given, path, keep=self.keep and name not in owner.made)

    def _operator(self, node: Node) -> Any:
        args = [self.resolved(arg) for arg in node.args]
        if node.do == GETITEM and type(args[0]) is tuple and type(args[1]) is int:
            return args[0][args[1]] if -len(args[0]) <= args[1] < len(args[0]) else UNKNOWN  # the others may be unknown
        kwargs = {key: self.resolved(arg) for key, arg in node.kwargs}
        if any(_is_unknown(arg) for arg in (*args, *kwargs.values())):
            return UNKNOWN
        assert type(node.do) is Op
        try:
            return self.owner.values.run(node, node.do.target, args, kwargs)
        except InvalidProgram:
            raise
        except Exception as error:
            if is_refusal(error) or node.do.effects.through_bodies:
                return UNKNOWN
            raise self._refused(node, error) from error

    def _refused(self, node: Node, error: Exception) -> InvalidProgram:
        said = (str(error) or type(error).__name__).splitlines()[0]
        lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
        found = Violation(
            "inferred-meta",
            f"its operator does not take the values of its arguments: {said}",
            graph=self.graph,
            node=node.name,
            path=node.stack[-1].path if node.stack else self.path,
            source=lines[-2].strip() if len(lines) > 1 else None,
            advice="mend the node, or what it uses",
        )
        return InvalidProgram([found])

    def resolved(self, arg: Arg) -> Any:
        """Return an argument as operators take it: values, literals, and functions for bodies."""
        kind = type(arg)
        if kind is Ref:
            return self._tensor(self.known.get(arg.name, UNKNOWN))
        if kind is Body:
            return lambda *given, name=arg.graph: self.body(name, given, self.path)
        if kind is Items:
            return [self.resolved(part) for part in arg]
        if kind is tuple:
            return tuple([self.resolved(part) for part in arg])
        if kind is Record:
            return {key: self.resolved(part) for key, part in arg.items}
        return slice(*map(self.resolved, (arg.start, arg.stop, arg.step))) if kind is slice else arg

    def _tensor(self, value: Any) -> Any:
        # What a tracer or a user has put there may be a real tensor.
        is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return self.owner.values.of_state(value) if is_real else value


def _bodies(node: Node) -> Sequence[str]:
    do = node.do
    if type(do) is Call:
        return (do.graph,)
    return bodies_in(node.args, node.kwargs) if type(do) is Op and do.effects.through_bodies else ()


def _with_gaps(value: Any) -> Any:
    # What a call gives, None for the parts that are not known.
    if type(value) is not tuple or not any(part is UNKNOWN for part in value):
        return value
    return UNKNOWN if all(part is UNKNOWN for part in value) else tuple([None if part is UNKNOWN else part for part in value])


def _is_filled(value: Any, told: Any) -> bool:
    # Of a call that gives several values, some were not known.
    if not (type(value) is type(told) is tuple and len(value) == len(told)):
        return False
    return all(old is None or likely(new, old) for new, old in zip(value, told, strict=True))


def _is_unknown(arg: Any) -> bool:
    if isinstance(arg, tuple | list):
        return any(map(_is_unknown, arg))
    if type(arg) is dict:
        return any(map(_is_unknown, arg.values()))
    return arg is UNKNOWN


def _symbols(bindings: Any) -> frozenset[str]:
    return frozenset(map(str, bindings)) if bindings else frozenset()


TOLD = ("val", "tensor_meta", "unbacked_bindings")
"""What meta says of shapes."""


def _without_value(meta: Meta) -> Meta:
    return MappingProxyType({key: value for key, value in meta.items() if key not in TOLD})


def _with_value(meta: Meta, value: Any, bindings: Any = None) -> Meta:
    made = {**_without_value(meta), "val": freeze(value)}
    return MappingProxyType({**made, "unbacked_bindings": bindings} if bindings else made)
