"""Laws of ``to_device``: to the meta device and back is the program, and what is said there of each value is what it is.

The meta device is on every machine; contents do not come back from it, so the state of the program is put back.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve

from purefx.ir.program import Program
from purefx.ir.torch_private import FakeTensor, device_of
from purefx.ir.verify import verify
from purefx.laws.law import Case, Transform
from purefx.transforms.convert import to_device
from purefx.transforms.transformation import Transformation
from tests.laws.aimed import law
from tests.laws.inferred import described

__all__ = ["devices_back", "meta_says_what_it_computes", "to_meta_and_back"]


def _to_meta_and_back(program: Program) -> Program:
    if any(tensor.is_meta for tensor in _tensors(program)):
        return program
    moved = to_device.apply(program, "meta")
    result = to_device.apply(moved.evolve(state=program.state), {"meta": "cpu"})
    return program if result == program and described(result) == described(program) else result


def _tensors(program: Program) -> list[torch.Tensor]:
    return [slot.value for _, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)]


to_meta_and_back: Transformation = evolve(to_device, apply=_to_meta_and_back)
"""``to_device`` to the meta device and back, with the state that the program had."""


def _moves(transform: Transform, case: Case) -> bool:
    return to_device(case.program, "meta") is not case.program


@law("on the meta device everything is there, and every value is what is said of it", acts=_moves)
def meta_says_what_it_computes(transform: Transform, case: Case) -> list[str]:
    """Say what is not on the meta device, and what is not what is said of it."""
    program = transform(case.program)
    if verify(program, infer=True):
        return []  # it says something wrong already
    moved = to_device(program, "meta")
    found = [f"a tensor of the state is on {tensor.device}" for tensor in _tensors(moved) if not tensor.is_meta]
    found += [f"a value is on {device_of(value)}" for value in _values(moved) if device_of(value).type != "meta"]
    return [*found, *(str(violation) for violation in verify(moved, infer=True))]


def _values(program: Program) -> list[Any]:
    metas = [meta for name in program.order for meta in program.graphs[name].metas.values()]
    return [meta["val"] for meta in metas if isinstance(meta.get("val"), FakeTensor)]


@law("back from the meta device everything is where it was", acts=_moves)
def devices_back(transform: Transform, case: Case) -> list[str]:
    """Say what is not as it was."""
    program = transform(case.program)
    moved = to_device(program, "meta")
    if moved is program:
        return []
    back = to_device(moved.evolve(state=program.state), {"meta": "cpu"})
    found = [] if back == program else ["another program came back"]
    before, after = described(program), described(back)
    return [*found, *(f"{place} was {before[place]} and is {after[place]}" for place in before if before[place] != after[place])]
