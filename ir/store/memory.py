"""The memory of a program's state: what of it is stored, and tensors made again in it.

One idea: a storage is stored once, however many slots show it, and slots are windows on it, as in the program.  Where one
tensor is all of a storage it is stored as that tensor under the name of its slot, so that other tools find the weights; else
the storage is stored as bytes.  A window is made only where it lies inside what the file holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import frozen

from ..errors import StoreError, UnsupportedProgram
from ..names import Names
from ..program import Program
from ..state import Slot
from ..text.tensors import TensorFacts
from ..torch_private import FakeTensor
from .container import STORED_AS_THEY_ARE, STRUCTURE, File

__all__ = ["Place", "as_tensor", "place_storages", "read_storage"]

KINDS: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)


@frozen
class Place:
    """Where the contents of a storage are."""

    storage: int
    """The number that slots have."""
    key: str
    """The name of the tensor in the file."""
    slot: str | None
    """The slot whose tensor it is; None where it is the bytes of the storage."""
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
    """Say whether a tensor is all of its storage, each byte once, and of a type that the file has.

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
            raise StoreError(f"the tensor {place.key[:80]!a} in the file is no plain bytes")
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
    """Return a window on a storage, a parameter where the facts say so.

    Args:
        facts: which window.
        storage: the memory.
        name: of the slot, for messages.

    Raises:
        StoreError: it reaches beyond the memory.
    """
    if facts.layout is not torch.strided or facts.bytes_needed() > storage.nbytes():
        raise StoreError(f"the slot {name[:80]!a} reaches beyond what the file has for it")
    try:
        tensor = torch.empty(0, dtype=facts.dtype, device=storage.device)
        tensor = tensor.set_(storage, facts.offset, facts.shape, facts.strides())
    except (RuntimeError, TypeError, OverflowError) as error:
        raise StoreError(f"the slot {name[:80]!a}: there is no such tensor: {str(error).splitlines()[0]}") from error
    if facts.is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=facts.requires_grad)
    return tensor.requires_grad_(facts.requires_grad)
