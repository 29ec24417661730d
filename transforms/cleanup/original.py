"""``Original``: what the module that was traced calls its tensors.

One idea: a module is read as ``import_fx`` reads it (``ir/importing/attributes.py``), with the constants that it holds as plain
attributes; a mapping says names alone.  Which tensor is which is told by memory, never by name or contents.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch
from attrs import frozen

from ...ir.cells import cell_key
from ...ir.errors import NamingError
from ...ir.importing.attributes import Attributes
from ...ir.importing.spellings import is_path
from ...ir.paths import join
from ...ir.program import Module
from ...ir.state import Slot, SlotKind
from ...ir.verify.kinds import short

__all__ = ["Original", "original_of"]


@frozen
class Original:
    """The tensors and other objects of a module, by name, in the order in which it declares them."""

    slots: Mapping[str, Slot]
    tells_kinds: bool
    """Whether it is known what they are: of a module it is, of a mapping only where a value is a parameter."""
    modules: tuple[Module, ...] = ()

    def by_key(self, unless_known: Container[str] = ()) -> dict[object, list[str]]:
        """Return the names of each tensor: of one that is a parameter or a buffer no plain attribute that nobody knows."""
        found: dict[object, list[str]] = {}
        for name, slot in self.slots.items():  # constants are the last
            names = found.setdefault(cell_key(slot.value)[0], [])
            if slot.kind is not SlotKind.CONSTANT or not names or name in unless_known:
                names.append(name)
        return found


def original_of(source: torch.nn.Module | Mapping[str, Any]) -> Original:
    """Return what a module, or a mapping from names to tensors, calls its tensors.

    Raises:
        NamingError: a name is no path, or a value of a mapping is neither a tensor nor a script object.
        TypeError: it is neither a module nor a mapping.

    >>> list(original_of(torch.nn.Linear(2, 2)).slots)
    ['weight', 'bias']
    """
    if isinstance(source, torch.nn.Module):
        return _of_module(source)
    if not isinstance(source, Mapping):
        said = "the module that was traced, or a mapping from names to its tensors"
        raise TypeError(f"restore_names takes {said}, not {short(source)}")
    slots: dict[str, Slot] = {}
    for name, value in source.items():
        if not is_path(name):
            raise NamingError(f"{short(name)} can not be the name of state: names are separated by dots, without quotes")
        if not isinstance(value, torch.Tensor | torch.ScriptObject):
            raise NamingError(f"{name!r} is {short(value)}, and names are given to tensors and script objects")
        is_parameter = isinstance(value, torch.nn.Parameter)
        slots[name] = Slot(SlotKind.PARAMETER if is_parameter else SlotKind.BUFFER, value, 0, 0)
    return Original(slots, tells_kinds=False)


def _of_module(module: torch.nn.Module) -> Original:
    attributes = Attributes(module)
    for path, holder in attributes.modules.items():
        for name, value in vars(holder).items():
            if isinstance(value, torch.Tensor | torch.ScriptObject) and is_path(name):
                attributes.constants.setdefault(join(path, name), value)
    return Original(dict(attributes.state().pairs), tells_kinds=True, modules=attributes.hierarchy({}))
