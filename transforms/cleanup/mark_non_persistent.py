"""``mark_non_persistent``: buffers that ``state_dict`` leaves out.

One idea: whether a buffer is saved is said of its slot, as ``register_buffer(..., persistent=False)`` says it of a module;
a tracer that copies buffers one by one forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from attrs import evolve

from ...ir.errors import NamingError
from ...ir.paths import join
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.state import SlotKind, State
from ...ir.torch_private import unsaved_buffers
from ..fuel import UNLIMITED, Fuel
from ..transformation import transformation
from .wanted import near_or_there

__all__ = ["mark_non_persistent"]


@transformation(proven=True, laws=["only those buffers are left out of the saved state", "no graph changes"])
def mark_non_persistent(program: Program, buffers: Iterable[str] | torch.nn.Module, *, fuel: Fuel = UNLIMITED) -> Program:
    """Leave buffers out of ``state_dict``.

    Before::

        buffer mask: f32[4, 4]

    After::

        buffer mask: f32[4, 4] not_persistent

    Args:
        program: a program at any stage.
        buffers: names of buffers; or the original module, of which the names of those are taken that it does not save (the
            program need not have all of them).
        fuel: a rewrite is one buffer, in the order of the state.

    Returns:
        The program whose buffers of these names are not saved; a tensor with a second name stays saved under that.

    Raises:
        NamingError: there is no such state, or it is no buffer.
        TypeError: ``buffers`` is neither names nor a module.

    >>> import torch, purefx as px
    >>> slot = px.Slot(px.SlotKind.BUFFER, torch.ones(2), 0, 0)
    >>> program = px.Program.of({"": px.Graph((), ())}, state=px.State(("mask",), px.pmap({"mask": slot})))
    >>> px.mark_non_persistent(program, ["mask"]).state["mask"].persistent
    False
    """
    wanted = _of_module(program.state, buffers) if isinstance(buffers, torch.nn.Module) else _named(program.state, buffers)
    chosen = [name for name, slot in program.state.pairs if name in wanted and slot.persistent and fuel.burn("leave out", name)]
    if not chosen:
        return program
    slots = dict(program.state.pairs)
    slots.update({name: evolve(slots[name], persistent=False) for name in chosen})
    return program.evolve(state=State(program.state.order, pmap(slots)))


def _of_module(state: State, module: torch.nn.Module) -> set[str]:
    found: set[str] = set()
    for path, inner in module.named_modules(remove_duplicate=False):
        found.update([join(path, name) for name in unsaved_buffers(inner)])
    return {name for name in found if name in state and state[name].kind is SlotKind.BUFFER}


def _named(state: State, names: Iterable[str]) -> set[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        given = repr(names) if isinstance(names, str) else f"a {type(names).__name__}"
        raise TypeError(f'mark_non_persistent takes names of buffers, or a module, not {given}; write ["mask"] for one buffer')
    wanted = list(names)
    faults = [_fault(state, name) for name in wanted]
    if any(faults):
        raise NamingError("buffers can not be left out: " + "; ".join(filter(None, faults)))
    return set(wanted)


def _fault(state: State, name: object) -> str:
    if name not in state:
        buffers = [known for known, slot in state.pairs if slot.kind is SlotKind.BUFFER]
        return f"there is no state {name!r}{near_or_there(name, buffers or state.order)}"
    kind = state[str(name)].kind
    if kind is SlotKind.CONSTANT:
        return f"{name!r} is a constant, which is never saved"
    return "" if kind is SlotKind.BUFFER else f"{name!r} is a {kind.value}, no buffer"
