"""The state of an exported program: its ``state_dict``, and the constants beside it.

One idea: names that show one tensor in the program show one tensor here, and windows on one memory stay that.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.errors import UnsupportedProgram
from ...ir.program import Program
from ...ir.state import Slot, SlotKind
from ..tensors import materialise

__all__ = ["state_of_ep"]


def state_of_ep(program: Program, *, copy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``state_dict`` of an exported program, and its constants: buffers that are not saved among them.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.

    Raises:
        UnsupportedProgram: a name would break the code that torch writes for a module that has the state.

    >>> state_of_ep(Program.of({}), copy=True)
    ({}, {})
    """
    cells = materialise(program, copy=copy, device=None)
    saved: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, slot in program.state.pairs:
        if not name.isprintable() or any(mark in name for mark in "'\"\\"):
            raise UnsupportedProgram(f"the state {name!r} has a name that torch would write into code; rename it")
        value = cells[slot.cell]
        if _is_saved(slot):
            saved[name] = value
        else:  # torch looks for constants that are parameters among the buffers, and does not find them
            constants[name] = value.detach() if isinstance(value, torch.nn.Parameter) else value
    return saved, constants


def _is_saved(slot: Slot) -> bool:
    return slot.kind is not SlotKind.CONSTANT and slot.persistent
