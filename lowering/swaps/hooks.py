"""Assignment hooks of children, and forward hooks of lowered modules.

A hook runs for every call of a module as a whole, or is refused when it is registered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch

from ...ir.calls.call_graph import calls_by_label
from ...ir.errors import SwapError, UnsupportedProgram
from ...ir.persistent import derived
from ...ir.program import Program
from ...ir.torch_private import blank_module, buffers_dict, children_dict, parameters_dict
from ..modules.context import LoweringContext

__all__ = ["LoweredContainer", "LoweredList", "Watched", "Where", "new_container"]


def check_hooked(family: LoweringContext, path: str) -> None:
    """Refuse hooks of a module that is never called in one piece.

    Args:
        family: what the module was lowered with.
        path: the module; the root is called as it is.

    Raises:
        UnsupportedProgram: its call was cut, or its operators run inside of another body.
    """
    known = unhooked(family)
    why = next((known[each] for each in family.paths_of(path) if each in known), None)
    if why is not None:
        raise UnsupportedProgram(f"hooks of module {path!r} cannot run: {why}")


def check_one_body(where: Where | None) -> None:
    """Refuse another ``forward`` of a module whose calls run different bodies: it would stand for the first of them alone.

    Args:
        where: which lowering the module is of, and where.

    Raises:
        SwapError: the calls of the module run different bodies.
    """
    if where is None:
        return
    family, first = where.family, where.family.hooked.get(where.path, where.path)
    names = [first, *(path for path, other in family.hooked.items() if other == first)]
    calls = calls_by_label(family.program)
    bodies = {body for name in names for path in family.paths_of(name) for body in calls.get(path, {}).values()}
    if len(bodies) > 1:
        raise SwapError(
            f"module {where.path!r} is called several times, and its calls run different bodies, so one forward cannot replace "
            f"them; put a module in with px.swap_modules(program, {{{where.path!r}: module}}) before lowering"
        )


@derived
def unhooked(family: LoweringContext) -> dict[str, str]:
    """Return why hooks of a module cannot run, by path; modules whose hooks can run are left out.

    Args:
        family: of the program that runs.
    """
    found: dict[str, str] = {}
    called = family.bodies_at
    for path, needs in family.needs.items():
        if needs.inside and path not in called:
            around = needs.inside[0].caller or "the root"
            found[path] = (
                f"its operators run in the body of {around}, and nothing calls it; outline the "
                "program before it is lowered (px.transform does), or hook the module around it"
            )
    return found


_REPLACEMENTS = (torch.nn.Module, Program)


class Where(NamedTuple):
    """Which lowering a module is of, and its path there."""

    family: LoweringContext
    path: str


def _hooking(name: str) -> Any:
    """Return a method that registers a hook as torch does, unless the module is never called as a whole."""

    def register(self: Watched, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.nn.Module, name)(self._hooked(), *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return register


class Watched(torch.nn.Module):
    """A module that notices assignments; see the file's docstring."""

    @property
    def purefx_where(self) -> Where | None:
        """Which lowering it is of, and where; None for a slice of a list, which is not part of one."""
        return self.__dict__.get("purefx_at")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, _REPLACEMENTS) or (value is None and name in self.__dict__.get("_modules", ())):
            value = LoweringContext.admitted(self, name, value)
            if name in self.__dict__ and isinstance(value, torch.nn.Module) and name in children_dict(self):
                children_dict(self)[name] = value  # torch would delete the attribute: a child called ``purefx_place``
                return
        elif name == "forward" or (name == "__class__" and getattr(value, "forward", None) is not type(self).forward):
            check_one_body(self.purefx_where)
        super().__setattr__(name, cast(Any, value))

    register_forward_pre_hook = _hooking("register_forward_pre_hook")
    register_forward_hook = _hooking("register_forward_hook")
    register_full_backward_pre_hook = _hooking("register_full_backward_pre_hook")
    register_full_backward_hook = _hooking("register_full_backward_hook")
    register_backward_hook = _hooking("register_backward_hook")

    def _hooked(self) -> torch.nn.Module:
        # The module that has the hooks: this one, unless it is one of several objects for a module.
        where = self.purefx_where
        if where is not None and where.path:
            check_hooked(where.family, where.path)
        return self

    def add_module(self, name: str, module: Any) -> None:
        """Add a child, or put another one in its place; a program is lowered.

        Raises:
            SwapError: the program calls that child, and this cannot stand in for it.  Nothing was done.
        """
        super().add_module(name, LoweringContext.admitted(self, name, module))

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:  # noqa: FBT001, FBT002  torch's signature
        """Put a module, or a program, in place of another one, by its path.

        Raises:
            SwapError: the program calls what was there, and this cannot stand in for it.  Nothing was done.
        """
        if isinstance(module, _REPLACEMENTS) and target:
            above, _, name = target.rpartition(".")
            parent = self.get_submodule(above)
            if children_dict(parent).get(name) is not None:
                setattr(parent, name, module)  # torch would ask the attribute what is there
                return
        super().set_submodule(target, cast(Any, module), strict)

    def get_submodule(self, target: str) -> torch.nn.Module:
        """Return the module at a path, also where a module has another attribute of that name (``graph``, ``code``)."""
        found: torch.nn.Module = self
        for name in target.split(".") if target else ():
            child = children_dict(found).get(name)
            if child is None:
                return super().get_submodule(target)
            found = child
        return found

    def get_parameter(self, target: str) -> torch.nn.Parameter:
        """Return the parameter at a path, likewise."""
        above, _, name = target.rpartition(".")
        found = parameters_dict(self.get_submodule(above)).get(name)
        return super().get_parameter(target) if found is None else found

    def get_buffer(self, target: str) -> torch.Tensor:
        """Return the buffer at a path, likewise."""
        above, _, name = target.rpartition(".")
        found = buffers_dict(self.get_submodule(above)).get(name)
        return super().get_buffer(target) if found is None else found


class LoweredContainer(Watched):
    """A module that is never called, only what is in it."""


class LoweredList(LoweredContainer, torch.nn.ModuleList):
    """A container whose children are counted, so it is indexed like the original."""

    def insert(self, index: int, module: Any) -> None:
        """Refuse to insert if the program calls the items: the calls are fixed in its code.

        Raises:
            SwapError: the program calls a child.
        """
        self._fixed()
        super().insert(index, module)

    def append(self, module: Any) -> Any:
        """Refuse to append if the program calls the items, because it would never call a new one.

        Raises:
            SwapError: the program calls a child.
        """
        self._fixed()
        return super().append(module)

    def extend(self, modules: Iterable[Any]) -> Any:
        """Refuse to append several modules likewise.

        Raises:
            SwapError: the program calls a child.
        """
        self._fixed()
        return super().extend(modules)

    def _fixed(self) -> None:
        where = self.purefx_where
        if where is not None and where.path in where.family.needs:
            raise SwapError(
                f"{where.path!r} cannot get another module: the program calls the {len(self)} that are in it, one by one, and "
                "would never call a new one; add it to the original and export that again"
            )


def new_container(family: LoweringContext, path: str) -> LoweredContainer:
    """Return a container without children."""
    return blank_module(LoweredContainer, purefx_at=Where(family, path))
