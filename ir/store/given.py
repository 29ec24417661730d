"""The ``state`` that a reader gives: tensors in the place of those of the file.

One idea: what is given is used as it is, as import does, where it shares memory as the program says; where it does not (a
``state_dict`` from elsewhere has copies of views), memory of the program's shape is made and filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import evolve

from ..errors import StoreError
from ..persistent import pmap
from ..state import Slot, State, same_value
from ..text.tensors import TensorFacts
from ..torch_private import storage_key
from .memory import as_tensor

__all__ = ["put_in"]


def put_in(given: Mapping[str, Any], state: State, facts: Mapping[str, TensorFacts]) -> State:
    """Return a state with what is given in it.

    Args:
        given: values by name of slot.
        state: what the file has; what it lacks is on the meta device.
        facts: what the tensors of the slots are, by name.

    Raises:
        StoreError: a name is no slot, a tensor does not fit, or something is in neither place.
    """
    unknown = [name for name in given if name not in state]
    if unknown:
        raise StoreError(f"`state` has what is no slot of the program: {_names(unknown)}")
    _check_fit(given, facts)
    lacking = [name for name, slot in state.pairs if _is_lacking(slot) and not _gives(given, state, name)]
    if lacking:
        raise StoreError(f"neither the file nor `state` has: {_names(lacking)}")
    slots = dict(state.pairs)
    groups: dict[int, list[str]] = {}
    for name, slot in state.pairs:
        groups.setdefault(slot.storage, []).append(name)
    for names in groups.values():
        if any(name in given for name in names):
            slots.update(_group(names, given, state, facts))
    return State(state.order, pmap(slots))


def _names(names: list[str]) -> str:
    return ", ".join([ascii(name[:80]) for name in names[:8]]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _is_lacking(slot: Slot) -> bool:
    return isinstance(slot.value, torch.Tensor) and slot.value.is_meta


def _gives(given: Mapping[str, Any], state: State, name: str) -> bool:
    return any(tied in given for tied in state.by_cell[state[name].cell])


def _check_fit(given: Mapping[str, Any], facts: Mapping[str, TensorFacts]) -> None:
    for name, value in given.items():
        wanted = facts.get(name)
        if wanted is not None and not wanted.fits(value):
            kind = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise StoreError(f"the slot {name[:80]!a} is {wanted.dtype} {wanted.shape}, and `state` gives {kind}")


def _group(names: list[str], given: Mapping[str, Any], state: State, facts: Mapping[str, TensorFacts]) -> dict[str, Slot]:
    """Return the slots of one storage with what is given for them."""
    if not all(name in facts for name in names):
        return {name: evolve(state[name], value=given.get(name, state[name].value)) for name in names}
    cells: dict[int, Any] = {}
    for name in names:
        cell = state[name].cell
        if name in given and cell in cells and not _alike(cells[cell], given[name]):
            raise StoreError(f"{_names(list(state.by_cell[cell]))} are one tensor, and `state` gives several")
        if name in given:
            cells.setdefault(cell, given[name])
    if len(cells) == len({state[name].cell for name in names}) and _share(names, cells, state, facts):
        made = {cell: _dressed(value, facts[state.by_cell[cell][0]]) for cell, value in cells.items()}
    else:
        made = _filled(names, cells, state, facts)
    return {name: evolve(state[name], value=made[state[name].cell]) for name in names}


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    # Flat: strides say where numbers lie, not which they are.
    return left is right or (left.shape == right.shape and same_value(_flat(left), _flat(right)))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1)


def _share(names: list[str], cells: Mapping[int, torch.Tensor], state: State, facts: Mapping[str, TensorFacts]) -> bool:
    """Say whether given tensors lie in one memory as the program's do, relative to the first."""
    tensors = [(facts[name], cells[state[name].cell]) for name in names]
    first = tensors[0]
    return all(
        storage_key(tensor) == storage_key(first[1])
        and tuple(tensor.stride()) == fact.strides()
        and tensor.storage_offset() == fact.offset
        for fact, tensor in tensors
    )


def _dressed(value: torch.Tensor, facts: TensorFacts) -> torch.Tensor:
    if facts.is_parameter:
        fits = type(value) is torch.nn.Parameter and value.requires_grad is facts.requires_grad
        return value if fits else torch.nn.Parameter(value.detach(), requires_grad=facts.requires_grad)
    fits = type(value) is torch.Tensor and value.requires_grad is facts.requires_grad
    return value if fits else value.detach().requires_grad_(facts.requires_grad)


def _filled(
    names: list[str], cells: Mapping[int, torch.Tensor], state: State, facts: Mapping[str, TensorFacts]
) -> dict[int, torch.Tensor]:
    """Return tensors in new memory, which begins as that of the file, with what is given written into it."""
    known = [state[name].value for name in names]
    old = next((value for value in known if not value.is_meta), None)
    if old is None:
        size = max(facts[name].bytes_needed() for name in names)
        device = next(iter(cells.values())).device
        storage = torch.zeros(size, dtype=torch.uint8, device=device).untyped_storage()
    else:
        storage = old.untyped_storage().clone()
    made = {state[name].cell: as_tensor(facts[name], storage, name) for name in names}
    with torch.no_grad():
        for cell, value in cells.items():
            made[cell].copy_(value)
        for cell, value in cells.items():
            if not _alike(made[cell], value.to(storage.device)):
                raise StoreError(f"{_names(names)} share memory, and what `state` gives for them does not fit together")
    return made
