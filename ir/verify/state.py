"""Rules about state and modules: everything is there, tied as declared, read where it is, and below its parent.

Parts are modules of the root that it alone calls; a module of the state is read to be called, and what is in it is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

from ..arguments import Ref, refs_in
from ..calls.parts import is_part
from ..graph import Frame, Get, Node, Stack
from ..names import FROM_ROOT, way_to
from ..own_operators import CALL_GUARDS, CALLS, attribute_of, is_module_call
from ..program import Module
from ..signature import StateInput
from ..state import Slot, SlotKind, describe_tensor, lazy_bits
from ..tensors import disagreement, value_in
from ..torch_private import storage_key
from .calls import held_by, instances_of
from .findings import INPUTS, Finding, short
from .survey import Census, Survey


def _of_slot(name: str, text: str) -> Finding:
    return Finding(text, node=f"state {name!r}")


def _of_modules(text: str) -> Finding:
    return Finding(text, node="program.modules")


def check_owners(survey: Survey) -> Iterator[Finding]:
    """Find state of modules that the hierarchy does not have; a program may list none at all."""
    modules, state = survey.program.modules, survey.program.state
    if all(map(is_part, modules)):
        return
    listed = {"", *[module.path for module in modules]}
    for name in state.order:
        owner = name.rpartition(".")[0]
        if owner not in listed and not held_by(state.modules, owner):
            yield _of_slot(name, f"it is of the module {owner!r}, and program.modules has none")


def check_values(survey: Survey) -> Iterator[Finding]:
    """Find slots without a value, parameters and buffers that are not tensor, and modules that are none."""
    for name, slot in survey.program.state.pairs:
        value = slot.value
        if type(value) is torch.nn.Parameter or (slot.kind is not SlotKind.PARAMETER and isinstance(value, torch.Tensor)):
            continue
        if value is None:
            yield _of_slot(name, "its value is missing")
        elif slot.kind is SlotKind.MODULE:
            if not isinstance(value, torch.nn.Module):
                yield _of_slot(name, f"it is a module and holds {short(value)}, no torch.nn.Module")
        elif slot.kind is SlotKind.PARAMETER and not isinstance(value, torch.nn.Parameter):
            yield _of_slot(name, f"it is a parameter and holds {short(value)}, not a torch.nn.Parameter")
        elif slot.kind is not SlotKind.CONSTANT and not isinstance(value, torch.Tensor):
            yield _of_slot(name, f"it is a {slot.kind.value} and holds {short(slot.value)}, not a tensor")


def check_ties(survey: Survey) -> Iterator[Finding]:
    """Find slots with one cell that are not one tensor: another geometry, another storage, another memory."""
    first: dict[int, tuple[str, Slot]] = {}
    for name, slot in survey.program.state.pairs:
        if slot.cell not in first:
            first[slot.cell] = (name, slot)
            continue
        other, tied = first[slot.cell]
        if slot.storage != tied.storage:
            text = f"it is tied to {other!r} (cell {slot.cell}), but its storage is {slot.storage}, not {tied.storage}"
            yield _of_slot(name, text)
        if not _one_tensor(slot.value, tied.value):
            yield _of_slot(name, f"it is tied to {other!r} (cell {slot.cell}), but they are not one tensor")


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
    for name, slot in survey.program.state.pairs:
        value = slot.value
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        key, number = storage_key(value), slot.storage
        if number not in declared:
            declared[number] = (name, key)
        elif declared[number][1] != key:
            other = declared[number][0]
            yield _of_slot(name, f"it is said to share memory with {other!r} (storage {number}), and does not")
        if key not in memory:
            memory[key] = (name, number)
        elif memory[key][1] != number:
            other, theirs = memory[key]
            text = f"it shares memory with {other!r}, and is not said to (storage {number}, not {theirs})"
            yield _of_slot(name, text)


def check_geometry(survey: Survey) -> Iterator[Finding]:
    """Find state inputs and reads whose fake value has another shape or dtype than the slot's tensor."""
    main, slots = survey.main, survey.slots
    for formal, spec in survey.program.inputs:
        slot = slots.get(spec.slot) if type(spec) is StateInput else None
        if slot is not None and type(spec) is StateInput:
            difference = disagreement(value_in(formal.meta), slot.value)
            if difference is not None:
                yield Finding(f"it is the state {spec.slot!r}, taken as {difference}", main.name, INPUTS, formal.name)
    yield from instances_of(survey).misshapen


def check_reads(survey: Survey) -> Iterable[Finding]:
    """Find reads that come to no slot from one of the module calls that reach them."""
    return instances_of(survey).unresolved


def check_scopes(survey: Survey) -> Iterator[Finding]:
    """Find module calls of the root that are entered from two other calls; bodies of operators may be traced again."""
    around: dict[Frame, Stack] = {}
    known: set[int] = set()
    for index, stack in survey.main.stacks:
        if id(stack) in known:
            continue
        known.add(id(stack))
        for depth in range(len(stack) - 1, -1, -1):
            frame, above = stack[depth], stack[:depth]
            other = around.setdefault(frame, above)
            if other is not above:  # met before, and with it all that is around it
                if other != above:
                    text = f"it is inside {frame} of {_shown(above)}, but that call is made in {_shown(other)}"
                    yield survey.main.at(index, text)
                break


def _shown(stack: Stack) -> str:
    return " / ".join(map(str, stack)) or "the root"


def check_module_paths(survey: Survey) -> Iterator[Finding]:
    """Find modules that are listed twice, have no parent or have a name that reads as another path."""
    modules = survey.program.modules
    paths: set[str] = set()
    for module in modules:
        if module.path in paths:
            yield _of_modules(f"the module {module.path!r} is listed twice")
        elif f".{module.path}".find(f".{FROM_ROOT}") >= 0:
            said = f"has a name that begins with {FROM_ROOT!r}, as paths do that are counted from the root"
            yield _of_modules(f"the module {module.path!r} {said}")
        paths.add(module.path)
    yield from _wrong_cells(modules)
    # A program that lists no modules lists its parts when it is split.
    for path in [module.path for module in modules if module.path and not is_part(module)]:
        parent = path.rpartition(".")[0]
        if parent not in paths:
            yield _of_modules(f"the module {path!r} is listed, its parent {parent!r} is not")


def _wrong_cells(modules: Iterable[Module]) -> Iterator[Finding]:
    paths: dict[int, list[str]] = {}
    for module in modules:
        if module.cell is None:
            continue
        if module.cell < 0 or not module.path:
            said = "no number of an object" if module.path else "and the root is one object with nothing else"
            yield _of_modules(f"the module {module.path!r} has the cell {short(module.cell)}, {said}")
        else:
            paths.setdefault(module.cell, []).append(module.path)
    for found in paths.values():
        known = set(found)
        for outer, inner in [(outer, path) for path in found for outer in way_to(path)[:-1] if outer in known]:
            said = f"the modules {outer!r} and {inner!r} are one object by their cell, and no module is inside itself"
            yield _of_modules(said)


def check_labels(survey: Survey) -> Iterable[Finding]:
    """Find calls that one path, call number and part name, and that have different bodies."""
    return instances_of(survey).ambiguous


def check_known_modules(survey: Survey) -> Iterator[Finding]:
    """Find calls of modules, and nodes inside modules, that the hierarchy does not have; a program may list none at all."""
    yield from instances_of(survey).off_map
    known = {module.path for module in survey.program.modules}
    if all(map(is_part, survey.program.modules)):
        return
    seen: set[int] = set()
    for index, stack in survey.main.stacks:
        if id(stack) in seen:
            continue
        seen.add(id(stack))
        for frame in stack:
            if frame.path not in known:
                known.add(frame.path)
                yield survey.main.at(index, f"it is inside {frame}, and program.modules has no {frame.path!r}")


def check_parts(survey: Survey) -> Iterator[Finding]:
    """Find parts that are called twice or from elsewhere, and modules and state that are in no part of a split program."""
    modules = survey.program.modules
    names = {module.path for module in modules if is_part(module)}
    if not names:
        return
    for name in sorted(names, key=repr):
        if not name or "." in name:
            yield _of_modules(f"the part {name!r} is not a module of the root")
    for module in modules:
        if module.path and module.path.partition(".")[0] not in names:
            yield _of_modules(f"the program is split, and the module {module.path!r} is in no part")
    for slot in survey.slots:
        if slot.partition(".")[0] not in names:
            yield Finding(f"the program is split, and the state {slot!r} is in no part", node="program.state")
    called: set[str] = set()
    for census in survey.censuses.values():
        for index, _, do in census.calls:
            path = do.instance.path
            if not census.is_root:
                if path.startswith(FROM_ROOT) and path[1:] in names:
                    yield census.at(index, f"it calls the part {path[1:]!r}, which the root alone may")
            elif path in called:
                yield census.at(index, f"it calls the part {path!r} for the second time")
            elif path in names:
                called.add(path)


def check_modules(survey: Survey) -> Iterator[Finding]:
    """Find modules that are used as values, calls of what is not a module, and state or bodies at a module's path."""
    held = set(survey.program.state.modules)
    called = any(op.name in CALLS for op, _, _ in survey.ops.values())
    if not (held or called):
        return
    yield from instances_of(survey).entered
    yield from _inside(survey.main, held)
    yield from _state_below(survey, held)
    for census in survey.censuses.values():
        yield from _misused(survey, census, _modules_in(survey, census))


def _inside(root: Census, held: Collection[str]) -> Iterator[Finding]:
    # In the root every path is counted from the root; whoever outlines would make a body at that path.
    for index, stack in root.stacks:
        for frame in stack:
            above = next((path for path in way_to(frame.path) if path in held), None)
            if above is not None:
                yield root.at(index, f"it is inside {frame}, and {above!r} is a module that the program holds as it is")
                break


def _state_below(survey: Survey, held: Collection[str]) -> Iterator[Finding]:
    state = survey.program.state
    for name, slot in state.pairs:
        above = held_by(held, name.rpartition(".")[0])
        # A tensor of the module itself may be read from outside, as eager reads `self.embed.weight`.
        if above and attribute_of(state[above].value, name[len(above) + 1 :]) is not slot.value:
            yield _of_slot(name, f"it is below {above!r}, which is a module that the program holds as it is")


def _modules_in(survey: Survey, census: Census) -> set[str]:
    # The values of a graph that are modules: reads, and state inputs of the root.
    found = set(instances_of(survey).modules.get(census.name, ()))
    for formal, spec in survey.program.inputs if census.is_root else ():
        if type(spec) is StateInput and spec.slot in survey.program.state.modules:
            found.add(formal.name)
    return found


def _misused(survey: Survey, census: Census, modules: set[str]) -> Iterator[Finding]:
    read_in = {read.name: read.stack for _, read, _ in census.gets if read.name in modules}
    for index, node in census.nodes:
        if is_module_call(node):
            first = node.args[0] if node.args else None
            if type(first) is not Ref:
                yield census.at(index, "its first argument is not a read of a module")
            elif first.name not in modules:
                yield census.at(index, f"it calls {first.name}, which is not a module of the state")
            elif read_in.get(first.name, node.stack) != node.stack:
                # Whoever outlines cuts between the two, and a module is nothing that bodies take or give.
                yield census.at(index, f"it calls {first.name}, which is read in another module call")
            elif node.do == CALL_GUARDS and first.name in instances_of(survey).acting.get(census.name, ()):
                said = f"it takes {first.name} for what ep.module() checks its inputs with, and that is another module"
                yield census.at(index, f"{said}; call it with purefx.call_module")
        for name in _values_of(node):
            if name in modules:
                yield census.at(index, f"it uses the module {name} as a value")
    for name in refs_in((census.graph.output,)):
        if name in modules:
            yield Finding(f"the module {name} is returned as a value", census.name, len(census.graph.nodes), None)


def _values_of(node: Node) -> list[str]:
    if type(node.do) is Get:
        return []
    return refs_in(node.args[1:] if is_module_call(node) else node.args, node.kwargs)
