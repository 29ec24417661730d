"""The state of an exported program: its ``state_dict``, the buffers that are not saved where modules declare them, constants.

Tensors are shared, not copied; those that are one tensor stay one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument

from ..errors import InvalidProgram, Violation
from ..persistent import pmap
from ..state import Slot, SlotKind, State
from ..tensors import TensorIds, cell_key
from ..verify.findings import short

KINDS = {
    id(InputKind.PARAMETER): SlotKind.PARAMETER,
    id(InputKind.BUFFER): SlotKind.BUFFER,
    id(InputKind.CONSTANT_TENSOR): SlotKind.CONSTANT,
    id(InputKind.CUSTOM_OBJ): SlotKind.CONSTANT,
}
"""By identity: members of an enumeration live as long as the process, and their own hash is a call of Python."""


def read_slots_of_inputs(specs: Iterable[Any]) -> dict[str, str]:
    """Return the parameter or buffer behind each input of the graph that is one, by the name of the input.

    Args:
        specs: ``ep.graph_signature.input_specs``.

    >>> read_slots_of_inputs([])
    {}
    """
    parameter, buffer = InputKind.PARAMETER, InputKind.BUFFER
    found = [spec for spec in specs if isinstance(spec.arg, TensorArgument) and isinstance(spec.target, str)]
    slots = {spec.arg.name: spec.target for spec in found if spec.kind is parameter}
    return slots | {spec.arg.name: spec.target for spec in found if spec.kind is buffer}


def read_state(ep: ExportedProgram) -> State:
    """Return the state of an exported program: its ``state_dict`` with the buffers that it leaves out, then constants."""
    declared = {
        str(spec.target): (kind, spec.persistent is not False)
        for spec in ep.graph_signature.input_specs
        if (kind := KINDS.get(id(spec.kind))) is not None
    }
    numbers = TensorIds()
    saved, constants = ep.state_dict, ep.constants
    for name in (*saved, *constants):
        if type(name) is not str:
            said, advice = f"the state has a tensor under {short(name)}, not under a name", "rename it in ep.state_dict"
            raise InvalidProgram([Violation("state-order", said, node="state", advice=advice)])
    tensors = saved.values() if any(map(is_lifted, constants)) else ()
    parameters = {cell_key(value)[0]: value for value in tensors if isinstance(value, torch.nn.Parameter)}
    slots: dict[str, Slot] = {}
    earlier = _unsaved_before(ep)
    for name, value in saved.items():
        for unsaved in earlier.get(name, ()) if earlier else ():
            slots[unsaved] = numbers.slot(constants[unsaved], SlotKind.BUFFER, persistent=False)
        known = declared.get(name)
        if known is None:
            kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
        else:
            kind = known[0]
        slots[name] = numbers.slot(value, kind, persistent=True)
    for name, value in constants.items():
        kind, persistent = declared.get(name, (SlotKind.CONSTANT, False))
        if name not in slots:
            # The exporter detaches parameters that it finds under no name of the module.
            found = parameters.get(cell_key(value)[0], value) if is_lifted(name) else value
            slots[name] = numbers.slot(found, kind, persistent=persistent and kind is not SlotKind.CONSTANT)
    return State(tuple(slots), pmap(slots))


def is_lifted(name: str) -> bool:
    """Return whether the exporter made up the name of a constant, as it does for tensors in containers and closures.

    >>> is_lifted("a.lifted_tensor_0"), is_lifted("a.mask")
    (True, False)
    """
    return name.rpartition(".")[2].startswith("lifted_tensor_")


def _unsaved_before(ep: ExportedProgram) -> dict[str, list[str]]:
    # Buffers that are not saved are among the constants; only the inputs have all buffers in the order of the modules.
    found: dict[str, list[str]] = {}
    unsaved: list[str] = []
    buffer, constants = InputKind.BUFFER, ep.constants
    for spec in ep.graph_signature.input_specs:
        if spec.kind is not buffer:
            continue
        if spec.persistent is False and spec.target in constants:
            unsaved.append(str(spec.target))
        elif unsaved:
            found[str(spec.target)] = unsaved
            unsaved = []
    return found
