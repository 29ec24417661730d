"""The state of an exported program: parameters, buffers and constants, and which of them are one tensor.

One idea: tensors are shared, not copied; cells and storages are numbered in the order in which they are met.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ..cells import CellNumbers, cell_key
from ..persistent import pmap
from ..state import Slot, SlotKind, State

__all__ = ["read_state"]

KINDS = {
    InputKind.PARAMETER: SlotKind.PARAMETER,
    InputKind.BUFFER: SlotKind.BUFFER,
    InputKind.CONSTANT_TENSOR: SlotKind.CONSTANT,
    InputKind.CUSTOM_OBJ: SlotKind.CONSTANT,
}


def read_state(ep: ExportedProgram) -> State:
    """Return the state of an exported program: its ``state_dict`` with the buffers that it leaves out, then constants."""
    declared = {
        str(spec.target): (KINDS[spec.kind], spec.persistent is not False)
        for spec in ep.graph_signature.input_specs
        if spec.kind in KINDS
    }
    numbers = CellNumbers()
    tensors = ep.state_dict.values() if any(map(is_lifted, ep.constants)) else ()
    parameters = {cell_key(value)[0]: value for value in tensors if isinstance(value, torch.nn.Parameter)}
    slots: dict[str, Slot] = {}
    earlier = _unsaved_before(ep)
    for name, value in ep.state_dict.items():
        for unsaved in earlier.get(name, ()):
            slots[unsaved] = numbers.slot(ep.constants[unsaved], SlotKind.BUFFER, persistent=False)
        kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
        slots[name] = numbers.slot(value, declared.get(name, (kind, True))[0], persistent=True)
    for name, value in ep.constants.items():
        kind, persistent = declared.get(name, (SlotKind.CONSTANT, False))
        if name not in slots:
            # The exporter detaches parameters that it finds under no name of the module.
            found = parameters.get(cell_key(value)[0], value) if is_lifted(name) else value
            slots[name] = numbers.slot(found, kind, persistent=persistent and kind is not SlotKind.CONSTANT)
    return State(tuple(slots), pmap(slots))


def is_lifted(name: str) -> bool:
    """Say whether the exporter made up the name of a constant, as it does for tensors in containers and closures.

    >>> is_lifted("a.lifted_tensor_0"), is_lifted("a.mask")
    (True, False)
    """
    return name.rpartition(".")[2].startswith("lifted_tensor_")


def _unsaved_before(ep: ExportedProgram) -> dict[str, list[str]]:
    # Buffers that are not saved are among the constants; only the inputs have all buffers in the order of the modules.
    found: dict[str, list[str]] = {}
    unsaved: list[str] = []
    for spec in ep.graph_signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.persistent is False and spec.target in ep.constants:
            unsaved.append(str(spec.target))
        elif spec.kind is InputKind.BUFFER and unsaved:
            found[str(spec.target)] = unsaved
            unsaved = []
    return found
