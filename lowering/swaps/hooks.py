"""Assignment hooks of children, and forward hooks of lowered modules.

A hook runs for every call of a module, or registering it raises an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch

from ...ir.calls.call_graph import calls_by_label
from ...ir.errors import SwapError, UnsupportedProgram
from ...ir.program import Program
from ...ir.torch_private import children_dict
from ..modules.context import LoweringContext, bodies_at, external_uses

_REPLACEMENTS = (torch.nn.Module, Program)


class Where(NamedTuple):
    """The lowering that a module belongs to, and its path there."""

    context: LoweringContext
    path: str


def check_hooked(where: Where) -> None:
    """Refuse hooks of a module whose operators run inside the body of another one.

    Raises:
        UnsupportedProgram: nothing calls the module as a whole.
    """
    context, uses = where.context, external_uses(where.context)
    for path in context.paths_of(where.path):
        inside = uses[path].inside if path in uses and path not in bodies_at(context) else ()
        if inside:
            raise UnsupportedProgram(
                f"hooks of module {where.path!r} cannot run: its operators are in the body of {inside[0].caller or 'the root'}, "
                "and nothing calls it; lower an outlined program (px.transform makes one), or hook the module around it"
            )


def check_one_body(where: Where | None) -> None:
    """Refuse another ``forward`` of a module whose calls run different bodies: it would only replace the first body.

    Raises:
        SwapError: the calls of the module run different bodies.
    """
    if where is None:
        return
    names, calls = where.context.names_of(where.path), calls_by_label(where.context.program)
    if (
        len(
            {
                body
                for name in names
                for path in where.context.paths_of(name)
                for body in calls.get(path, {}).values()
            }
        )
        > 1
    ):
        raise SwapError(
            f"module {where.path!r} is called several times, and its calls run different bodies, so one forward cannot replace "
            f"them; replace the module with px.swap_modules(program, {{{where.path!r}: module}}) before lowering"
        )


def _hooking(name: str) -> Any:
    """Return a method that registers a hook as torch does, and raises if nothing calls the module as a whole."""

    def register(self: Watched, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.nn.Module, name)(self._hooked(), *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return register


class Watched(torch.nn.Module):
    """A module that checks assignments of children."""

    @property
    def purefx_where(self) -> Where | None:
        """The lowering that the module belongs to, and its path; None for a slice of a list."""
        return self.__dict__.get("purefx_at")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, _REPLACEMENTS) or (
            value is None and name in self.__dict__.get("_modules", ())
        ):
            value = LoweringContext.admitted(self, name, value)
            if (
                name in self.__dict__
                and isinstance(value, torch.nn.Module)
                and name in children_dict(self)
            ):
                children_dict(self)[name] = (
                    value  # torch would delete the attribute: a child called ``purefx_place``
                )
                return
        elif name == "forward" or (
            name == "__class__" and getattr(value, "forward", None) is not type(self).forward
        ):
            check_one_body(self.purefx_where)
        super().__setattr__(name, cast(Any, value))

    register_forward_pre_hook = _hooking("register_forward_pre_hook")
    register_forward_hook = _hooking("register_forward_hook")
    register_full_backward_pre_hook = _hooking("register_full_backward_pre_hook")
    register_full_backward_hook = _hooking("register_full_backward_hook")
    register_backward_hook = _hooking("register_backward_hook")

    def _hooked(self) -> torch.nn.Module:
        # The module that has the hooks: this one, unless several objects represent one module.
        where = self.purefx_where
        if where is not None and where.path:
            check_hooked(where)
        return self

    def add_module(self, name: str, module: Any) -> None:
        """Add or replace a child; a program is lowered.

        Raises:
            SwapError: the program calls the child, and the module cannot replace it.  Nothing was changed.
        """
        super().add_module(name, LoweringContext.admitted(self, name, module))

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:  # noqa: FBT001, FBT002  torch's signature
        """Replace the module at a path by another one or by a program.

        Raises:
            SwapError: the program calls the module at the path, and ``module`` cannot replace it.  Nothing was changed.
        """
        if isinstance(module, _REPLACEMENTS) and target:
            above, _, name = target.rpartition(".")
            parent = self.get_submodule(above)
            if children_dict(parent).get(name) is not None:
                setattr(
                    parent, name, module
                )  # torch would read the attribute, which may not be the child (``graph``)
                return
        super().set_submodule(target, cast(Any, module), strict)

    def get_submodule(self, target: str) -> torch.nn.Module:
        """Return the module at a path, even if its parent has another attribute of that name (``graph``, ``code``)."""
        found: torch.nn.Module = self
        for name in target.split(".") if target else ():
            child = children_dict(found).get(name)
            if child is None:
                return super().get_submodule(target)
            found = child
        return found


class LoweredContainer(Watched):
    """A module that is never called itself; only its children are."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredContainer:
        # Without it, copy.deepcopy would call a child or a parameter of that name.
        new = object.__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new


class LoweredList(LoweredContainer, torch.nn.ModuleList):
    """A container with numbered children; index it like the original.

    You cannot add items if the program calls existing ones: the calls are fixed in the code.
    """

    def insert(self, index: int, module: Any) -> None:
        """Insert a module.

        Raises:
            SwapError: the program calls a child.
        """
        self._check_open()
        super().insert(index, module)

    def append(self, module: Any) -> Any:
        """Append a module.

        Raises:
            SwapError: the program calls a child.
        """
        self._check_open()
        return super().append(module)

    def extend(self, modules: Iterable[Any]) -> Any:
        """Append several modules.

        Raises:
            SwapError: the program calls a child.
        """
        self._check_open()
        return super().extend(modules)

    def _check_open(self) -> None:
        where = self.purefx_where
        if where is not None and where.path in external_uses(where.context):
            raise SwapError(
                f"cannot add a module to {where.path!r}: the program calls its {len(self)} modules one by one, and would "
                "never call a new one; add it to the original and export again"
            )
