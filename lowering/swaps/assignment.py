"""Assignment in place of a module of a lowered program: ``module.path = replacement``.

Before anything changes, a replacement is checked against all external uses of the original: calls with its arguments, modules
below it that others call, state that others read.  An incompatible one is refused with a reason and advice;
``compatibility.py`` checks one call.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from ...ir.calls.compatibility import check_forward
from ...ir.errors import SwapError
from ...ir.names import is_below
from ...ir.own_operators import attribute_of
from ...ir.program import Program
from ...ir.torch_private import children_dict, uncompiled
from ...transforms.swap.state import found_in
from ..lower import lower
from ..modules.context import LoweringContext
from ..modules.interface import ExternalUse, ExternalUses
from ..modules.module import GRAPHS
from ..modules.pickling import edited
from .compatibility import check_call, is_home, put_in
from .hooks import Watched

__all__ = ["admitted"]


def admitted(owner: Watched, name: str, value: Any) -> Any:
    """Return what is put in place of a child: the module that is assigned, or what a program is lowered to.

    Args:
        owner: the module that gets it.
        name: the attribute.
        value: a module, a program, or None.

    Raises:
        SwapError: the program asks something of the child that this does not answer.

    >>> import torch, purefx as px
    >>> module = px.unflatten(torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),)))
    >>> admitted(module, "0", torch.nn.Tanh())
    Tanh()
    """
    where = owner.purefx_where
    if where is None:
        return value
    family: LoweringContext = where.family
    if family.hooked and isinstance(value, _MODULES) and children_dict(owner).get(name) is not value:
        _check_one_object(family, where.path, name)
    known = [_replaces(family, f"{above}.{name}" if above else name, owner, value) for above in family.paths_of(where.path)]
    return _lowered(value, family) if isinstance(value, Program) and any(known) else value


_MODULES = (torch.nn.Module, Program)


def _check_one_object(family: LoweringContext, outer: str, name: str) -> None:
    # In eager what is below a module is below all of its names; here those whose calls run other bodies have their own children.
    first = family.hooked.get(outer, outer)
    names = [first, *(path for path, other in family.hooked.items() if other == first)]
    called = [path for each in names if (path := f"{each}.{name}") in family.needs]
    if len(names) > 1 and len(called) > 1:
        swapped = ", ".join(f"{path!r}: module" for path in called)
        raise SwapError(
            f"module {f'{outer}.{name}'!r}: {' and '.join(map(repr, names))} are one module, and under each name its calls run "
            f"other bodies, so this would replace it for one of them; replace all: px.swap_modules(program, {{{swapped}}}) "
            "before lowering"
        )


def _replaces(family: LoweringContext, path: str, owner: Watched, value: Any) -> bool:
    # Say whether the program knows what is replaced, and if so, whether this answers all that it asks.
    needs = family.needs.get(path)
    module, _, number = path.rpartition("@")
    if needs is None and path not in family.types and number.isdecimal() and module in family.needs and value is not None:
        raise SwapError(f"{path!r} is one call of {module!r}, and only all calls of a module can be replaced; {put_in(module)}")
    there = children_dict(owner).get(path.rpartition(".")[2])
    if value is there or (needs is None and (value is None or path not in family.types)):
        return False
    try:
        _Swap(family, path, owner, value).check(needs)
    except SwapError:
        if not _was_edited(owner):  # what an edited graph asks is the user's to know
            raise
    return True


def _lowered(program: Program, family: LoweringContext) -> torch.nn.Module:
    return lower(program, to=family.to)  # type: ignore[arg-type]


def _was_edited(owner: Watched) -> bool:
    graphs = [owner.__dict__[key] for key in GRAPHS if isinstance(owner.__dict__.get(key), torch.fx.Graph)]
    return any(edited(owner, graph) for graph in graphs)


@frozen
class _Swap:
    """One assignment."""

    family: LoweringContext
    path: str
    owner: Watched
    value: Any

    def check(self, needs: ExternalUses | None) -> None:
        """Refuse what does not answer."""
        family, path, value = self.family, self.path, self.value
        home = is_home(family, path, value)
        if needs is None:
            if not home:
                raise SwapError(f"module {path!r} {_NEVER}; {_again(path)}, and {put_in(path)}")
            return
        if value is None:
            raise SwapError(f"module {path!r} is called, or read from, so it cannot be None; {_identity(path)}")
        self._check_children()
        for asked in needs.calls:
            found = self._below(asked, asked.path)
            self._check_view(asked, found)
            if not is_home(family, asked.path, found):
                check_call(family, asked, found)
        for asked in needs.held:
            held = self._below(asked, asked.path)
            if not isinstance(held, Program):  # its root asks when it is called
                check_forward(asked.path, asked.node, held, asked.node.args[1:], dict(asked.node.kwargs))
        if home:
            return
        if needs.inside:
            raise SwapError(
                f"module {path!r}: what it does stands in the code of {_named(needs.inside[0].caller)} "
                f"({needs.inside[0].node.name}), so assigning it changes nothing; lower a program in which its calls are "
                "outlined (transform does that), or where that is a branch of an operator, replace a module around it"
            )
        for asked in needs.reads:
            self._check_read(asked)

    def _below(self, asked: ExternalUse, path: str) -> Any:
        # What others call: the replacement, or what it has below.
        if path == self.path:
            return self.value
        rest = path[len(self.path) + 1 :]
        found = found_in(self.value, rest)
        if not isinstance(found, torch.nn.Module):
            todo = "assign px.lower(program), which may have" if isinstance(self.value, Program) else "give one that has"
            raise SwapError(
                f"module {self.path!r}: {_named(asked.caller)} calls its {rest}, and a {_kind(self.value)} has no such module; "
                f"{todo}, or replace {path!r}"
            )
        return found

    def _check_view(self, asked: ExternalUse, found: Any) -> None:
        # Later calls with bodies of their own go to views, which share the state of the module that they are views of.
        do: Any = asked.node.do
        frame = do.instance
        signature = self.family.conventions.get(do.graph)
        if not frame.call or (signature is not None and signature.signature.shared):
            return
        *above, last = asked.path[len(self.path) + 1 :].split(".") if asked.path != self.path else [self.path.rpartition(".")[2]]
        parent = self.owner if asked.path == self.path else attribute_of(self.value, ".".join(above)) if above else self.value
        name = f"{last}@{frame.call}"
        view = getattr(parent, "__dict__", {}).get(name)
        if view is None or children_dict(view) is not getattr(uncompiled(found), "__dict__", {}).get("_modules"):
            raise SwapError(
                f"module {asked.path!r} is called several times, and what its calls run differs, so none of them says how "
                f"another module is called; {_again(asked.path)}, or {put_in(asked.path)}"
            )

    def _check_children(self) -> None:
        # A container: the program calls its children one by one, and those that did nothing not at all.
        if isinstance(self.value, Program) or any(asked.path == self.path for asked in self.family.needs[self.path].calls):
            return
        old = children_dict(self.owner).get(self.path.rpartition(".")[2])
        if not isinstance(old, torch.nn.ModuleList) or not isinstance(self.value, torch.nn.ModuleList):
            old = None
        if old is not None and len(old) != len(self.value):
            raise SwapError(
                f"{self.path!r}: the program calls the {len(old)} modules that are in it, one by one, and the new list has "
                f"{len(self.value)}; give as many, or export the model with the other list"
            )
        for path in self.family.children_of(self.path):
            found = attribute_of(self.value, path[len(self.path) + 1 :])
            silent = path not in self.family.needs and isinstance(found, torch.nn.Module)
            if silent and not is_home(self.family, path, found):
                raise SwapError(f"module {path!r} {_NEVER}; keep the one that is there, or {_again(path)}, and {put_in(path)}")

    def _check_read(self, asked: ExternalUse) -> None:
        rest = asked.path[len(self.path) + 1 :]
        value: Any = self.value
        said = f"module {self.path!r}: {_named(asked.caller)} reads its {rest}"
        found = found_in(value, rest)
        before: Any = children_dict(self.owner).get(self.path.rpartition(".")[2])
        old = attribute_of(before, rest)
        others = [name for name in self.family.ties.get(asked.path, ()) if not is_below(name, self.path)]
        if others and (found is None or found is not old):
            raise SwapError(
                f"{said}, or the same tensor as {' or '.join(others)}: an exported program cannot tell; tie them again in the "
                f"replacement, or {put_in(self.path)}"
            )
        if not isinstance(found, torch.Tensor):
            raise SwapError(f"{said}, and a {_kind(value)} has no such tensor; give it one, or replace a module around both")
        if isinstance(old, torch.Tensor) and old.shape != found.shape:
            raise SwapError(f"{said}, which has the shape {list(old.shape)}, and that of the {_kind(value)} {list(found.shape)}")


_NEVER = "is not called in this program, or its call did nothing that was exported, so nothing would call what is assigned"


def _again(path: str) -> str:
    return f"export again with preserve_module_call_signature=({path!r},)"


def _identity(path: str) -> str:
    return f"assign torch.nn.Identity() to {path!r} for one that does nothing, or delete it"


def _named(path: str) -> str:
    return path or "the root"


def _kind(value: Any) -> str:
    return type(value).__name__
