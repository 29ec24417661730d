"""Corruptors of nodes: fields, names, order, arguments, operators and meta.

Those that give another valid program must pass ``verify``; only the semantic laws can detect them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Ref
from ...ir.graph import Get, Graph, Node, Op
from ...ir.program import Program
from ...ir.signature import InputMutation, StateInput, StateMutation, UserOutput
from ...ir.torch_private import OpOverload
from .contract import swapped
from .corruptor import MEANING, Corruptor, Place, changed, choose, geometry, is_op, places, replaced, with_graph, with_specs

__all__ = ["IN_NODES", "UNSEEN"]


def _raw_arguments(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: type(node.do) is not Get), seed)
    return changed(program, place, args=list(place.node.args)) if place is not None else None


def _raw_nodes(program: Program, seed: int) -> Program | None:
    name = choose(program.order, seed)
    return with_graph(program, name, nodes=list(program.graphs[name].nodes)) if name is not None else None


def _repeated(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: is_op(node) or type(node.do) is not Op), seed)
    return replaced(program, place, place.node, place.node) if place is not None else None


def _used(graph: Graph) -> set[str]:
    return {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())


def _lost(program: Program, seed: int) -> Program | None:
    used = {name: _used(program.graphs[name]) for name in program.order}
    lost = choose([place for place in places(program) if place.node.name in used[place.graph]], seed)
    return replaced(program, lost)


def _moved_up(program: Program, seed: int) -> Program | None:
    makers = {name: {node.name: index for index, node in enumerate(program.graphs[name].nodes)} for name in program.order}
    options = [
        (place, makers[place.graph][name])
        for place in places(program)
        for name in place.node.refs()
        if name in makers[place.graph]
    ]
    chosen = choose(options, seed)
    if chosen is None:
        return None
    place, index = chosen
    nodes = [node for node in program.graphs[place.graph].nodes if node is not place.node]
    return with_graph(program, place.graph, nodes=(*nodes[:index], place.node, *nodes[index:]))


def _with_argument(program: Program, seed: int, value: Any) -> Program | None:
    place = choose(places(program, is_op), seed)
    return changed(program, place, args=(value, *place.node.args[1:])) if place is not None else None


def _keyword_twice(program: Program, seed: int) -> Program | None:
    place = choose(places(program, is_op), seed)
    return changed(program, place, kwargs=(*place.node.kwargs, ("k", 1), ("k", 2))) if place is not None else None


def _absurd_value(program: Program, seed: int) -> Program | None:
    place = choose(places(program), seed)
    return changed(program, place, meta={**place.node.meta, "val": print}) if place is not None else None


def _targeted(node: Node) -> bool:
    return type(node.do) is Op and node.do.target is not None


def _other_effects(program: Program, seed: int) -> Program | None:
    place = choose(places(program, _targeted), seed)
    if place is None or type(place.node.do) is not Op:
        return None
    effects = place.node.do.effects
    effects = evolve(effects, writes=(), returns=()) if effects.writes else evolve(effects, random=not effects.random)
    return changed(program, place, do=evolve(place.node.do, effects=effects))


def _other_name(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: type(node.do) is Op and isinstance(node.do.target, OpOverload)), seed)
    return changed(program, place, do=evolve(place.node.do, name="aten.other.default")) if place is not None else None


def _traced(program: Program) -> list[Place]:
    # Nodes whose value follows from their arguments alone, and is known; bodies of operators may run under autocast.
    graph = program.main
    known = {part.name: part.meta.get("val") for part in (*graph.inputs, *graph.nodes)}

    def is_known(node: Node) -> bool:
        plain = type(node.do) is Op and isinstance(node.do.target, OpOverload) and node.do.name.startswith("aten.")
        if not plain or not _is_fixed(known[node.name]) or type(node.do) is not Op or node.do.effects.ordered:
            return False
        return all(_is_fixed(known.get(name)) for name in node.refs())

    return places(program, is_known, graph=program.root)


def _is_fixed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)


def _with_value(program: Program, seed: int, *, shape: bool) -> Program | None:
    place = choose(_traced(program), seed)
    if place is None:
        return None
    value = place.node.meta["val"]
    with torch.no_grad():
        other = value.unsqueeze(0) if shape else value.to(torch.int16 if value.dtype is not torch.int16 else torch.int32)
    return changed(program, place, meta=MappingProxyType({**place.node.meta, "val": other}))


IN_NODES: tuple[Corruptor, ...] = (
    Corruptor("raw arguments", "verify:well-formed", "the arguments of a node are a list, not a tuple", _raw_arguments),
    Corruptor("raw nodes", "verify:well-formed", "the nodes of a graph are a list, not a tuple", _raw_nodes),
    Corruptor("node repeated", "verify:unique-names", "a node stands there twice", _repeated),
    Corruptor("node lost", "verify:defined-values", "a node is gone although its value is used", _lost),
    Corruptor("unknown value", "verify:defined-values", "a node uses a value that nothing makes",
              lambda program, seed: _with_argument(program, seed, Ref("nothing makes this"))),
    Corruptor("node moved up", "verify:earlier-values", "a node stands before one that makes its argument", _moved_up),
    Corruptor("list argument", "verify:argument-kinds", "a mutable list is among the arguments of a node",
              lambda program, seed: _with_argument(program, seed, [1])),
    Corruptor("tensor argument", "verify:argument-kinds", "a tensor is among the arguments of a node",
              lambda program, seed: _with_argument(program, seed, torch.ones(1))),
    Corruptor("keyword twice", "verify:keywords", "a node has one keyword twice", _keyword_twice),
    Corruptor("absurd value", "verify:meta", "meta says that the value of a node is a function", _absurd_value),
    Corruptor("other effects", "verify:effects",
              "an operator is said not to write although it does, or to draw random numbers or not",
              _other_effects),
    Corruptor("other name", "verify:operator-names", "an operator bears the name of another", _other_name),
    Corruptor("wrong shape in meta", "verify:inferred-meta", "meta says another shape than the operator returns",
              lambda program, seed: _with_value(program, seed, shape=True)),
    Corruptor("wrong dtype in meta", "verify:inferred-meta", "meta says another dtype than the operator returns",
              lambda program, seed: _with_value(program, seed, shape=False)),
)  # fmt: skip

COPY = "aten.copy_.default"


def _mutation_dropped(program: Program, seed: int) -> Program | None:
    # The node that makes the new contents stays; they are just not written back.
    specs, output = program.signature.outputs, program.main.output
    index = choose([i for i, spec in enumerate(specs) if type(spec) in (StateMutation, InputMutation)], seed)
    if index is None:
        return None
    fewer = with_graph(program, program.root, output=output[:index] + output[index + 1 :])
    return with_specs(fewer, outputs=specs[:index] + specs[index + 1 :])


def _copy_dropped(program: Program, seed: int) -> Program | None:
    graph = program.main
    used = {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())

    def is_copy(node: Node) -> bool:
        return type(node.do) is Op and node.do.name == COPY and node.name not in used

    return replaced(program, choose(places(program, is_copy, graph=program.root), seed))


def _outputs_swapped(program: Program, seed: int) -> Program | None:
    graph = program.main
    known = {part.name: geometry(part.meta.get("val")) for part in (*graph.inputs, *graph.nodes)}
    users = [i for i, spec in enumerate(program.signature.outputs) if type(spec) is UserOutput]
    pairs = [(i, j) for i in users for j in users if i < j and _alike(graph.output[i], graph.output[j], known)]
    chosen = choose(pairs, seed)
    return with_graph(program, program.root, output=swapped(graph.output, *chosen)) if chosen is not None else None


def _alike(left: object, right: object, known: dict[str, tuple[object, ...] | None]) -> bool:
    return type(left) is Ref and type(right) is Ref and left != right and known[left.name] == known[right.name]


def _parameters_swapped(program: Program, seed: int) -> Program | None:
    specs, state = program.signature.inputs, program.state
    takes = [(i, state[spec.slot]) for i, spec in enumerate(specs) if type(spec) is StateInput]
    pairs = [
        (i, j)
        for i, mine in takes
        for j, other in takes
        if i < j and mine.cell != other.cell and geometry(mine.value) == geometry(other.value) is not None
    ]
    chosen = choose(pairs, seed)
    return with_specs(program, inputs=swapped(specs, *chosen)) if chosen is not None else None


def _other_slot_read(program: Program, seed: int) -> Program | None:
    state = program.state
    options = [
        (place, name)
        for place in places(program, lambda node: type(node.do) is Get, graph=program.root)
        for name, slot in state.pairs
        if type(place.node.do) is Get
        and slot.cell != state[place.node.do.slot].cell
        and geometry(slot.value) == geometry(state[place.node.do.slot].value) is not None
    ]
    chosen = choose(options, seed)
    return changed(program, chosen[0], do=Get(chosen[1])) if chosen is not None else None


def _number_changed(program: Program, seed: int) -> Program | None:
    def has_number(node: Node) -> bool:
        return type(node.do) is Op and node.do.name in ("toy.mul", "toy.add_") and type(node.args[-1]) is int

    place = choose(places(program, has_number), seed)
    if place is None:
        return None
    return replaced(program, place, evolve(place.node, args=(*place.node.args[:-1], place.node.args[-1] + 1)))


UNSEEN: tuple[Corruptor, ...] = (
    Corruptor("mutation dropped", MEANING, "new contents are computed and not written back", _mutation_dropped),
    Corruptor("copy dropped", MEANING, "a write of new contents is gone", _copy_dropped),
    Corruptor("equal outputs swapped", MEANING, "two outputs of one shape and dtype change places", _outputs_swapped),
    Corruptor("equal parameters swapped", MEANING, "two pieces of state of one shape and dtype change places in the signature",
              _parameters_swapped),
    Corruptor("other slot read", MEANING, "a read comes to another slot of the same shape and dtype", _other_slot_read),
    Corruptor("number changed", MEANING, "an operator gets another number", _number_changed),
)  # fmt: skip
