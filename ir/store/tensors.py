"""The tensors of a file: which memory of a program is stored, and tensors that a reader passes in instead.

Views that shared memory share it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import evolve, frozen

from ..errors import ArgumentError, StoreError, UnsupportedProgram
from ..names import Names
from ..persistent import pmap
from ..program import Program
from ..state import Slot, State, same_contents
from ..taking import kind_of
from ..text.state import TensorFacts
from ..torch_private import FakeTensor, storage_key
from .container import STORED_AS_THEY_ARE, STRUCTURE, File

KINDS: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)


@frozen
class Place:
    """Where the contents of a storage are."""

    storage: int
    """The number that slots have."""
    key: str
    """The name of the tensor in the file."""
    slot: str | None
    """The slot whose tensor it is; None if it is the bytes of the storage."""
    device: str
    """Where it was."""


def place_storages(program: Program, *, weights: bool) -> tuple[list[Place], dict[str, torch.Tensor]]:
    """Return where each storage goes, and the tensors to store.

    Args:
        program: whose state it is.
        weights: False leaves out memory that only parameters and buffers of the ``state_dict`` show.

    Raises:
        UnsupportedProgram: a slot holds something that has no place in a file.
    """
    state = program.state
    shown: dict[int, list[str]] = {}
    for name, slot in state.pairs:
        if isinstance(slot.value, torch.Tensor):
            shown.setdefault(slot.storage, []).append(name)
    names = Names([STRUCTURE])
    places: list[Place] = []
    tensors: dict[str, torch.Tensor] = {}
    for storage, slots in shown.items():
        if not weights and all(state[name].persistent for name in slots):
            continue
        for name in slots:
            _check(name, state[name])
        tensor = state[slots[0]].value
        if tensor.is_meta:
            continue  # it has no contents
        whole = next((name for name in slots if covers(state[name].value)), None)
        key = names.fresh(whole if whole is not None and _is_key(whole) else f"purefx.storage.{storage}")
        places.append(Place(storage, key, whole, str(tensor.device)))
        tensors[key] = _on_host(tensor if whole is None else state[whole].value, as_bytes=whole is None)
    return places, tensors


def _check(name: str, slot: Slot) -> None:
    fault = _fault(slot.value)
    if fault is not None:
        raise UnsupportedProgram(f"the {slot.kind.value} {name!a} {fault}")


def _fault(value: torch.Tensor) -> str | None:
    if isinstance(value, FakeTensor):
        return "is a fake tensor, without contents: save the program with weights=False, or put the weights into it"
    if type(value) not in KINDS:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return f"is a {kind}, and only plain tensors can be stored: store what it holds, or save with weights=False"
    if value.is_quantized:
        return "is quantised, and only plain numbers can be stored: store its int_repr(), and dequantise in the graph"
    if value.layout is not torch.strided:
        return (
            f"is {value.layout}, and only dense tensors can be stored: store its to_dense(), or its parts as slots of their own"
        )
    if value.is_conj() or value.is_neg():
        return "is a lazy conjugate or negative: store value.resolve_conj().resolve_neg()"
    return None


def covers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is all of its storage, each byte once, and of a type that the file has.

    >>> covers(torch.ones(2, 3).t()), covers(torch.ones(3)[1:]), covers(torch.ones(1).expand(3))
    (True, False, False)
    """
    if tensor.dtype not in STORED_AS_THEY_ARE or tensor.storage_offset() or tensor.nbytes != tensor.untyped_storage().nbytes():
        return False
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1):
        if stride != step:
            return tensor.numel() == 0
        step *= size
    return True


def _is_key(name: str) -> bool:
    # Names of tensors are UTF-8, and one means something.
    return name != "__metadata__" and not any("\ud800" <= char <= "\udfff" for char in name)


def _on_host(tensor: torch.Tensor, *, as_bytes: bool) -> torch.Tensor:
    plain = tensor.detach()
    if as_bytes:
        plain = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
    return plain.cpu().contiguous()


def read_storage(file: File, place: Place, facts: Mapping[str, TensorFacts], device: torch.device) -> torch.UntypedStorage:
    """Return a storage with the contents that a file has for it.

    Args:
        file: the file.
        place: where they are.
        facts: what the tensors of the program's slots are, by name.
        device: where it shall be.

    Raises:
        StoreError: what is there does not fit the slot.
    """
    tensor = file.tensor(place.key)
    if place.slot is None:
        if tensor.dtype is not torch.uint8 or tensor.dim() != 1:
            raise StoreError(f"the tensor {place.key[:80]!a} in the file is not plain bytes")
        return tensor.to(device).untyped_storage()
    wanted = facts[place.slot]
    if not wanted.fits(tensor):
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise StoreError(f"the slot {place.slot[:80]!a} is {wanted.dtype} {wanted.shape}, and in the file {found}")
    if wanted.stride is not None:
        if wanted.bytes_needed() > tensor.nbytes or wanted.offset:
            raise StoreError(f"the slot {place.slot[:80]!a} reaches beyond what the file has for it")
        try:
            tensor = torch.empty_strided(wanted.shape, wanted.stride, dtype=tensor.dtype).copy_(tensor)
        except RuntimeError as error:
            raise StoreError(f"the slot {place.slot[:80]!a} is not all of its memory, each number once") from error
    return tensor.to(device).untyped_storage()


def as_tensor(facts: TensorFacts, storage: torch.UntypedStorage, name: str) -> torch.Tensor:
    """Return a view of a storage, a parameter if the facts say so.

    Args:
        facts: which view.
        storage: the memory.
        name: of the slot, for messages.

    Raises:
        StoreError: it reaches beyond the memory.
    """
    if facts.layout is not torch.strided or facts.bytes_needed() > storage.nbytes():
        raise StoreError(f"the slot {name[:80]!a} reaches beyond what the file has for it")
    try:
        return facts.on(storage)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise StoreError(f"the slot {name[:80]!a}: there is no such tensor: {str(error).splitlines()[0]}") from error


def put_in(given: Mapping[str, Any], state: State, facts: Mapping[str, TensorFacts]) -> State:
    """Return a state with what is given in it.

    Args:
        given: values by name of slot.
        state: what the file has; what it lacks is on the meta device.
        facts: what the tensors of the slots are, by name.

    Raises:
        StoreError: a name is not a slot, a tensor does not fit, or something is in neither place.
    """
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`state` maps names of slots to tensors, as model.state_dict() does, and is {kind_of(given)}")
    unknown = [name for name in given if name not in state]
    if unknown:
        raise StoreError(f"`state` has what is not a slot of the program: {_names(unknown)}")
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
    # Strides say where numbers lie, not which they are.
    return left is right or (left.device == right.device and same_contents(left, right))


def _share(names: list[str], cells: Mapping[int, torch.Tensor], state: State, facts: Mapping[str, TensorFacts]) -> bool:
    """Return whether given tensors lie in one memory as the program's do, relative to the first."""
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
