"""``training_stages``: stages of a pipeline whose backward is a program of their own, in two parts.

A schedule without bubbles sends the gradients of arguments on as soon as they are there, and fills gaps with the gradients of
parameters.  Torch takes the graph of autograd apart for that at every step; here both parts are programs, split once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import evolve

from purefx._joint import capture_joint
from purefx.ir.program import Program
from purefx.ir.taking import Kind
from purefx.lowering.stages import Stages
from purefx.lowering.stages.lower_stages import device_of_stage
from purefx.lowering.stages.plan import boundaries
from purefx.lowering.training import TrainingModule, training_module
from purefx.transforms.training import Policy

__all__ = ["training_stages"]

STAGES = Kind(Stages, "the stages that px.lower_stages makes", {Program: "px.lower_stages(program) makes them of a split one"})


def training_stages(stages: Stages, *, policy: Policy | None = None, example: Sequence[torch.Tensor] | None = None) -> Stages:
    """Return stages that train by backward programs, each split into gradients of arguments and gradients of parameters.

    Each module is captured with its backward, on the metadata of its boundaries, and shares its parameters and buffers with the
    one that it was made of. ``pipeline_stage`` and everything else take these stages as any; under schedules that split the
    backward (``ScheduleInterleavedZeroBubble``, ``ScheduleZBVZeroBubble``) the two programs are what runs.

    Args:
        stages: what ``lower_stages`` returned; those that were not made stay so, and those in which nothing needs a gradient stay
            as they are.
        policy: which values of the forward are kept for the backward, see ``partition_joint``; by default all.
        example: what the first stage takes for one microbatch, see ``pipeline_stage``.

    Returns:
        The stages.

    Raises:
        StageError: sizes are dynamic and there is no example.
        CaptureError: a stage cannot be captured with its backward.

    >>> import purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> program = px.sink_state(px.import_ep(torch.export.export(model, (torch.ones(4, 2),))))
    >>> stages = px.lower_stages(px.split_by_module(program, {"0": "stage0", "1": "stage1"}))
    >>> trained = training_stages(stages)
    >>> torch.autograd.backward(trained[0](torch.ones(4, 2)), torch.ones(4, 3))
    >>> trained[0].rest_of_backward()()
    >>> stages[0].get_parameter("0.bias").grad
    tensor([4., 4., 4.])
    """
    STAGES.taken(stages, "training_stages")
    found = boundaries(stages.programs, stages.names, example)
    made: list[torch.nn.Module | None] = []
    for module, before, after in zip(stages.modules, found, found[1:], strict=False):
        differentiable = any(value.requires_grad for value in after)
        made.append(_trained(module, before, policy) if module is not None and differentiable else module)
    return evolve(stages, modules=tuple(made))


def _trained(module: torch.nn.Module, takes: Sequence[torch.Tensor], policy: Policy | None) -> TrainingModule:
    device = device_of_stage(module)
    joint = capture_joint(module, tuple([_like(value, device) for value in takes]))
    return training_module(joint, policy=policy, state="share", split_backward=True)


def _like(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    # Nothing looks at what is in it.
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return made.requires_grad_(value.requires_grad)
