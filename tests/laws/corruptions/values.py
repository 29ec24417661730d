"""Corruptors of nodes: fields, names, order, arguments, operators and meta.

Those that give another valid program must pass ``verify``; only the semantic laws can detect them.
"""

from __future__ import annotations

import operator
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Ref
from purefx.ir.graph import Get, Graph, Node, Op
from purefx.ir.operators import op_of
from purefx.ir.program import Program
from purefx.ir.signature import StateInput, UserOutput
from purefx.ir.torch_private import OpOverload
from tests.laws.corruptions.contract import inputs_of, known_geometry, mutations
from tests.laws.corruptions.corruptor import (
    Corruptor,
    Place,
    changed,
    corrupts,
    geometry,
    graphs,
    is_call,
    is_op,
    nodes,
    places,
    replaced,
    swapped,
    with_graph,
    with_item,
    with_specs,
)
from tests.laws.corruptions.state import reads

__all__ = ["IN_NODES", "UNSEEN"]

COPY = "aten.copy_.default"
RELU = op_of(torch.ops.aten.relu.default)


@corrupts("well-formed", "the arguments of a node are a list, not a tuple", at=nodes(lambda node: not reads(node)))
def raw_arguments(program: Program, place: Place) -> Program:
    return changed(program, place, args=list(place.node.args))


@corrupts("well-formed", "the nodes of a graph are a list, not a tuple", at=graphs)
def raw_nodes(program: Program, name: str) -> Program:
    return with_graph(program, name, nodes=list(program.graphs[name].nodes))


@corrupts("unique-names", "a node stands there twice", at=nodes(lambda node: is_op(node) or type(node.do) is not Op))
def node_repeated(program: Program, place: Place) -> Program:
    return replaced(program, place, place.node, place.node)


def _used(graph: Graph) -> set[str]:
    return {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())


def _used_nodes(program: Program) -> list[Place]:
    used = {name: _used(program.graphs[name]) for name in program.order}
    return [place for place in places(program) if place.node.name in used[place.graph]]


@corrupts("defined-values", "a node is gone although its value is used", at=_used_nodes)
def node_lost(program: Program, place: Place) -> Program:
    return replaced(program, place)


@corrupts("defined-values", "a node uses a value that nothing makes", at=nodes(is_op))
def unknown_value(program: Program, place: Place) -> Program:
    return changed(program, place, args=(Ref("nothing makes this"), *place.node.args[1:]))


def _behind(program: Program) -> list[tuple[Place, int]]:
    # Nodes that use another, each with the place of that.
    makers = {name: {node.name: index for index, node in enumerate(program.graphs[name].nodes)} for name in program.order}
    uses = [(place, makers[place.graph].get(name)) for place in places(program) for name in place.node.refs()]
    return [(place, index) for place, index in uses if index is not None]


@corrupts("earlier-values", "a node stands before one that makes its argument", at=_behind)
def node_moved_up(program: Program, at: tuple[Place, int]) -> Program:
    place, index = at
    rest = [node for node in program.graphs[place.graph].nodes if node is not place.node]
    return with_graph(program, place.graph, nodes=(*rest[:index], place.node, *rest[index:]))


@corrupts("argument-kinds", "a mutable list is among the arguments of a node", at=nodes(is_op))
def list_argument(program: Program, place: Place) -> Program:
    return changed(program, place, args=([1], *place.node.args[1:]))


@corrupts("argument-kinds", "a tensor is among the arguments of a node", at=nodes(is_op))
def tensor_argument(program: Program, place: Place) -> Program:
    return changed(program, place, args=(torch.ones(1), *place.node.args[1:]))


@corrupts("well-formed", "a node has one keyword twice", at=nodes(is_op))
def keyword_twice(program: Program, place: Place) -> Program:
    return changed(program, place, kwargs=(*place.node.kwargs, ("k", 1), ("k", 2)))


@corrupts("meta", "meta says that the value of a node is a function", at=nodes())
def absurd_value(program: Program, place: Place) -> Program:
    return changed(program, place, meta={**place.node.meta, "val": print})


@corrupts(
    "effects",
    "an operator is said not to write although it does, or to draw random numbers or not",
    at=nodes(lambda node: type(node.do) is Op and node.do.target is not None),
)
def other_effects(program: Program, place: Place) -> Program:
    effects = place.do.effects
    effects = evolve(effects, writes=(), returns=()) if effects.writes else evolve(effects, random=not effects.random)
    return changed(program, place, do=evolve(place.do, effects=effects))


def _is_overload(node: Node) -> bool:
    return type(node.do) is Op and isinstance(node.do.target, OpOverload)


def _is_getitem(node: Node) -> bool:
    return type(node.do) is Op and node.do.target is operator.getitem


def _is_known(node: Node) -> bool:
    return _is_overload(node) or _is_getitem(node)


@corrupts("operator-names", "an operator bears the name of another", at=nodes(_is_overload))
def other_name(program: Program, place: Place) -> Program:
    return changed(program, place, do=evolve(place.do, name="aten.other.default"))


@corrupts("operands", "an operator is given more arguments than it takes", at=nodes(_is_overload))
def too_many_operands(program: Program, place: Place) -> Program:
    return changed(program, place, args=(*place.node.args, *[None] * 40))


def _projections_of_calls(program: Program) -> list[Place]:
    calls = {(place.graph, place.node.name) for place in places(program, is_call)}
    found = places(program, lambda node: _is_getitem(node) and type(node.args[0]) is Ref)
    return [place for place in found if (place.graph, place.node.args[0].name) in calls]


@corrupts("results", "an operator is given all results of a call as one value", at=_projections_of_calls)
def all_results(program: Program, place: Place) -> Program:
    return changed(program, place, do=RELU, args=place.node.args[:1], kwargs=())


def _is_looked_up(node: Node) -> bool:
    # Operators that touch the outside are looked up for nobody.
    return _is_known(node) and type(node.do) is Op and not node.do.effects.ordered


@corrupts("operator-names", "an operator of the registry has nothing to run", at=nodes(_is_looked_up))
def no_target(program: Program, place: Place) -> Program:
    return changed(program, place, do=evolve(place.do, target=None))


def _traced(program: Program) -> list[Place]:
    # Nodes whose value follows from their arguments alone, and is known; bodies of operators may run under autocast.
    known = {value.name: value.meta.get("val") for value in (*program.main.inputs, *program.main.nodes)}

    def is_known(node: Node) -> bool:
        if not _is_overload(node) or type(node.do) is not Op or not node.do.name.startswith("aten.") or node.do.effects.ordered:
            return False
        return all(_is_fixed(known.get(name)) for name in (node.name, *node.refs()))

    return places(program, is_known, graph=program.root)


def _is_fixed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)


def _with_value(program: Program, place: Place, value: torch.Tensor) -> Program:
    return changed(program, place, meta=MappingProxyType({**place.node.meta, "val": value}))


@corrupts("inferred-meta", "meta says another shape than the operator returns", at=_traced)
def wrong_shape_in_meta(program: Program, place: Place) -> Program:
    with torch.no_grad():
        return _with_value(program, place, place.node.meta["val"].unsqueeze(0))


@corrupts("inferred-meta", "meta says another dtype than the operator returns", at=_traced)
def wrong_dtype_in_meta(program: Program, place: Place) -> Program:
    value = place.node.meta["val"]
    with torch.no_grad():
        return _with_value(program, place, value.to(torch.int16 if value.dtype is not torch.int16 else torch.int32))


IN_NODES: tuple[Corruptor, ...] = (
    raw_arguments, raw_nodes, node_repeated, node_lost, unknown_value, node_moved_up, list_argument, tensor_argument,
    keyword_twice, absurd_value, other_effects, other_name, too_many_operands, all_results, no_target, wrong_shape_in_meta,
    wrong_dtype_in_meta,
)  # fmt: skip


@corrupts(None, "new contents are computed and not written back", at=mutations)
def mutation_dropped(program: Program, index: int) -> Program:
    # The node that makes the new contents stays.
    fewer = with_graph(program, program.root, output=with_item(program.main.output, index))
    return with_specs(fewer, outputs=with_item(program.signature.outputs, index))


def _unused_copies(program: Program) -> list[Place]:
    used = _used(program.main)
    found = places(program, lambda node: type(node.do) is Op and node.do.name == COPY, graph=program.root)
    return [place for place in found if place.node.name not in used]


@corrupts(None, "a write of new contents is gone", at=_unused_copies)
def copy_dropped(program: Program, place: Place) -> Program:
    return replaced(program, place)


def _equal_outputs(program: Program) -> list[tuple[int, int]]:
    output, known = program.main.output, known_geometry(program)
    specs = zip(output, program.signature.outputs, strict=True)
    users = [index for index, (value, spec) in enumerate(specs) if type(spec) is UserOutput and type(value) is Ref]
    pairs = [(i, j) for i in users for j in users if i < j and output[i] != output[j]]
    return [(i, j) for i, j in pairs if known[output[i].name] == known[output[j].name]]


@corrupts(None, "two outputs of one shape and dtype change places", at=_equal_outputs)
def equal_outputs_swapped(program: Program, pair: tuple[int, int]) -> Program:
    return with_graph(program, program.root, output=swapped(program.main.output, *pair))


def _equal_parameters(program: Program) -> list[tuple[int, int]]:
    slots = {index: program.state[spec.slot] for index, spec in inputs_of(program, StateInput)}
    return [(i, j) for i in slots for j in slots if i < j and _are_equal(slots[i], slots[j])]


def _are_equal(one: Any, other: Any) -> bool:
    return one.cell != other.cell and geometry(one.value) == geometry(other.value) is not None


@corrupts(None, "two pieces of state of one shape and dtype change places in the signature", at=_equal_parameters)
def equal_parameters_swapped(program: Program, pair: tuple[int, int]) -> Program:
    return with_specs(program, inputs=swapped(program.signature.inputs, *pair))


def _equal_slots(program: Program) -> list[tuple[Place, str]]:
    found = places(program, reads, graph=program.root)
    pairs = [(place, name, slot) for place in found for name, slot in program.state.pairs]
    return [(place, name) for place, name, slot in pairs if _are_equal(slot, program.state[place.do.slot])]


@corrupts(None, "a read comes to another slot of the same shape and dtype", at=_equal_slots)
def other_slot_read(program: Program, at: tuple[Place, str]) -> Program:
    return changed(program, at[0], do=Get(at[1]))


def _has_number(node: Node) -> bool:
    return type(node.do) is Op and node.do.name in ("toy.mul", "toy.add_") and type(node.args[-1]) is int


@corrupts(None, "an operator gets another number", at=nodes(_has_number))
def number_changed(program: Program, place: Place) -> Program:
    return changed(program, place, args=(*place.node.args[:-1], place.node.args[-1] + 1))


UNSEEN: tuple[Corruptor, ...] = (
    mutation_dropped, copy_dropped, equal_outputs_swapped, equal_parameters_swapped, other_slot_read, number_changed,
)  # fmt: skip
