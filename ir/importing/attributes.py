"""What the modules of a traced graph hold: parameters, buffers, constants, and modules that are called as they are.

One idea: everything that ``state_dict`` has becomes state under its path, tied and aliased as it is, and what a graph reads
besides is added under the path that it reads.  A module that two paths lead to has its state under both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from ..cells import CellNumbers
from ..errors import InvalidProgram, Violation
from ..paths import FROM_ROOT, join
from ..persistent import pmap
from ..program import Module
from ..state import Slot, SlotKind, State
from ..torch_private import unsaved_buffers
from ..verify.kinds import short
from .spellings import is_path

__all__ = ["MISSING", "Attributes", "is_computed", "relative_path"]

MISSING = object()
"""What a module has under a name under which it has nothing."""


class Attributes:
    """The state of one root module, as far as it was found.

    Args:
        root: the module.

    Raises:
        InvalidProgram: a module or a piece of state has a name that no graph can have.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.modules: dict[str, torch.nn.Module] = {}
        self.paths: dict[int, list[str]] = {}
        """All paths of each module, by its identity."""
        self.constants: dict[str, Any] = {}
        """What graphs read that is neither parameter nor buffer nor module, by path from the root."""
        self.held: dict[str, torch.nn.Module] = {}
        """Modules that are called as they are, by path from the root."""
        for path, module in root.named_modules(remove_duplicate=False):
            self.modules[path] = module
            self.paths.setdefault(id(module), []).append(path)

    def find(self, module: torch.nn.Module, target: str) -> tuple[torch.nn.Module, Any]:
        """Return the module that holds an attribute, and the attribute; MISSING where there is none."""
        owner: Any = module
        *above, last = target.split(".")
        for part in above:
            owner = getattr(owner, part, MISSING)
            if not isinstance(owner, torch.nn.Module):
                return module, MISSING
        return owner, getattr(owner, last, MISSING)

    def read(self, holder: torch.nn.Module, target: str, value: Any) -> None:
        """Remember that a graph of a module reads an attribute that need not be a parameter or a buffer."""
        for path in self._places(holder):
            self.constants.setdefault(join(path, target), value)

    def hold(self, holder: torch.nn.Module, target: str, module: torch.nn.Module) -> None:
        """Remember that a graph of a module calls a module as it is."""
        for path in self._places(holder):
            self.held[join(path, target)] = module

    def _places(self, holder: torch.nn.Module) -> list[str]:
        return self.paths.get(id(holder), [])

    def state(self) -> State:
        """Return all state, in the order in which ``state_dict`` has it."""
        numbers = CellNumbers()
        slots: dict[str, Slot] = {}
        for path, module in self.modules.items():
            if path in self.held:
                slots[path] = numbers.slot(module, SlotKind.MODULE, persistent=True)
            elif not self._is_inside(path):
                for name, slot in self._own(module, numbers):
                    slots[join(path, name)] = slot
        for path, module in self.held.items():
            if path not in slots:
                slots[path] = numbers.slot(module, SlotKind.MODULE, persistent=True)
        for path, value in self.constants.items():
            if path not in slots:
                slots[path] = numbers.slot(value, SlotKind.CONSTANT, persistent=False)
        for path in slots:
            check_path(path)
        return State(tuple(slots), pmap(slots))

    def _is_inside(self, path: str) -> bool:
        above = path.rpartition(".")[0]
        while above and above not in self.held:
            above = above.rpartition(".")[0]
        return bool(above)

    def _own(self, module: torch.nn.Module, numbers: CellNumbers) -> Iterator[tuple[str, Slot]]:
        for name, value in module.named_parameters(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.PARAMETER, persistent=True)
        unsaved = unsaved_buffers(module)
        for name, value in module.named_buffers(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.BUFFER, persistent=name not in unsaved)

    def hierarchy(self, traced: dict[str, str]) -> tuple[Module, ...]:
        """Return the modules: those that are there, then those that only stacks name, with all that hold them."""
        types = {path: _class_name(module) for path, module in self.modules.items()}
        for path in self.modules:
            if path:
                check_path(path)
        kinds: dict[str, str | None] = {path: kind for path, kind in types.items() if not self._is_inside(path)}
        for path, kind in traced.items():
            parts = path.split(".") if path and not self._is_inside(path) else []
            for depth in range(1, len(parts)):
                kinds.setdefault(".".join(parts[:depth]), None)
            if parts and (kinds.get(path) is None or kinds[path] == PLAIN_MODULE):
                kinds[path] = kind or None
        if traced.get(""):
            kinds[""] = traced[""]
        return tuple([Module(path, kind) for path, kind in kinds.items()])


def _class_name(module: torch.nn.Module) -> str:
    kind = torch.fx.GraphModule if isinstance(module, torch.fx.GraphModule) else type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


PLAIN_MODULE = "torch.nn.modules.module.Module"
"""What a GraphModule puts where a tracer went through a module; the stacks know what it was."""


def check_path(path: object) -> None:
    """Refuse a path that is none.

    Raises:
        InvalidProgram: it has empty parts, quotes or signs that can not be seen.

    >>> check_path("layers.0.weight")
    """
    if not is_path(path):
        said = (
            f"{short(path)} is no path of an attribute: names are separated by dots and have no quotes and no control characters"
        )
        raise InvalidProgram([Violation("names", said, advice="rename the module, parameter or attribute")])


def relative_path(target: str) -> str:
    """Return the path that a target names, as the body of its module writes it: lowered modules reach the root through ``/``.

    >>> relative_path("a.b"), relative_path("/.a.b")
    ('a.b', '/a.b')
    """
    return f"{FROM_ROOT}{target[2:]}" if target.startswith(f"{FROM_ROOT}.") else target


def is_computed(owner: torch.nn.Module, name: str) -> bool:
    """Say whether an attribute of a module is computed when it is read.

    >>> is_computed(torch.nn.Linear(1, 1), "weight"), is_computed(torch.nn.Linear(1, 1), "T_destination")
    (False, False)
    """
    return isinstance(getattr(type(owner), name, None), property) and not any(
        name in owner.__dict__.get(kind, ()) for kind in HOLDERS
    )


HOLDERS = ("_parameters", "_buffers", "_modules")
