"""The tensors of a state made anew: copied or shared, moved to devices, tied and aliased exactly as in the program.

Opaque modules are copied together.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import define, field

from ...ir.errors import UnsupportedProgram
from ...ir.own_operators import tensors_of
from ...ir.program import Program
from ...ir.state import Slot, SlotKind
from ...ir.state_changes import as_plain, copy_value, dressed, has_window
from ...ir.torch_private import FakeTensor, device_of, fake_on, storage_key, window_on
from .devices import Devices

__all__ = ["StorageViews", "copied_modules", "materialise"]


@define
class StorageViews:
    """What became of memory that several tensors look at.

    >>> a, windows = torch.ones(4), StorageViews(copy=True)
    >>> windows.window(a).zero_() is a, windows.window(a[1:]).tolist(), a.tolist()
    (False, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    copy: bool
    devices: Devices | None = None
    """Where they go; None leaves them."""
    memories: dict[int, torch.Tensor] = field(factory=dict)
    """The new memory, by the key of the old."""
    memo: dict[int, Any] = field(factory=dict)
    """What became of the rest, as ``copy.deepcopy`` has it."""

    def goes_to(self, tensor: torch.Tensor) -> torch.device | None:
        """Return the device that a tensor moves to; None if it stays."""
        if self.devices is None:
            return None
        device = device_of(tensor)
        made = self.devices[device]
        return None if made == device else made

    def window(self, plain: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor, which is strided and needs no gradient."""
        key = storage_key(plain)
        memory = self.memories.get(key)
        if memory is None:
            whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
            device = self.goes_to(plain)
            memory = self.memories[key] = whole.to(device) if device is not None else whole.clone() if self.copy else whole
        return window_on(memory.untyped_storage(), plain)


def copied_modules(
    modules: Sequence[tuple[str, torch.nn.Module]], tensors: Iterable[tuple[Any, Any]], windows: StorageViews
) -> list[torch.nn.Module]:
    """Return the modules to register.

    Args:
        modules: the modules, each with its slot.
        tensors: what the program has in slots of its own, and what became of it.
        windows: what became of memory that several look at, and whether to copy and to move; without a copy modules are new
            only where one must move.

    Raises:
        UnsupportedProgram: Python cannot copy a module.

    >>> linear = torch.nn.Linear(2, 2)
    >>> [copied] = copied_modules([("a", linear)], [(linear.weight, "new")], StorageViews(copy=True))
    >>> copied.__dict__["_parameters"]["weight"]
    'new'
    """
    memo = windows.memo | {id(old): new for old, new in tensors}
    held = [(name, tensor) for name, module in modules for tensor in tensors_of(module)]
    if not windows.copy and all(windows.goes_to(tensor) is None for _, tensor in held):
        return [module for _, module in modules]
    several = _seen_twice([tensor for _, tensor in held]) | windows.memories.keys()
    for name, tensor in held:
        device = windows.goes_to(tensor)
        if id(tensor) in memo:
            continue
        if not has_window(tensor):
            copy_value(name, tensor, memo, device=device)
        elif isinstance(tensor, FakeTensor):
            memo[id(tensor)] = tensor if device is None else dressed(as_plain(tensor).to(device), tensor, memo)
        elif device is not None or storage_key(tensor) in several:
            memo[id(tensor)] = dressed(windows.window(as_plain(tensor)), tensor, memo)
    return [_copied(name, module, memo) for name, module in modules]


def _seen_twice(tensors: Iterable[torch.Tensor]) -> set[int]:
    # Memory that several tensors look at: copying tensor by tensor would part them.
    seen: dict[int, int] = {}
    twice: set[int] = set()
    for tensor in tensors:
        if has_window(tensor):
            key = storage_key(tensor)
            if seen.setdefault(key, id(tensor)) != id(tensor):
                twice.add(key)
    return twice


def _copied(name: str, module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    try:
        return copying.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedProgram(
            f"the module {type(module).__qualname__} at {name!r} cannot be copied ({type(error).__name__}: {error}); "
            'lower with state="share" to use it as it is, or give it a __deepcopy__'
        ) from error


def materialise(program: Program, *, copy: bool, devices: Devices | None = None) -> dict[int, Any]:
    """Return the value to register for each cell.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.
        devices: where they go; None leaves them.

    Returns:
        Tensors, parameters, modules and other objects by cell.

    Raises:
        UnsupportedProgram: a module that the program holds cannot be copied.
    """
    shared = _shared_storages(program) if copy or devices is not None else frozenset()
    windows = StorageViews(copy, devices)
    cells: dict[int, Any] = {}
    modules: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, slot in program.state.pairs:
        if slot.cell in cells or slot.cell in modules:
            continue
        if slot.kind is SlotKind.MODULE:
            modules[slot.cell] = (name, slot.value)
        else:
            cells[slot.cell] = _value(name, slot, windows, shared)
    if modules and (copy or devices is not None):
        tensors = [(slot.value, cells[slot.cell]) for _, slot in program.state.pairs if slot.cell in cells]
        copies = copied_modules(list(modules.values()), tensors, windows)
        return cells | dict(zip(modules, copies, strict=True))
    return cells | {cell: module for cell, (_, module) in modules.items()}


def _shared_storages(program: Program) -> frozenset[int]:
    cells: dict[int, int] = {}
    shared: set[int] = set()
    for _, slot in program.state.pairs:
        if cells.setdefault(slot.storage, slot.cell) != slot.cell:
            shared.add(slot.storage)
    return frozenset(shared).union(*program.state.entangled)


def _value(name: str, slot: Slot, windows: StorageViews, shared: frozenset[int]) -> Any:
    value = slot.value
    if isinstance(value, torch.device) and windows.devices is not None:
        return windows.devices[value]
    if not isinstance(value, torch.Tensor):
        return copy_value(name, value, windows.memo) if windows.copy else value
    device = windows.goes_to(value)
    is_shared, moves = slot.storage in shared, device is not None
    if not (is_shared or moves or windows.copy) and (
        isinstance(value, torch.nn.Parameter) or slot.kind is not SlotKind.PARAMETER
    ):
        return value
    if not has_window(value):
        return copy_value(name, value, windows.memo, device=device) if moves or windows.copy else value
    plain = as_plain(value)
    if device is not None and isinstance(plain, FakeTensor):
        plain = fake_on(plain, device)
    elif is_shared or ((moves or windows.copy) and not _is_whole(plain)):
        plain = windows.window(plain)
    elif moves:
        plain = plain.to(device)
    elif windows.copy:
        plain = plain.clone()
    made = dressed(plain, value, windows.memo)
    if slot.kind is SlotKind.PARAMETER and not isinstance(made, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=value.requires_grad)
    return made


def _is_whole(plain: torch.Tensor) -> bool:
    # A clone of it lies in memory as it does: nothing overlaps, and there is nothing around it that a view could reach.
    return type(plain) is FakeTensor or (plain.is_contiguous() and plain.nbytes == plain.untyped_storage().nbytes())
