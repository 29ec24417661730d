"""``.to``, ``.double``, ``.half`` of lowered modules: ties stay; constants move with the state and keep their type, as in eager.

One idea: torch converts tensor by tensor; here a tensor that is met again, under another name or in another module, gives the
tensor that it gave before.  What the program itself names
stays: ``lower(program, device=...)`` moves that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch

from ..ir.torch_private import parameters_dict

__all__ = ["Once", "all_modules", "convert_constants", "restore_ties", "tied_parameters"]

Places = list[tuple[dict[str, Any], str]]
"""Dicts of modules that hold one parameter, with its name in each."""


class Once:
    """A conversion that converts each tensor once.

    >>> twice = Once(lambda tensor: tensor * 2)
    >>> x = torch.ones(1)
    >>> twice(x) is twice(x)
    True
    """

    def __init__(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.convert = convert
        self.results: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.devices: dict[torch.device, torch.device] = {}

    @classmethod
    def of(cls, convert: Callable[[torch.Tensor], torch.Tensor]) -> Once:
        """Return the conversion itself where it is one already: that of the module around."""
        return convert if isinstance(convert, Once) else cls(convert)

    def device_from(self, device: torch.device) -> torch.device:
        """Return where a tensor goes that is on a device; one that nobody else has is tried."""
        found = self.devices.get(device)
        if found is None:
            with torch.no_grad():
                found = self.devices[device] = self.convert(torch.empty(0, device=device)).device
        return found

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor, or return what it was converted to."""
        found = self.results.get(id(tensor))
        if found is None:
            result = self.convert(tensor)
            found = self.results[id(tensor)] = (tensor, result)
            self.results[id(result)] = (result, result)
        return found[1]


REAL = "@real"
"""Under which attribute a module has its constants while it is on the meta device, where tensors have no contents."""


def convert_constants(module: torch.nn.Module, names: Iterable[str], convert: Once) -> None:
    """Move the constants of a module: tensors that are neither parameters nor buffers; they keep their type and contents.

    Eager's constants are plain attributes that no conversion reaches: ``half()`` leaves them as they are, and so does
    ``to_empty``, after which ``load_state_dict`` would not bring them back.

    Args:
        module: whose attributes they are.
        names: of the attributes; one that is gone or was replaced by something else is left.
        convert: what is done with parameters and buffers; where it puts them is where constants go.
    """
    attributes: dict[str, Any] = module.__dict__
    for name in names:
        value = attributes.get(name)
        if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
            continue  # a parameter that is tied: the module that registers it converts it in place
        device = convert.device_from(value.device)
        if device == value.device:
            continue
        if device.type == "meta":
            attributes.setdefault(REAL, {})[name] = value
        real = attributes.get(REAL, {}).pop(name, None) if value.is_meta else None
        with torch.no_grad():
            if real is not None:
                attributes[name] = real.to(device, copy=True)
            else:
                attributes[name] = convert(value) if value.is_meta else value.to(device)


def all_modules(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a module and all below it, outer ones first: ``modules()``, also where they nest deeper than Python calls.

    >>> [type(found).__name__ for found in all_modules(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()))]
    ['Sequential', 'ReLU', 'Tanh']
    """
    found: dict[int, torch.nn.Module] = {}
    todo = [module]
    while todo:
        each = todo.pop()
        if id(each) not in found:
            found[id(each)] = each
            todo += reversed(list(each.children()))
    return list(found.values())


def tied_parameters(module: torch.nn.Module) -> list[Places]:
    """Return where the parameters are that stand in several places; a move to another kind of device makes new ones."""
    places: dict[int, Places] = {}
    parts = all_modules(module)
    for part in parts:
        for name, value in parameters_dict(part).items():
            if value is not None:
                places.setdefault(id(value), []).append((cast("dict[str, Any]", parameters_dict(part)), name))
    for part in parts:
        for name, value in part.__dict__.copy().items():
            if id(value) in places:
                places[id(value)].append((part.__dict__, name))
    return [found for found in places.values() if len(found) > 1]


def restore_ties(ties: Iterable[Places]) -> None:
    """Put the first parameter of each group in all its places."""
    for (attributes, first), *others in ties:
        for holder, name in others:
            holder[name] = attributes[first]
