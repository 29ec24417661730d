"""Rules about state: it is all there, in order, tied and aliased as declared, and of the shape that the graphs expect.

One idea: identity is data, so what is declared (cells, storages) and what is (memory) are compared, once per slot and
never in pairs.  Contents of tensors are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ..graph import Input
from ..parts import is_part
from ..paths import way_to
from ..signature import StateInput
from ..state import Slot, SlotKind, describe_tensor, lazy_bits
from ..torch_private import storage_key
from .instances import instances_of
from .kinds import short
from .rule import INPUTS, Finding
from .signature import specs_of
from .survey import Survey
from .tensors import disagreement

__all__ = ["check_geometry", "check_order", "check_owners", "check_reads", "check_storage", "check_ties", "check_values"]


def check_order(survey: Survey) -> Iterator[Finding]:
    """Find that the order of state and its slots do not list the same names, each once."""
    order: Any = survey.state.order
    if type(order) is not tuple:
        yield Finding(f"state.order is {short(order)}, not a tuple", node="state.order")
        return
    if len(order) == len(survey.slots) and survey.slots.keys() == set(order):
        return
    yield from _order_faults(survey, order)


def _order_faults(survey: Survey, order: tuple[Any, ...]) -> Iterator[Finding]:
    seen: set[Any] = set()
    for name in order:
        if type(name) is not str:
            yield Finding(f"state.order holds {short(name)}, not a name", node="state.order")
        elif name in seen:
            yield Finding(f"state.order has {name!r} twice", node="state.order")
        elif name not in survey.slots:
            yield Finding(f"state.order has {name!r}, and there is no such slot", node="state.order")
        else:
            seen.add(name)
    for name in sorted(survey.slots.keys() - seen) if len(seen) < len(survey.slots) else ():
        yield Finding(f"the slot {name!r} has no place in state.order", node="state.order")


def check_owners(survey: Survey) -> Iterator[Finding]:
    """Find state of modules that the hierarchy does not have; a program may list none at all."""
    modules = [module for module in survey.modules if type(module.path) is str]
    if all(is_part(module) for module in modules):
        return
    listed = {"", *[module.path for module in modules]}
    if {name.rpartition(".")[0] for name, _ in survey.ordered_slots} <= listed:
        return  # nearly always: no slot is looked at
    held = {name for name, slot in survey.slots.items() if slot.kind is SlotKind.MODULE}
    for name, _ in survey.ordered_slots:
        owner = name.rpartition(".")[0]
        if owner not in listed and not any(above in held for above in way_to(owner)):
            yield Finding(f"it is of the module {owner!r}, and program.modules has none", node=f"state {name!r}")


def check_values(survey: Survey) -> Iterator[Finding]:
    """Find slots without a value, parameters and buffers that are no tensor, and modules that are none."""
    for name, slot in survey.ordered_slots:
        value = slot.value
        if type(value) is torch.nn.Parameter or (slot.kind is not SlotKind.PARAMETER and isinstance(value, torch.Tensor)):
            continue
        if value is None:
            yield Finding("its value is missing", node=f"state {name!r}")
        elif slot.kind is SlotKind.MODULE:
            if not isinstance(value, torch.nn.Module):
                yield Finding(f"it is a module and holds {short(value)}, no torch.nn.Module", node=f"state {name!r}")
        elif slot.kind is SlotKind.PARAMETER and not isinstance(value, torch.nn.Parameter):
            yield Finding(f"it is a parameter and holds {short(value)}, not a torch.nn.Parameter", node=f"state {name!r}")
        elif slot.kind is not SlotKind.CONSTANT and not isinstance(value, torch.Tensor):
            yield Finding(f"it is a {slot.kind.value} and holds {short(slot.value)}, not a tensor", node=f"state {name!r}")


def check_ties(survey: Survey) -> Iterator[Finding]:
    """Find slots with one cell that are not one tensor: another geometry, another storage, another memory."""
    first: dict[int, tuple[str, Slot]] = {}
    for name, slot in survey.ordered_slots:
        if slot.cell not in first:
            first[slot.cell] = (name, slot)
            continue
        other, tied = first[slot.cell]
        if slot.storage != tied.storage:
            text = f"it is tied to {other!r} (cell {slot.cell}), but its storage is {slot.storage}, not {tied.storage}"
            yield Finding(text, node=f"state {name!r}")
        if not _one_tensor(slot.value, tied.value):
            yield Finding(f"it is tied to {other!r} (cell {slot.cell}), but they are not one tensor", node=f"state {name!r}")


def _one_tensor(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return left is None or right is None  # a missing value is another rule's
    if describe_tensor(left)[1:4] != describe_tensor(right)[1:4] or lazy_bits(left) != lazy_bits(right):
        return False
    return left.layout is not torch.strided or left.storage_offset() == right.storage_offset()


def check_storage(survey: Survey) -> Iterator[Finding]:
    """Find slots that share memory without saying so, or say so without sharing it."""
    memory: dict[int, tuple[str, int]] = {}
    declared: dict[int, tuple[str, int]] = {}
    for name, slot in survey.ordered_slots:
        value = slot.value
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        key, number = storage_key(value), slot.storage
        if number not in declared:
            declared[number] = (name, key)
        elif declared[number][1] != key:
            other = declared[number][0]
            yield Finding(f"it is said to share memory with {other!r} (storage {number}), and does not", node=f"state {name!r}")
        if key not in memory:
            memory[key] = (name, number)
        elif memory[key][1] != number:
            other, theirs = memory[key]
            text = f"it shares memory with {other!r}, and is not said to (storage {number}, not {theirs})"
            yield Finding(text, node=f"state {name!r}")


def check_geometry(survey: Survey) -> Iterator[Finding]:
    """Find state inputs and reads whose fake value has another shape or dtype than the slot's tensor."""
    inputs: Any = survey.main.inputs if survey.main is not None else ()
    for formal, spec in zip(inputs if type(inputs) is tuple else (), specs_of(survey.signature.inputs), strict=False):
        if type(spec) is StateInput and type(formal) is Input and type(spec.slot) is str and spec.slot in survey.slots:
            meta = formal.meta
            known: Any = meta.get("val") if type(meta) is MappingProxyType or isinstance(meta, Mapping) else None
            difference = disagreement(known, survey.slots[spec.slot].value)
            if difference is not None:
                yield Finding(f"it is the state {spec.slot!r}, taken as {difference}", survey.root, INPUTS, formal.name)
    yield from instances_of(survey).misshapen


def check_reads(survey: Survey) -> Iterator[Finding]:
    """Find reads that come to no slot from one of the module calls that reach them."""
    yield from instances_of(survey).unresolved
