"""Corruptors of state: order, values, ties, shared memory, shapes, reads, and the modules that have it.

Names, tensors and memory are three things, and each is broken without the others.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from purefx.ir.graph import Get, Node
from purefx.ir.program import Program
from purefx.ir.signature import StateInput
from tests.laws.corruptions.contract import inputs_of
from tests.laws.corruptions.corruptor import (
    Corruptor,
    Place,
    changed,
    corrupts,
    geometry,
    nodes,
    places,
    swapped,
    with_graph,
    with_item,
    with_slot,
    with_specs,
)

__all__ = ["IN_STATE", "reads"]


def slots(program: Program) -> tuple[str, ...]:
    """Return the names of all state."""
    return program.state.order


def reads(node: Node) -> bool:
    """Return whether a node reads state."""
    return type(node.do) is Get


@corrupts("well-formed", "a slot has no place in the order of state", at=slots)
def order_lost(program: Program, name: str) -> Program:
    order = tuple([other for other in program.state.order if other != name])
    return program.evolve(state=evolve(program.state, order=order))


@corrupts("state-values", "a slot holds nothing", at=slots)
def value_lost(program: Program, name: str) -> Program:
    return with_slot(program, name, value=None)


def _apart(program: Program) -> list[tuple[str, int]]:
    pairs = program.state.pairs
    earlier = [(name, slot, other) for number, (name, slot) in enumerate(pairs) for _, other in pairs[:number]]
    return [(name, other.cell) for name, slot, other in earlier if slot.storage != other.storage]


@corrupts("state-memory", "two slots are said to be one tensor, and are not", at=_apart)
def tie_invented(program: Program, at: tuple[str, int]) -> Program:
    return with_slot(program, at[0], cell=at[1])


def _is_tensor(program: Program, name: str) -> bool:
    value = program.state[name].value
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _sharing(program: Program) -> list[str]:
    counts = Counter(slot.storage for _, slot in program.state.pairs)
    return [name for name, slot in program.state.pairs if counts[slot.storage] > 1 and _is_tensor(program, name)]


def _with_copy(program: Program, name: str) -> Program:
    tensor: Any = program.state[name].value
    copy = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return with_slot(program, name, value=copy)


@corrupts("state-memory", "a tensor that shares memory with another is replaced by a copy", at=_sharing)
def alias_broken(program: Program, name: str) -> Program:
    return _with_copy(program, name)


def _tied(program: Program) -> list[str]:
    sharing = set(_sharing(program))
    return [name for names in program.state.by_cell.values() if len(names) > 1 for name in names if name in sharing]


@corrupts("state-memory", "a tied tensor is replaced by a copy", at=_tied)
def tie_cloned(program: Program, name: str) -> Program:
    return _with_copy(program, name)


@corrupts("state-memory", "slots share memory and are not said to", at=_sharing)
def alias_undeclared(program: Program, name: str) -> Program:
    return with_slot(program, name, storage=1 + max(slot.storage for _, slot in program.state.pairs))


def _of_two_memories(program: Program) -> list[tuple[str, int]]:
    # A tie would be another rule's: both slots of the pair are alone in their cells.
    tensors = [(name, slot) for name, slot in program.state.pairs if _is_tensor(program, name)]
    return [(name, other.storage) for name, slot in tensors for _, other in tensors if slot.storage != other.storage]


@corrupts("state-memory", "slots are said to share memory and do not", at=_of_two_memories)
def alias_invented(program: Program, at: tuple[str, int]) -> Program:
    return with_slot(program, at[0], storage=at[1])


def _of_another_shape(program: Program, slot: str, meta: Any) -> Any:
    wrong = torch.empty((*program.state[slot].value.shape, 2), device="meta")
    return MappingProxyType({**meta, "val": wrong})


def _tensor_inputs(program: Program) -> list[tuple[int, StateInput]]:
    return [(index, spec) for index, spec in inputs_of(program, StateInput) if _is_tensor(program, spec.slot)]


@corrupts("state-geometry", "the root takes state in another shape than it has", at=_tensor_inputs)
def input_of_another_shape(program: Program, at: tuple[int, StateInput]) -> Program:
    index, spec = at
    formal = program.main.inputs[index]
    wrong = evolve(formal, meta=_of_another_shape(program, spec.slot, formal.meta))
    return with_graph(program, program.root, inputs=with_item(program.main.inputs, index, wrong))


def _tensor_reads(program: Program) -> list[Place]:
    found = places(program, reads, graph=program.root)
    return [place for place in found if place.do.slot in program.state and _is_tensor(program, place.do.slot)]


@corrupts("state-geometry", "state is read in another shape than it has", at=_tensor_reads)
def read_of_another_shape(program: Program, place: Place) -> Program:
    return changed(program, place, meta=_of_another_shape(program, place.do.slot, place.node.meta))


def _unlike_parameters(program: Program) -> list[tuple[int, int]]:
    known = [geometry(formal.meta.get("val")) or (None,) for formal in program.main.inputs]
    plain = [index for index, _ in inputs_of(program, StateInput) if None not in known[index]]
    return [(i, j) for number, i in enumerate(plain) for j in plain[:number] if known[i] != known[j]]


@corrupts("state-geometry", "two parameters of different shape or dtype change places in the signature", at=_unlike_parameters)
def parameters_swapped(program: Program, pair: tuple[int, int]) -> Program:
    return with_specs(program, inputs=swapped(program.signature.inputs, *pair))


@corrupts("reads", "a body reads state that does not exist", at=nodes(reads))
def read_of_nothing(program: Program, place: Place) -> Program:
    return changed(program, place, do=Get("nowhere"))


def _read_slots(program: Program) -> list[str]:
    read = {place.do.slot for place in places(program, reads, graph=program.root)}
    return [name for name in program.state.order if name in read]


@corrupts("reads", "state that is read is gone", at=_read_slots)
def slot_lost(program: Program, name: str) -> Program:
    order = tuple([other for other in program.state.order if other != name])
    return program.evolve(state=evolve(program.state, order=order, slots=program.state.slots.remove(name)))


def _owners(program: Program) -> list[str]:
    owners = {name.rpartition(".")[0] for name in program.state.order} & {module.path for module in program.modules}
    return sorted(path for path in owners if path and not any(m.path.startswith(f"{path}.") for m in program.modules))


@corrupts("known-modules", "state is of a module that is not listed", at=_owners)
def module_unlisted(program: Program, path: str) -> Program:
    return program.evolve(modules=tuple([module for module in program.modules if module.path != path]))


IN_STATE: tuple[Corruptor, ...] = (
    order_lost, value_lost, tie_invented, alias_broken, tie_cloned, alias_undeclared, alias_invented, input_of_another_shape,
    read_of_another_shape, parameters_swapped, read_of_nothing, slot_lost, module_unlisted,
)  # fmt: skip
