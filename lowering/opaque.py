"""Copies of the modules that a program holds as they are: all in one, so that what they share they share again.

One idea: one memo for all.  It knows what became of the tensors that the program has in slots of its own, and of the memory
that several look at, so a weight that is tied into such a module is tied into its copy.  Nothing is copied that was to be
shared.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..ir.errors import UnsupportedProgram
from ..ir.opaque import tensors_of
from ..ir.torch_private import storage_key
from .windows import Windows

__all__ = ["copied_modules"]


def copied_modules(
    modules: Sequence[tuple[str, torch.nn.Module]], tensors: Iterable[tuple[Any, Any]], windows: Windows
) -> list[torch.nn.Module]:
    """Return the modules to register.

    Args:
        modules: the modules, each with its slot.
        tensors: what the program has in slots of its own, and what became of it.
        windows: what became of memory that several look at, and whether to copy and to move; without a copy modules are new
            only where one must move.

    Raises:
        UnsupportedProgram: Python can not copy a module.

    >>> linear = torch.nn.Linear(2, 2)
    >>> [copied] = copied_modules([("a", linear)], [(linear.weight, "new")], Windows(copy=True, device=None))
    >>> copied.__dict__["_parameters"]["weight"]
    'new'
    """
    memo: dict[int, Any] = {id(old): new for old, new in tensors}
    device = windows.device
    held = [tensor for _, module in modules for tensor in tensors_of(module)]
    if not windows.copy and all(tensor.device == device for tensor in held if device is not None):
        return [module for _, module in modules]
    several = _seen_twice(held) | windows.memories.keys()
    for tensor in held:
        moves = device is not None and tensor.device != device
        if id(tensor) not in memo and (moves or (_is_plain(tensor) and storage_key(tensor) in several)):
            memo[id(tensor)] = _remade(tensor, windows)
    return [_copied(name, module, memo) for name, module in modules]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and type(tensor.detach()) is torch.Tensor


def _seen_twice(tensors: Iterable[torch.Tensor]) -> set[int]:
    # Memory that several tensors look at: copying tensor by tensor would part them.
    seen: dict[int, int] = {}
    twice: set[int] = set()
    for tensor in tensors:
        if _is_plain(tensor):
            key = storage_key(tensor)
            if seen.setdefault(key, id(tensor)) != id(tensor):
                twice.add(key)
    return twice


def _remade(tensor: torch.Tensor, windows: Windows) -> torch.Tensor:
    plain = windows.window(tensor.detach()) if _is_plain(tensor) else tensor.detach().to(windows.device)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=tensor.requires_grad)
    return plain.requires_grad_(tensor.requires_grad)


def _copied(name: str, module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    try:
        return copying.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedProgram(
            f"the module {type(module).__qualname__} at {name!r} can not be copied ({type(error).__name__}: {error}); "
            'lower with state="share" to use it as it is, or give it a __deepcopy__'
        ) from error
