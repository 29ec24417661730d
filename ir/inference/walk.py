"""``Walk``: one graph with the values of its inputs, node by node.

A node is evaluated if it has no value, or if an operand is new or changed.  How bodies run, the owner of the walk says.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, evolve, field

from ..analysis.numbers import SYMBOLIC
from ..arguments import Arg, Body, Ref, thawed
from ..calls.call_graph import bodies_of
from ..errors import InvalidProgram, Violation
from ..graph import Call, Get, Graph, Input, Node, Op
from ..meta import Meta, freeze
from ..names import join
from ..tensors import disagreement
from ..torch_private import FakeTensor, OpOverload, is_refusal
from .results import agrees, alters, depends_on_contents, is_runnable
from .values import gives_nothing

GETITEM = "operator.getitem"

UNKNOWN: Any = object()
"""The unknown value."""


@define(eq=False)
class Called:
    """A graph as one call runs it, or several that give it alike values."""

    graph: str
    given: Sequence[Any]
    source: Graph
    inputs: list[Input] = field(factory=list)
    """Inputs and nodes with the values of this call."""
    nodes: list[Node] = field(factory=list)
    value: Any = UNKNOWN
    """What it gives."""
    moved: bool = False
    """Whether something came out otherwise than meta said."""
    fresh: frozenset[str] = frozenset()
    """The symbols that its operators made, for sizes that only a run knows."""
    depends: bool = False
    """Whether sizes in it depend on the contents of tensors, so that another call has sizes of its own."""
    inner: dict[tuple[str, str], list[Called]] = field(factory=dict)
    """How the bodies run that its nodes call or give to operators, by node and body."""

    @property
    def body(self) -> Graph:
        """The graph with the values of this call; the same object where meta says them."""
        source = self.source
        same = all(map(operator.is_, self.inputs, source.inputs)) and all(map(operator.is_, self.nodes, source.nodes))
        return source if same else Graph(tuple(self.inputs), tuple(self.nodes), source.output)


@define
class Walk:
    """One graph with the values of its inputs."""

    owner: Any
    """The ``Propagation`` that it is a part of."""
    call: Called
    """What is found."""
    path: str
    """The module whose state its reads name."""
    known: dict[str, Any] = field(factory=dict)
    fresh: set[str] = field(factory=set)
    """Values that there were none of before."""
    moved: set[str] = field(factory=set)
    """Values that are not what meta said."""
    current: str = ""
    """The node that is taken."""
    below: bool = False
    """Whether something came out differently in a body that the node gives to an operator."""
    level: int = 0
    """How many regions are open in which operators give something else."""

    def run(self) -> Called:
        """Return how the graph runs."""
        call, graph = self.call, self.call.source
        call.inputs = [self._input(formal, value) for formal, value in zip(graph.inputs, call.given, strict=True)]
        for node in graph.nodes:
            call.nodes.append(self._node(node))
        call.moved, call.value = bool(self.moved), self.resolved(graph.output)
        return call

    def _told(self, value: Node | Input) -> Any:
        # The value that meta has and that may stay.
        meta = value.meta
        return meta["val"] if "val" in meta and self.owner.values.is_ours(meta["val"]) else UNKNOWN

    def _input(self, formal: Input, value: Any) -> Input:
        told = self._told(formal)
        # What is given, and not what meta says of it: a tensor remembers the sizes that only a run knows, as its own.
        self.known[formal.name] = told if value is UNKNOWN else value
        if value is UNKNOWN or (told is not UNKNOWN and agrees(value, told)):
            return formal
        (self.moved if "val" in formal.meta else self.fresh).add(formal.name)
        return evolve(formal, meta=_with_value(formal.meta, value))

    def _is_changed(self, node: Node) -> bool:
        # Whether a value may differ from what meta says; a read in a shared body is of another tensor in each module.
        if (self.call.graph, node.name) in self.owner.changed or not self.moved.isdisjoint(node.refs()):
            return True
        if type(node.do) is not Get or self.call.graph not in self.owner.shared:
            return False
        slot = self.owner.slots.get(join(self.path, node.do.slot))
        return slot is not None and disagreement(node.meta.get("val"), slot.value) is not None

    def _node(self, node: Node) -> Node:
        if self._is_settled(node):
            self.known[node.name] = node.meta["val"]
            return node
        if gives_nothing(node):
            return node
        self.current, self.below = node.name, False
        self.level += alters(node)
        value = told = self._told(node)
        is_changed = self._is_changed(node)
        is_new = told is UNKNOWN or not self.fresh.isdisjoint(node.refs())
        if is_changed or is_new or not self.owner.open.isdisjoint(bodies_of(node)):
            value = self._value(node, told)
        return self._kept(node, told, value, is_changed=is_changed or self.below)

    def _is_settled(self, node: Node) -> bool:
        # Whether meta has a tensor that stays, and nothing else is to be done: that is so of nearly all nodes.
        do, value = node.do, node.meta.get("val")
        if type(do) is not Op or type(value) is not FakeTensor or value.fake_mode is not self.owner.values.mode:
            return False
        effects = do.effects
        if effects.writes or effects.scope or effects.through_bodies or effects.unknown:
            return False
        if self.owner.changed and (self.call.graph, node.name) in self.owner.changed:
            return False
        if not (self.fresh or self.moved):
            return True
        names = node.refs()
        return self.fresh.isdisjoint(names) and self.moved.isdisjoint(names)

    def _met(self, called: Called) -> Called:
        met = self.call.inner.setdefault((self.current, called.graph), [])
        if all(called is not other for other in met):
            met.append(called)
        self.below |= called.moved
        self.call.fresh |= called.fresh
        self.call.depends |= called.depends
        return called

    def _kept(self, node: Node, told: Any, value: Any, *, is_changed: bool) -> Node:
        bindings = self.owner.values.bindings.pop(node.name, None)
        fresh = frozenset(map(str, bindings)) if bindings else frozenset[str]()
        self.call.fresh |= fresh
        for bodies in [self.call.inner.get((node.name, body), ()) for body in bodies_of(node)]:
            fresh = fresh.union(*[called.fresh for called in bodies])
            if any(called.depends for called in bodies):
                fresh = fresh.union(*[_unnamed(called.value) for called in bodies])
        if _is_unknown(value) and told is not UNKNOWN and not is_changed:
            value = told
        if value is told or (told is not UNKNOWN and value is not UNKNOWN and agrees(value, told, fresh)):
            self._learn(node, told)
            return node
        self._learn(node, value)
        is_new = not is_changed and ("val" not in node.meta or _is_filled(value, told))
        (self.fresh if is_new else self.moved).add(node.name)
        return evolve(node, meta=without_value(node.meta) if value is UNKNOWN else _with_value(node.meta, value, bindings))

    def _learn(self, node: Node, value: Any) -> None:
        if type(node.do) is Call and type(value) is tuple:
            value = tuple([UNKNOWN if part is None else part for part in value])
        self.known[node.name] = value
        target: Any = node.do.target if type(node.do) is Op else None
        if isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags and type(node.args[0]) is Ref:
            self.known[node.args[0].name] = value  # it has another shape from here on, under its old name
            self.moved.add(node.args[0].name)

    def _value(self, node: Node, told: Any) -> Any:
        match node.do:
            case Get(slot=slot):
                held = self.owner.slots.get(join(self.path, slot))  # a running module keeps no state in its program
                value = None if held is None else held.value
                return self.owner.values.of_state(value) if isinstance(value, torch.Tensor) else UNKNOWN
            case Call(instance=instance, graph=graph):
                if self.level:
                    return UNKNOWN
                given = tuple([self.resolved(arg) for arg in node.args])
                return _with_gaps(self._met(self.owner.run(graph, given, join(self.path, instance.path))).value)
            case _:
                return self._operator(node, told) if not self.level and is_runnable(node) else UNKNOWN

    def _operator(self, node: Node, told: Any) -> Any:
        assert type(node.do) is Op
        args = [self.resolved(arg) for arg in node.args]
        if node.do.name == GETITEM and type(args[0]) is tuple and type(args[1]) is int:
            return args[0][args[1]] if -len(args[0]) <= args[1] < len(args[0]) else UNKNOWN  # the others may be unknown
        kwargs = {key: self.resolved(arg) for key, arg in node.kwargs}
        if any(_is_unknown(arg) for arg in (*args, *kwargs.values())):
            return UNKNOWN
        self.call.depends |= depends_on_contents(node)
        try:
            return self.owner.values.run(node, node.do.target, args, kwargs, told)
        except InvalidProgram:
            raise
        except Exception as error:
            if self.owner.lenient or is_refusal(error) or node.do.effects.through_bodies:
                return UNKNOWN
            raise self._refused(node, error) from error

    def _refused(self, node: Node, error: Exception) -> InvalidProgram:
        said = (str(error) or type(error).__name__).splitlines()[0]
        text, path = (
            f"its operator does not take the values of its arguments: {said}",
            node.stack[-1].path if node.stack else self.path,
        )
        lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
        source, advice = lines[-2].strip() if len(lines) > 1 else None, "fix the node, or what it uses"
        return InvalidProgram([Violation("inferred-meta", text, self.call.graph, node.name, path, (), source, advice)])

    def resolved(self, arg: Arg) -> Any:
        """Return an argument as operators take it: values, literals, and functions for bodies."""
        return thawed(arg, self._leaf)

    def _leaf(self, arg: Arg) -> Any:
        kind = type(arg)
        if kind is Ref:
            return self._tensor(self.known.get(arg.name, UNKNOWN))
        if kind is not Body:
            return arg
        return lambda *given: self._met(self.owner.run(arg.graph, given, self.path)).value

    def _tensor(self, value: Any) -> Any:
        # What a tracer or a user has put there may be a real tensor.
        is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return self.owner.values.of_state(value) if is_real else value


def _unnamed(value: Any) -> set[str]:
    # The symbols in a value for sizes that only a run knows; a tensor remembers those that it was asked for before.
    parts = value if isinstance(value, tuple | list) else (value,)
    sizes = [size for part in parts for size in (part.shape if isinstance(part, torch.Tensor) else (part,))]
    return {name for size in sizes if isinstance(size, SYMBOLIC) for name in re.findall(r"\bu\d+", str(size))}


def _with_gaps(value: Any) -> Any:
    # What a call returns, None for the parts that are not known.
    if type(value) is not tuple or not any(part is UNKNOWN for part in value):
        return value
    return UNKNOWN if all(part is UNKNOWN for part in value) else tuple([None if part is UNKNOWN else part for part in value])


def _is_filled(value: Any, told: Any) -> bool:
    # Of a call that gives several values, some were not known.
    if not (type(value) is type(told) is tuple and len(value) == len(told)):
        return False
    return all(old is None or agrees(new, old) for new, old in zip(value, told, strict=True))


def _is_unknown(arg: Any) -> bool:
    if isinstance(arg, tuple | list):
        return any(map(_is_unknown, arg))
    if type(arg) is dict:
        return any(map(_is_unknown, arg.values()))
    return arg is UNKNOWN


TOLD = ("val", "tensor_meta", "unbacked_bindings")
"""What meta says of shapes."""


def without_value(meta: Meta) -> Meta:
    """Return meta without what it says of shapes.

    >>> dict(without_value({"val": 1, "stack_trace": "here"}))
    {'stack_trace': 'here'}
    """
    return MappingProxyType({key: value for key, value in meta.items() if key not in TOLD})


def _with_value(meta: Meta, value: Any, bindings: Any = None) -> Meta:
    made = {**without_value(meta), "val": freeze(value)}
    return MappingProxyType({**made, "unbacked_bindings": bindings} if bindings else made)
