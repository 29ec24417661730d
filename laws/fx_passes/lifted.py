"""``lifted``: a program whose state is inputs like any others, as compilers of torch give graphs to their passes.

Every call is given the state as it is at first; what the program writes to it is written to those inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.program import Program
from ...ir.signature import InputMutation, InputSpec, OutputSpec, StateInput, StateMutation, TensorType, UserInput
from ...ir.state import SlotKind, State
from ...ir.torch_private import device_of
from ..law import Case
from ..tiers import case_with_calls

__all__ = ["lifted"]


def lifted(case: Case) -> Case | None:
    """Return a case in which no state is left; None where that is none of plain tensors, each in memory of its own.

    Args:
        case: of a flat program that takes its state as inputs.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),)))
    >>> found = lifted(case_with_calls(program, [(torch.ones(1, 2),)]))
    >>> [leaf.shape for leaf in found.calls[0]], len(found.program.state)
    ([torch.Size([1, 2]), torch.Size([1]), torch.Size([1, 2])], 0)
    """
    program = case.program
    if not program.state or not _is_plain(program):
        return case if not program.state else None
    places = {spec.slot: number for number, spec in enumerate(program.signature.inputs) if type(spec) is StateInput}
    wrote = [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    if not places.keys() >= set(wrote):
        return None
    signature = evolve(
        program.signature,
        inputs=tuple([_input(program, spec) for spec in program.signature.inputs]),
        outputs=tuple([_output(places, spec) for spec in program.signature.outputs]),
        in_spec=None,
        out_spec=None,
        arg_names=(),
    )
    made = program.evolve(signature=signature, state=State())
    return evolve(
        case_with_calls(made, [_leaves(program, leaves) for leaves in case.calls], seed=case.seed), tolerance=case.tolerance
    )


def _is_plain(program: Program) -> bool:
    slots = [slot for _, slot in program.state.pairs]
    tensors = all(isinstance(slot.value, torch.Tensor) and slot.kind is not SlotKind.MODULE for slot in slots)
    return tensors and len({slot.storage for slot in slots}) == len(slots) and len(program.graphs) >= 1


def _input(program: Program, spec: InputSpec) -> InputSpec:
    if type(spec) is not StateInput:
        return spec
    value = program.state[spec.slot].value
    return UserInput(TensorType(value.dtype, tuple(value.shape), str(device_of(value))), spec.slot)


def _output(places: dict[str, int], spec: OutputSpec) -> OutputSpec:
    return InputMutation(places[spec.slot]) if type(spec) is StateMutation else spec


def _leaves(program: Program, leaves: Sequence[Any]) -> list[Any]:
    rest = iter(leaves)
    specs = program.signature.inputs
    return [program.state[spec.slot].value.detach() if type(spec) is StateInput else next(rest) for spec in specs]
