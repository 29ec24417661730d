"""What tests of ``to_ep`` share: saving and loading, flattening, comparing with eager."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Sequence

import torch
from torch.export import ExportedProgram

import purefx as px
from purefx.laws import behaviour_differences


def flattened(program: px.Program) -> px.Program:
    """Return what ``to_ep`` makes of a program before torch sees it."""
    return px.functionalize(px.lift_state(px.inline(program)))


def loaded(ep: ExportedProgram) -> ExportedProgram:
    """Save an exported program and load it."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        torch.export.save(ep, file)
        file.seek(0)
        return torch.export.load(file)


def differences(
    ep: ExportedProgram, eager: torch.nn.Module, calls: Sequence[tuple[torch.Tensor, ...]]
) -> list[str]:
    """Return how ``ep.module()`` and a copy of eager differ: outputs, arguments and state, bit by bit."""
    return behaviour_differences(ep.module(), copy.deepcopy(eager), [(call, {}) for call in calls])


def stages(program: px.Program) -> list[px.Program]:
    """Return a flat program and what each step of the default pipeline makes of it."""
    found = [program]
    for step in px.DEFAULT:
        found.append(step(found[-1]))
    return found
