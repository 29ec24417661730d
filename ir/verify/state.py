"""Rules about state and modules: everything is there, in order, tied as declared, and below its parent.

Parts are modules of the root that it alone calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ..calls.parts import is_part
from ..graph import Call, Frame, Input, Stack
from ..names import FROM_ROOT, way_to
from ..program import Module
from ..signature import StateInput
from ..state import Slot, SlotKind, describe_tensor, lazy_bits
from ..tensors import disagreement
from ..torch_private import storage_key
from .calls import instances_of
from .findings import INPUTS, Finding, short
from .signature import specs_of
from .survey import Survey

__all__ = [
    "check_geometry",
    "check_known_modules",
    "check_labels",
    "check_module_paths",
    "check_order",
    "check_owners",
    "check_parts",
    "check_reads",
    "check_scopes",
    "check_stacks",
    "check_storage",
    "check_ties",
    "check_values",
]


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
    """Find slots without a value, parameters and buffers that are not tensor, and modules that are none."""
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


def check_stacks(survey: Survey) -> Iterator[Finding]:
    """Find stacks in which a call stands twice, and paths of the root that are not written plainly."""
    for census in survey.suspects:
        for index, stack in census.stacks:
            fault = _fault(stack, is_root=census.name == survey.root)
            if fault is not None:
                yield Finding(fault, census.name, index, census.graph.nodes[index].name)


def _fault(stack: Stack, *, is_root: bool) -> str | None:
    if len(set(stack)) < len(stack):
        twice = next(frame for frame in stack if stack.count(frame) > 1)
        return f"its stack enters {twice} twice"
    for frame in stack if is_root else ():
        if frame.path.startswith(FROM_ROOT):
            return f"its stack has {frame}: in the root every path is counted from the root already"
    return None


def check_scopes(survey: Survey) -> Iterator[Finding]:
    """Find module calls of the root that are entered from two other calls; bodies of operators may be traced again."""
    root = survey.censuses.get(survey.root)
    if root is None:
        return
    around: dict[Frame, Stack] = {}
    known: set[int] = set()
    doubtful = any(census is root for census in survey.suspects)
    for index, stack in root.stacks:
        if id(stack) in known or (doubtful and _fault(stack, is_root=True) is not None):
            continue
        known.add(id(stack))
        for depth in range(len(stack) - 1, -1, -1):
            frame, above = stack[depth], stack[:depth]
            other = around.setdefault(frame, above)
            if other is not above:  # met before, and with it all that is around it
                if other != above:
                    text = f"it is inside {frame} of {_shown(above)}, but that call is made in {_shown(other)}"
                    yield Finding(text, root.name, index, root.graph.nodes[index].name)
                break


def _shown(stack: Stack) -> str:
    return " / ".join(map(str, stack)) or "the root"


def check_module_paths(survey: Survey) -> Iterator[Finding]:
    """Find modules that are listed twice, have no path, have no parent or have a name that reads as another path."""
    paths: set[str] = set()
    for module in survey.modules:
        if type(module.path) is not str:
            yield Finding(f"a module has the path {short(module.path)}, not a string", node="program.modules")
        elif module.path in paths:
            yield Finding(f"the module {module.path!r} is listed twice", node="program.modules")
        else:
            paths.add(module.path)
            if f".{module.path}".find(f".{FROM_ROOT}") >= 0:
                said = f"has a name that begins with {FROM_ROOT!r}, as paths do that are counted from the root"
                yield Finding(f"the module {module.path!r} {said}", node="program.modules")
    yield from _wrong_cells(survey.modules)
    # A program that lists no modules lists its parts when it is split.
    for path in [module.path for module in survey.modules if type(module.path) is str and module.path and not is_part(module)]:
        parent = path.rpartition(".")[0]
        if parent not in paths:
            yield Finding(f"the module {path!r} is listed, its parent {parent!r} is not", node="program.modules")


def _wrong_cells(modules: Iterable[Module]) -> Iterator[Finding]:
    paths: dict[int, list[str]] = {}
    for module in modules:
        if module.cell is None or type(module.path) is not str:
            continue
        if type(module.cell) is not int or module.cell < 0 or not module.path:
            said = "no number of an object" if module.path else "and the root is one object with nothing else"
            yield Finding(f"the module {module.path!r} has the cell {short(module.cell)}, {said}", node="program.modules")
        else:
            paths.setdefault(module.cell, []).append(module.path)
    for found in paths.values():
        known = set(found)
        for outer, inner in [(outer, path) for path in found for outer in way_to(path)[:-1] if outer in known]:
            said = f"the modules {outer!r} and {inner!r} are one object by their cell, and no module is inside itself"
            yield Finding(said, node="program.modules")


def check_labels(survey: Survey) -> Iterator[Finding]:
    """Find calls that one path, call number and part name, and that have different bodies."""
    yield from instances_of(survey).ambiguous


def check_known_modules(survey: Survey) -> Iterator[Finding]:
    """Find calls of modules, and nodes inside modules, that the hierarchy does not have; a program may list none at all."""
    yield from instances_of(survey).off_map
    root = survey.censuses.get(survey.root)
    known = {module.path for module in survey.modules if type(module.path) is str}
    if root is None or all(is_part(module) for module in survey.modules):
        return
    seen: set[int] = set()
    told: set[str] = set()
    for index, stack in root.stacks:
        if id(stack) in seen:
            continue
        seen.add(id(stack))
        for frame in stack:
            if frame.path not in known and frame.path not in told:
                told.add(frame.path)
                text = f"it is inside {frame}, and program.modules has no {frame.path!r}"
                yield Finding(text, root.name, index, root.graph.nodes[index].name)


def check_parts(survey: Survey) -> Iterator[Finding]:
    """Find parts that are called twice or from elsewhere, and modules and state that are in no part of a split program."""
    names = {module.path for module in survey.modules if is_part(module)}
    if not names:
        return
    for name in sorted(names, key=repr):
        if type(name) is not str or not name or "." in name:
            yield Finding(f"the part {name!r} is not a module of the root", node="program.modules")
    for module in survey.modules:
        if module.path and type(module.path) is str and module.path.partition(".")[0] not in names:
            yield Finding(f"the program is split, and the module {module.path!r} is in no part", node="program.modules")
    for slot in survey.slots:
        if type(slot) is str and slot.partition(".")[0] not in names:
            yield Finding(f"the program is split, and the state {slot!r} is in no part", node="program.state")
    yield from _calls(survey, names)


def _calls(survey: Survey, names: set[str]) -> Iterator[Finding]:
    called: dict[str, str] = {}
    for census in survey.censuses.values():
        for index, node in census.calls:
            path = node.do.instance.path if type(node.do) is Call else ""
            if census.name != survey.root:
                if path.startswith(FROM_ROOT) and path[1:] in names:
                    yield Finding(f"it calls the part {path[1:]!r}, which the root alone may", census.name, index, node.name)
            elif path in called and called[path] != node.name:  # a node that is there twice is reported as that
                yield Finding(f"it calls the part {path!r} for the second time", census.name, index, node.name)
            elif path in names:
                called[path] = node.name
