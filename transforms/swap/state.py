"""State, modules and call signatures of a program in which modules were swapped.

One idea: all at and below a swapped path goes, and what stands there now comes, with its own ties and with those to what
stays: one tensor object is one cell, wherever it comes from.  What others still read at such a path is, as in eager, what the
replacement has under that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from attrs import define, evolve, field

from ...ir.errors import SwapError
from ...ir.listing import with_listed
from ...ir.opaque import attribute_of
from ...ir.parts import is_part
from ...ir.paths import way_to
from ...ir.persistent import pmap
from ...ir.program import Module, Program
from ...ir.signature import SunkInput
from ...ir.state import Slot, SlotKind, State, describe_tensor
from ...ir.torch_private import storage_key

__all__ = ["covering", "new_modules", "new_state", "stands_for"]


def covering(paths: Iterable[str], name: str) -> str | None:
    """Return the swapped module that a path or a slot is at or below; None for one that stays.

    >>> covering({"a.b"}, "a.b.weight"), covering({"a.b"}, "a.bc")
    ('a.b', None)
    """
    known = paths if isinstance(paths, set | dict) else set(paths)
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def stands_for(program: Program, path: str, slot: str, by: torch.nn.Module | Program, reader: str) -> Slot:
    """Return what a reader outside of a swapped module reads from now on, under the name of a slot that went with it.

    Raises:
        SwapError: the replacement has nothing of that name, or something else.
    """
    name = slot[len(path) + 1 :]
    if isinstance(by, Program):
        found = by.state.slots.get(name)
        value = None if found is None else found.value
    else:
        value = attribute_of(by, name)
    old = program.state[slot]
    said = f"module {path!r}: {reader} reads its {name}"
    if not isinstance(value, torch.Tensor):
        raise SwapError(f"{said}, and what stands in for it has no such tensor; give it one, or swap a module around both")
    mine, theirs = describe_tensor(old.value)[1:3], describe_tensor(value)[1:3]
    if mine != theirs:
        raise SwapError(f"{said}, which is {mine[0]} {mine[1]}, and what stands in for it has {theirs[0]} {theirs[1]} there")
    kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
    return Slot(kind, value, 0, 0)


@define
class _Numbers:
    """Cells and storages: one for each object, and for each memory."""

    cells: dict[int, int] = field(factory=dict)
    storages: dict[int, int] = field(factory=dict)
    next_cell: int = 0
    next_storage: int = 0

    def note(self, slot: Slot) -> None:
        """Note what a slot that stays shows."""
        self.cells.setdefault(id(slot.value), slot.cell)
        if _has_memory(slot.value):
            self.storages.setdefault(storage_key(slot.value), slot.storage)
        self.next_cell, self.next_storage = max(self.next_cell, slot.cell + 1), max(self.next_storage, slot.storage + 1)

    def numbered(self, slot: Slot) -> Slot:
        """Return a slot with the numbers that its value has here."""
        value = slot.value
        cell = self.cells.setdefault(id(value), self.next_cell)
        key = storage_key(value) if _has_memory(value) else -1 - cell
        storage = self.storages.setdefault(key, self.next_storage)
        numbered = evolve(slot, cell=cell, storage=storage)
        self.note(numbered)
        return numbered


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def new_state(state: State, arrivals: Mapping[str, Mapping[str, Slot]]) -> State:
    """Return the state with that of what was swapped in.

    Args:
        state: the state before.
        arrivals: for each swapped module, the slots that come, by name.
    """
    numbers = _Numbers()
    stays = {name: covering(arrivals, name) for name in state.order}
    for name in state.order:
        numbers.note(state[name])  # those that go too: what comes may be the same tensor
    # A name that was there before keeps its place; new ones come where the first of their module was.
    waiting = {path: {new: slot for new, slot in slots.items() if new not in state} for path, slots in arrivals.items()}
    slots: dict[str, Slot] = {}
    for name, path in stays.items():
        if path is None:
            slots[name] = state[name]
            continue
        slots.update({new: numbers.numbered(slot) for new, slot in waiting.pop(path, {}).items()})
        if name in arrivals[path]:
            slots[name] = numbers.numbered(arrivals[path][name])
    for rest in waiting.values():
        slots.update({new: numbers.numbered(slot) for new, slot in rest.items()})
    return State(tuple(slots), pmap(slots))


def new_modules(program: Program, arrivals: Mapping[str, tuple[Module, ...]]) -> tuple[Module, ...]:
    """Return the hierarchy with that of what was swapped in; a program that lists none beside its parts lists none then."""
    if all(is_part(module) for module in program.modules):
        return program.modules
    found: list[Module] = []
    waiting = dict(arrivals)
    around = {outer for path in arrivals for outer in way_to(path)}  # what holds a replacement is no longer one with its alias
    for module in program.modules:
        path = covering(arrivals, module.path)
        stays = evolve(module, cell=None) if module.path in around and module.cell is not None else module
        found += [stays] if path is None else waiting.pop(path, ())
    rest = [module for waited in waiting.values() for module in waited]
    return with_listed(tuple(found), [module.path for module in rest], {module.path: module.type_name for module in rest})


def new_lifted(program: Program, paths: set[str], state: State) -> tuple[SunkInput, ...]:
    """Return the inputs that ``sink_state`` took away, as far as their state is still there."""
    return tuple([place for place in program.signature.lifted if covering(paths, place.slot) is None and place.slot in state])
