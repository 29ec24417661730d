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

__all__ = ["Once", "convert_constants", "restore_ties", "tied_parameters"]

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

    @classmethod
    def of(cls, convert: Callable[[torch.Tensor], torch.Tensor]) -> Once:
        """Return the conversion itself where it is one already: that of the module around."""
        return convert if isinstance(convert, Once) else cls(convert)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor, or return what it was converted to."""
        found = self.results.get(id(tensor))
        if found is None:
            result = self.convert(tensor)
            found = self.results[id(tensor)] = (tensor, result)
            self.results[id(result)] = (result, result)
        return found[1]


def convert_constants(module: torch.nn.Module, names: Iterable[str], convert: Once) -> None:
    """Move the constants of a module in place: tensors that are neither parameters nor buffers; they keep their type.

    Args:
        module: whose attributes they are.
        names: of the attributes; one that is gone or was replaced by something else is left.
        convert: what to do with each.
    """
    attributes: dict[str, Any] = module.__dict__
    for name in names:
        value = attributes.get(name)
        if isinstance(value, torch.nn.Parameter):
            continue  # one that is tied: the module that registers it converts it in place
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                converted = convert(value)
                # Eager's constants keep their type: converted ones would give a .half() module other numbers, silently.
                same = converted.dtype is value.dtype or value.is_meta
                attributes[name] = converted if same else value.to(converted.device)


def tied_parameters(module: torch.nn.Module) -> list[Places]:
    """Return where the parameters are that stand in several places; a move to another kind of device makes new ones."""
    places: dict[int, Places] = {}
    for part in module.modules():
        for name, value in parameters_dict(part).items():
            if value is not None:
                places.setdefault(id(value), []).append((cast("dict[str, Any]", parameters_dict(part)), name))
    for part in module.modules():
        for name, value in part.__dict__.copy().items():
            if id(value) in places:
                places[id(value)].append((part.__dict__, name))
    return [found for found in places.values() if len(found) > 1]


def restore_ties(ties: Iterable[Places]) -> None:
    """Put the first parameter of each group in all its places."""
    for (attributes, first), *others in ties:
        for holder, name in others:
            holder[name] = attributes[first]
