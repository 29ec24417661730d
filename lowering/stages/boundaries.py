"""``boundaries``: dtype, shape and ``requires_grad`` of everything that crosses, found without running a kernel.

One idea: the stages run once on fake tensors, one after the other, so what torch is told is what they will give.  Torch itself
would find out by running each stage on uninitialised memory, which writes buffers and ends where indices are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import evolve

from ...ir.errors import StageError
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import TensorType, UserInput
from ...ir.state import Slot
from ...ir.torch_private import FakeTensorMode
from ..lower import lower_unchecked

__all__ = ["boundaries"]


def boundaries(
    programs: Sequence[Program], names: Sequence[str], example: Sequence[torch.Tensor] | None
) -> list[list[torch.Tensor]]:
    """Return tensors on the meta device like those that cross: into the first stage, between the stages, out of the last.

    Args:
        programs: of the stages.
        names: of the stages.
        example: one microbatch; None where all sizes are known.

    Raises:
        StageError: sizes are dynamic and there is no example, or they depend on the data.
    """
    kinds = _kinds(programs[0], example)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.enable_grad():
        values = [torch.empty(shape, dtype=dtype, device=where, requires_grad=needs) for shape, dtype, where, needs in kinds]
        found = [[_like(value) for value in values]]
        for program, name in zip(programs, names, strict=True):
            stage = lower_unchecked(_fake(program, mode), "graph_module")
            try:
                results = stage(*values)
            except StageError:
                raise
            except Exception as error:
                raise StageError(f"the sizes that {name} gives can not be known before it runs: {error}") from error
            values = [results] if isinstance(results, torch.Tensor) else list(results)
            found.append([_like(value) for value in values])
            values = [_received(value) for value in values]
    return found


def _kinds(program: Program, example: Sequence[torch.Tensor] | None) -> list[tuple[list[int], torch.dtype, str, bool]]:
    # On the device of the program, wherever the stages are.
    specs = [spec for spec in program.signature.inputs if type(spec) is UserInput]
    if example is not None and len(example) != len(specs):
        raise StageError(f"example= has {len(example)} tensors, and the first stage takes {len(specs)}")
    found: list[tuple[list[int], torch.dtype, str, bool]] = []
    for index, spec in enumerate(specs):
        assert type(spec.type) is TensorType, "stages were refused otherwise"
        given = None if example is None else example[index]
        sizes = [size for size in (spec.type.shape if given is None else given.shape) if isinstance(size, int)]
        if len(sizes) < len(spec.type.shape):
            raise StageError(
                f"the sizes of {spec.argument} are dynamic, and the stages of a pipeline need fixed ones: give example=, the "
                "arguments of the first stage for one microbatch"
            )
        found.append((sizes, spec.type.dtype, spec.type.device, given is not None and given.requires_grad))
    return found


def _fake(program: Program, mode: FakeTensorMode) -> Program:
    # One fake tensor for each cell, so ties stay ties.
    state = program.state
    cells = {slot.cell: slot.value for _, slot in state.pairs}
    fakes = {cell: _fake_value(value, mode) for cell, value in cells.items()}
    slots = {name: Slot(slot.kind, fakes[slot.cell], slot.cell, slot.storage, slot.persistent) for name, slot in state.pairs}
    return program.evolve(state=evolve(state, slots=pmap(slots)))


def _fake_value(value: object, mode: FakeTensorMode) -> object:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def _like(value: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return made.requires_grad_(value.requires_grad)


def _received(value: torch.Tensor) -> torch.Tensor:
    # The next stage gets a leaf.
    return value.detach().requires_grad_(value.requires_grad)
