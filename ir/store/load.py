"""``load``: a file becomes the program that ``save`` wrote.

One idea: the file is data from a stranger.  Its text is parsed, names are looked up in registries, tensors are windows that
lie inside what was read, and the program is verified before anybody gets it; whatever else a file holds is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from attrs import evolve

from ..allowed import advice_for, told
from ..collector import collector_paused
from ..errors import ParseError, StoreError, UnsupportedProgram
from ..identifiers import check_identifiers
from ..node import Op
from ..persistent import pmap
from ..program import Program
from ..state import Slot, State
from ..text.operators import Known, Target, named_types, names_of
from ..text.parser import parse
from ..text.tensors import TensorFacts, facts_of
from ..verify import check
from .container import File, opened
from .given import put_in
from .memory import Place, as_tensor, read_storage
from .metas import read_metas

__all__ = ["load"]

KEYS = {"made with", "program", "operators", "storages", "weights", "meta"}


def load(
    path: str | os.PathLike[str],
    *,
    state: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    operators: Mapping[str, Target] | None = None,
    types: Iterable[type] = (),
    allow: Iterable[str] = (),
) -> Program:
    """Read a program from a file that ``save`` wrote. Nothing in the file runs.

    Args:
        path: of the file.
        state: tensors by name of slot, as ``state_dict()`` gives them, to have instead of those of the file. They are not
            copied where they share memory as the program wants it. Without it, what a file saved with ``weights=False`` lacks
            is made on the meta device.
        device: where the tensors of the file go; by default where they were.
        operators: what runs operators that are not registered with torch, by name: plain functions of your own.
        types: classes of pytree nodes that are not registered as such: named tuples.
        allow: names of operators to accept that are registered here and not on the allow-list (``docs/format.md``): those that
            reach files, other processes or attributes by name.

    Returns:
        A valid program, equal to the one that was saved, without its trail.

    Raises:
        StoreError: the file is none of ours, damaged, crafted, or of a later version; or ``state`` does not fit it.
        InvalidProgram: what is in it is a program that breaks invariants.
        UnsupportedProgram: it needs what is not here or not allowed: operators, all of which are named; a device; safetensors
            (extra ``store``).
        OSError: there is no such file, or it can not be read.

    >>> import tempfile, torch, purefx as px
    >>> model = torch.nn.Linear(2, 2)
    >>> program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.save(program, f"{folder}/linear.purefx", weights=False)
    ...     again = px.load(f"{folder}/linear.purefx", state=model.state_dict())
    >>> torch.equal(px.lower(again)(torch.ones(1, 2)), model(torch.ones(1, 2)))
    True
    """
    known = Known(operators or {}, named_types(types), names_of(allow))
    with collector_paused(), opened(path) as file:
        try:
            structure = file.structure()
            program = _read_program(structure, known)
            program = program.evolve(graphs=read_metas(program, structure["meta"], known))
            places = _read_places(structure["storages"])
            facts = {name: facts_of(slot.value) for name, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)}
            found = _read_state(file, program.state, places, facts, device)
            found = found if state is None else put_in(state, found, facts)
            return check_identifiers(check(program.evolve(state=found)))
        except StoreError as error:
            raise StoreError(f"{os.fspath(path)!a}: {error}") from error


def _read_program(structure: dict[str, Any], known: Known) -> Program:
    if set(structure) != KEYS:
        odd = ", ".join(sorted(map(ascii, set(structure) ^ KEYS)))[:200]
        raise StoreError(f"its structure lacks keys, or has others than version 1 knows: {odd}")
    text, operators = structure["program"], structure["operators"]
    if type(text) is not str or type(operators) is not list or not all(type(name) is str for name in operators):
        raise StoreError("its program is no text, or its operators are no list of names")
    try:
        program = parse(text, operators=known.operators, types=known.types.values(), allow=known.allow)
    except ParseError as error:
        raise StoreError(f"its program can not be read: {error}") from error
    wanted = set(operators)
    lacking = {
        node.do.name for _, node in program.nodes() if type(node.do) is Op and node.do.target is None and node.do.name in wanted
    }
    if lacking:
        raise UnsupportedProgram(
            f"the program uses operators that a file may not name: {told(lacking)[:2000]}: {advice_for(lacking)[:2000]} "
            f"(saved with {ascii(structure['made with'])[:100]}, this is torch {torch.__version__})"
        )
    return program


def _read_places(written: Any) -> list[Place]:
    if type(written) is not list:
        raise StoreError("its storages are no list")
    places: list[Place] = []
    for entry in written:
        if type(entry) is not list or len(entry) != 4:
            raise StoreError("a storage in it is no list of number, name, slot and device")
        number, key, slot, device = entry
        if type(number) is not int or type(key) is not str or type(device) is not str or not isinstance(slot, str | None):
            raise StoreError("a storage in it is no list of number, name, slot and device")
        places.append(Place(number, key, slot, device))
    if len({place.storage for place in places}) != len(places):
        raise StoreError("one storage is in it twice")
    return places


def _read_state(
    file: File, state: State, places: list[Place], facts: Mapping[str, TensorFacts], device: torch.device | str | None
) -> State:
    storages: dict[int, torch.UntypedStorage] = {}
    devices = {place.device: _device(place.device if device is None else device) for place in places}
    for place in places:
        slot = state.slots.get(place.slot) if place.slot is not None else None
        if place.slot is not None and (slot is None or place.slot not in facts or slot.storage != place.storage):
            raise StoreError(f"a storage in it is that of {place.slot[:80]!a}, which is no such slot")
        storages[place.storage] = read_storage(file, place, facts, devices[place.device])
    cells: dict[int, torch.Tensor] = {}
    slots: dict[str, Slot] = {}
    for name, slot in state.pairs:
        if name in facts and slot.storage in storages:
            if slot.cell not in cells:
                cells[slot.cell] = as_tensor(facts[name], storages[slot.storage], name)
            slot = evolve(slot, value=cells[slot.cell])
        slots[name] = slot
    return State(state.order, pmap(slots))


def _device(name: torch.device | str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise UnsupportedProgram(f"the device {str(name)[:80]!a} is not here ({said}): load with device='cpu'") from error
    if device.type == "meta":
        raise StoreError("tensors on the meta device have no contents")
    return device
