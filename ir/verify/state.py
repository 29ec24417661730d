"""Rules about state and modules: all exist, are tied as declared, and have their parents.

Parts are modules that only the root calls.  Modules of the state are only called; their contents are opaque.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..arguments import Ref, refs_in
from ..calls.parts import is_part
from ..graph import Frame, Stack
from ..names import FROM_ROOT, parent_of, way_to
from ..own_operators import CALL_GUARDS, CALLS, attribute_of, is_module_call
from ..signature import StateInput
from ..state import Slot, SlotKind, is_strided
from ..tensors import cell_key, disagreement, value_in
from ..torch_private import storage_key
from .calls import held_by, instances_of
from .findings import INPUTS, Finding, short
from .index import GraphIndex, ProgramIndex
from .signature import SLOTTED


def _of_slot(name: str, text: str) -> Finding:
    return Finding(text, node=f"state {name!r}")


def _of_modules(text: str) -> Finding:
    return Finding(text, node="program.modules")


KINDS: dict[SlotKind, type] = {
    SlotKind.PARAMETER: torch.nn.Parameter, SlotKind.BUFFER: torch.Tensor, SlotKind.MODULE: torch.nn.Module,
    SlotKind.CONSTANT: object,
}  # fmt: skip


def check_values(whole: ProgramIndex) -> Iterator[Finding]:
    """Find slots without a value, parameters and buffers that are not tensors, and modules that are not modules."""
    for name, slot in whole.program.state.pairs:
        if slot.value is None:
            yield _of_slot(name, "its value is missing")
        elif type(slot.value) is not torch.nn.Parameter and not isinstance(
            slot.value, KINDS[slot.kind]
        ):
            yield _of_slot(name, f"it is a {slot.kind.value}, but its value is {short(slot.value)}")


def check_memory(whole: ProgramIndex) -> Iterator[Finding]:
    """Find slots of one cell that are not one tensor, and slots whose storage numbers do not match shared memory."""
    first: dict[int, tuple[str, Slot]] = {}
    memory: dict[int, tuple[str, int]] = {}
    declared: dict[int, tuple[str, int]] = {}
    for name, slot in whole.program.state.pairs:
        other, tied = first.setdefault(slot.cell, (name, slot))
        # The rule "state-values" finds missing values.
        views = (
            {cell_key(one.value)[0] for one in (slot, tied) if one.value is not None}
            if slot is not tied
            else ()
        )
        if slot.storage != tied.storage or len(views) > 1:
            yield _of_slot(
                name,
                f"it is tied to {other!r} (cell {slot.cell}), but they are not one tensor in one storage",
            )
        value = slot.value
        if not is_strided(value):
            continue
        key = storage_key(value)
        other, theirs = declared.setdefault(slot.storage, (name, key))
        if theirs != key:
            yield _of_slot(
                name,
                f"it has the storage number of {other!r} ({slot.storage}), but does not share its memory",
            )
        other, number = memory.setdefault(key, (name, slot.storage))
        if number != slot.storage:
            text = f"it shares memory with {other!r}, but has another storage number ({slot.storage}, not {number})"
            yield _of_slot(name, text)


def check_geometry(whole: ProgramIndex) -> Iterator[Finding]:
    """Find state inputs and reads whose fake value has another shape or dtype than the slot's tensor."""
    for formal, spec in whole.program.inputs:
        slot = whole.slots.get(spec.slot) if type(spec) is StateInput else None
        if slot is not None and (difference := disagreement(value_in(formal.meta), slot.value)):
            yield Finding(
                f"it is a state input, traced as {difference}", whole.main.name, INPUTS, formal.name
            )
    yield from instances_of(whole).findings["state-geometry"].values()


def check_scopes(whole: ProgramIndex) -> Iterator[Finding]:
    """Find module calls of the root with two different parent calls; bodies of operators may be traced again."""
    around: dict[Frame, Stack] = {}
    for index, stack in whole.main.stacks.values():
        for depth in range(len(stack) - 1, -1, -1):
            frame, above = stack[depth], stack[:depth]
            other = around.setdefault(frame, above)
            if other is not above:  # visited before, with all calls around it
                if other != above:
                    shown, theirs = (
                        " / ".join(map(str, frames)) or "the root" for frames in (above, other)
                    )
                    yield whole.main.at(
                        index, f"it is inside {frame} of {shown}, but that call is made in {theirs}"
                    )
                break


def check_module_paths(whole: ProgramIndex) -> Iterator[Finding]:
    """Find modules that are listed twice, lack a parent, have a name like another path, or are inside themselves."""
    modules = whole.program.modules
    paths: set[str] = set()
    cells: dict[int, list[str]] = {}
    for module in modules:
        if module.path in paths:
            yield _of_modules(f"the module {module.path!r} is listed twice")
        elif f".{module.path}".find(f".{FROM_ROOT}") >= 0:
            yield _of_modules(
                f"the module {module.path!r} has a name that begins with {FROM_ROOT!r}, as paths from the root do"
            )
        paths.add(module.path)
        if module.cell is not None:
            cells.setdefault(module.cell, []).append(module.path)
    for cell, found in cells.items():
        nested = any(above in found for path in found for above in way_to(path)[:-1])
        if cell < 0 or "" in found or nested:
            yield _of_modules(f"the modules {found[:9]} cannot be one object (cell {cell})")
    # A program without modules lists only its parts when it is split.
    for path in [module.path for module in modules if module.path and not is_part(module)]:
        if parent_of(path) not in paths:
            yield _of_modules(f"the module {path!r} is listed, but its parent is not")


def check_known_modules(whole: ProgramIndex) -> Iterator[Finding]:
    """Find calls, nodes and state of modules that are not listed, unless the program lists no modules."""
    if all(map(is_part, whole.program.modules)):
        return
    yield from instances_of(whole).findings["known-modules"].values()
    state, known = whole.program.state, {"", *whole.program.types}
    for name in state.order:
        owner = parent_of(name)
        if owner not in known and not held_by(state.modules, owner):
            yield _of_slot(
                name, f"it belongs to the module {owner!r}, which program.modules does not list"
            )
    for index, stack in whole.main.stacks.values():
        for frame in stack:
            if frame.path not in known:
                known.add(frame.path)
                yield whole.main.at(
                    index, f"it is inside {frame}, but program.modules does not list {frame.path!r}"
                )


def check_parts(whole: ProgramIndex) -> Iterator[Finding]:
    """Find parts that are called twice or from elsewhere, and modules and state that are in no part of a split program."""
    modules = whole.program.modules
    names = {module.path for module in modules if is_part(module)}
    if not names:
        return
    for name in sorted([name for name in names if not name or "." in name]):
        yield _of_modules(f"the part {name!r} is not a module of the root")
    for path in [*[module.path for module in modules], *whole.slots]:
        if path and path.partition(".")[0] not in names:
            yield _of_modules(f"the program is split, but {path!r} is not in a part")
    called: set[str] = set()
    for scope in whole.graphs.values():
        for index, _, do in scope.calls:
            path = do.instance.path
            if not scope.is_root and path.startswith(FROM_ROOT) and path[1:] in names:
                yield scope.at(
                    index, f"it calls the part {path[1:]!r}, but only the root may call parts"
                )
            elif scope.is_root and path in called:
                yield scope.at(index, f"it calls the part {path!r} for the second time")
            elif scope.is_root and path in names:
                called.add(path)


def check_modules(whole: ProgramIndex) -> Iterator[Finding]:
    """Find modules used as values, call_module of other values, and state or bodies at or below an opaque module."""
    state, found = whole.program.state, instances_of(whole)
    held = set(state.modules)
    if not held and whole.op_names.isdisjoint(CALLS):
        return
    yield from found.findings["opaque-modules"].values()
    for index, stack in whole.main.stacks.values():
        # Outlining would make a body at the path of the opaque module.
        if any(held_by(held, frame.path) for frame in stack):
            yield whole.main.at(
                index,
                f"it is inside {stack[-1]}, but a module around it is an opaque module of the state",
            )
    for name, slot in state.pairs:
        above = held_by(held, parent_of(name))
        # Outside readers may read a tensor of the module itself, like `self.embed.weight` in eager mode.
        if above and attribute_of(state[above].value, name[len(above) + 1 :]) is not slot.value:
            yield _of_slot(name, f"it is below {above!r}, which is an opaque module of the state")
    for what in ("inputs", "outputs", "lifted"):
        for number, spec in enumerate(getattr(whole.program.signature, what)):
            if type(spec) in SLOTTED and spec.slot in held:
                text = f"it is the module {spec.slot!r}, and modules are only called"
                yield Finding(text, node=f"signature.{what}[{number}]")
    for name, scope in whole.graphs.items():
        yield from _misused(scope, found.modules.get(name, {}))


def _misused(scope: GraphIndex, acting: dict[str, bool]) -> Iterator[Finding]:
    # The uses of the values that are modules; some of these may do more than check inputs.
    read_in = {read.name: read.stack for _, read, *_ in scope.gets if read.name in acting}
    for index, node in enumerate(scope.graph.nodes):
        if is_module_call(node):
            name = node.args[0].name if node.args and type(node.args[0]) is Ref else ""
            if name not in acting:
                yield scope.at(index, "its first argument is not a read of a module of the state")
            elif read_in.get(name, node.stack) != node.stack:
                # Outlining would separate the two, and bodies cannot pass modules.
                yield scope.at(index, f"it calls {name}, which is read in another module call")
            elif node.do == CALL_GUARDS and acting[name]:
                wrong = f"it calls {name}, which is not the module with which ep.module() checks its inputs"
                yield scope.at(index, f"{wrong}; call it with purefx.call_module")
        for name in acting.keys() & refs_in(
            node.args[1:] if is_module_call(node) else node.args, node.kwargs
        ):
            yield scope.at(index, f"it uses the module {name} as a value")
    for name in acting.keys() & scope.graph.output_refs():
        yield scope.at(len(scope.graph.nodes), f"the module {name} is returned as a value")
