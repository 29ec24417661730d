"""Corruptors of state and operands: order, values, ties, shared memory, shapes, and what operators and callers pass.

Each says who must refuse the result.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Ref
from ...ir.graph import Call, Get, Node, Op
from ...ir.operators import op_of
from ...ir.program import Program
from ...ir.signature import NumberType, StateInput, UserInput
from ...ir.torch_private import OpOverload, pytree
from .contract import swapped
from .corruptor import Corruptor, changed, choose, geometry, places, with_graph, with_specs

__all__ = ["IN_OPERANDS", "IN_STATE", "with_slot"]


def with_slot(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one slot replaced."""
    state = program.state
    return program.evolve(state=evolve(state, slots=state.slots.set(name, evolve(state[name], **changes))))


def _order_lost(program: Program, seed: int) -> Program | None:
    lost = choose(program.state.order, seed)
    order = tuple(name for name in program.state.order if name != lost)
    return program.evolve(state=evolve(program.state, order=order)) if lost is not None else None


def _value_lost(program: Program, seed: int) -> Program | None:
    name = choose(program.state.order, seed)
    return with_slot(program, name, value=None) if name is not None else None


def _tie_invented(program: Program, seed: int) -> Program | None:
    pairs = program.state.pairs
    options = [
        (name, other.cell)
        for number, (name, slot) in enumerate(pairs)
        for _, other in pairs[:number]
        if slot.storage != other.storage
    ]
    chosen = choose(options, seed)
    return with_slot(program, chosen[0], cell=chosen[1]) if chosen is not None else None


def _shared(program: Program, names: Sequence[str]) -> list[str]:
    counts: dict[int, int] = {}
    for _, slot in program.state.pairs:
        counts[slot.storage] = counts.get(slot.storage, 0) + 1
    return [name for name in names if counts[program.state[name].storage] > 1 and _is_tensor(program, name)]


def _is_tensor(program: Program, name: str) -> bool:
    value = program.state[name].value
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _alias_broken(program: Program, seed: int) -> Program | None:
    name = choose(_shared(program, program.state.order), seed)
    return with_slot(program, name, value=_copied(program.state[name].value)) if name is not None else None


def _tie_cloned(program: Program, seed: int) -> Program | None:
    tied = [name for names in program.state.by_cell.values() if len(names) > 1 for name in names]
    name = choose(_shared(program, tied), seed)
    return with_slot(program, name, value=_copied(program.state[name].value)) if name is not None else None


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().clone()
    return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else copy


def _alias_undeclared(program: Program, seed: int) -> Program | None:
    name = choose(_shared(program, program.state.order), seed)
    highest = max((slot.storage for _, slot in program.state.pairs), default=0)
    return with_slot(program, name, storage=highest + 1) if name is not None else None


def _alias_invented(program: Program, seed: int) -> Program | None:
    # A tie would be another rule's: both slots of the pair are alone in their cells.
    tensors = [(name, slot) for name, slot in program.state.pairs if _is_tensor(program, name)]
    options = [(name, other.storage) for name, slot in tensors for _, other in tensors if slot.storage != other.storage]
    chosen = choose(options, seed)
    return with_slot(program, chosen[0], storage=chosen[1]) if chosen is not None else None


def _input_of_another_shape(program: Program, seed: int) -> Program | None:
    graph = program.main
    options = [
        index
        for index, spec in enumerate(program.signature.inputs)
        if type(spec) is StateInput and _is_tensor(program, spec.slot)
    ]
    index = choose(options, seed)
    if index is None:
        return None
    inputs = list(graph.inputs)
    spec: Any = program.signature.inputs[index]
    wrong = torch.empty((*program.state[spec.slot].value.shape, 2), device="meta")
    inputs[index] = evolve(inputs[index], meta=MappingProxyType({**inputs[index].meta, "val": wrong}))
    return with_graph(program, program.root, inputs=tuple(inputs))


def _read_of_another_shape(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: type(node.do) is Get and node.do.slot in program.state, graph=program.root), seed)
    if place is None or type(place.node.do) is not Get or not _is_tensor(program, place.node.do.slot):
        return None
    wrong = torch.empty((*program.state[place.node.do.slot].value.shape, 2), device="meta")
    return changed(program, place, meta=MappingProxyType({**place.node.meta, "val": wrong}))


def _parameters_swapped(program: Program, seed: int) -> Program | None:
    specs = program.signature.inputs
    known = [geometry(formal.meta.get("val")) for formal in program.main.inputs]
    states = [i for i, spec in enumerate(specs) if type(spec) is StateInput and known[i] is not None]
    plain = [i for i in states if None not in (known[i] or ())]
    chosen = choose([(i, j) for number, i in enumerate(plain) for j in plain[:number] if known[i] != known[j]], seed)
    return with_specs(program, inputs=swapped(specs, *chosen)) if chosen is not None else None


def _read_of_nothing(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: type(node.do) is Get), seed)
    return changed(program, place, do=Get("nowhere")) if place is not None else None


def _slot_lost(program: Program, seed: int) -> Program | None:
    read = {node.do.slot for node in program.main.nodes if type(node.do) is Get}
    lost = choose([name for name in program.state.order if name in read], seed)
    if lost is None:
        return None
    order = tuple(name for name in program.state.order if name != lost)
    return program.evolve(state=evolve(program.state, order=order, slots=program.state.slots.remove(lost)))


IN_STATE: tuple[Corruptor, ...] = (
    Corruptor("order lost", "verify:state-order", "a slot has no place in the order of state", _order_lost),
    Corruptor("value lost", "verify:state-values", "a slot holds nothing", _value_lost),
    Corruptor("tie invented", "verify:state-ties", "two slots are said to be one tensor, and are not", _tie_invented),
    Corruptor("alias broken", "verify:state-memory", "a tensor that shares memory with another is replaced by a copy",
              _alias_broken),
    Corruptor("tie cloned", "verify:state-memory", "a tied tensor is replaced by a copy", _tie_cloned),
    Corruptor("alias undeclared", "verify:state-memory", "slots share memory and are not said to", _alias_undeclared),
    Corruptor("alias invented", "verify:state-memory", "slots are said to share memory and do not", _alias_invented),
    Corruptor("input of another shape", "verify:state-geometry", "the root takes state in another shape than it has",
              _input_of_another_shape),
    Corruptor("read of another shape", "verify:state-geometry", "state is read in another shape than it has",
              _read_of_another_shape),
    Corruptor("parameters swapped", "verify:state-geometry",
              "two parameters of different shape or dtype change places in the signature",
              _parameters_swapped),
    Corruptor("read of nothing", "verify:reads", "a body reads state that does not exist", _read_of_nothing),
    Corruptor("slot lost", "verify:reads", "state that is read is gone", _slot_lost),
)  # fmt: skip

RELU = op_of(torch.ops.aten.relu.default)


def _is_known(node: Node) -> bool:
    return type(node.do) is Op and (isinstance(node.do.target, OpOverload) or node.do.target is operator.getitem)


def _too_many(program: Program, seed: int) -> Program | None:
    place = choose(places(program, _is_known), seed)
    return changed(program, place, args=(*place.node.args, *[None] * 40)) if place is not None else None


def _whole(program: Program, seed: int) -> Program | None:
    calls = {name: {node.name for node in program.graphs[name].nodes if type(node.do) is Call} for name in program.order}
    options = [
        (place, source)
        for place in places(program, lambda node: type(node.do) is Op and node.do.target is operator.getitem)
        if type(source := place.node.args[0]) is Ref and source.name in calls[place.graph]
    ]
    chosen = choose(options, seed)
    return changed(program, chosen[0], do=RELU, args=(chosen[1],), kwargs=()) if chosen is not None else None


def _without_target(program: Program, seed: int) -> Program | None:
    # Operators that touch the outside are looked up for nobody.
    place = choose(places(program, lambda node: _is_known(node) and type(node.do) is Op and not node.do.effects.ordered), seed)
    if place is None or type(place.node.do) is not Op:
        return None
    return changed(program, place, do=evolve(place.node.do, target=None))


def _no_type(program: Program, seed: int) -> Program | None:
    inputs = list(program.signature.inputs)
    at = choose([index for index, spec in enumerate(inputs) if type(spec) is UserInput], seed)
    if at is None:
        return None
    inputs[at] = UserInput(NumberType("complex"), "x")
    return with_specs(program, inputs=tuple(inputs))


def _no_keywords(program: Program, seed: int) -> Program:
    count = sum(type(spec) is UserInput for spec in program.signature.inputs)
    return with_specs(program, in_spec=pytree.tree_structure((0,) * count if seed % 2 else [(0,) * count]))


def _unlisted(program: Program, seed: int) -> Program | None:
    owners = {name.rpartition(".")[0] for name in program.state.order} & {module.path for module in program.modules}
    leaves = sorted(path for path in owners if path and not any(m.path.startswith(f"{path}.") for m in program.modules))
    path = choose(leaves, seed)
    return program.evolve(modules=tuple(m for m in program.modules if m.path != path)) if path is not None else None


IN_OPERANDS: tuple[Corruptor, ...] = (
    Corruptor("too many operands", "verify:operands", "an operator is given more arguments than it takes", _too_many),
    Corruptor("all results", "verify:results", "an operator is given all results of a call as one value", _whole),
    Corruptor("no target", "verify:targets", "an operator of the registry has nothing to run", _without_target),
    Corruptor("argument without type", "verify:signature-arguments", "an argument is a number of no known kind", _no_type),
    Corruptor("arguments without keywords", "verify:pytrees", "the pytree of the arguments is not that of (args, kwargs)",
              _no_keywords),
    Corruptor("module unlisted", "verify:state-modules", "state is of a module that is not listed", _unlisted),
)  # fmt: skip
