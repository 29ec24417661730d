"""``pipeline_stage``: one stage as torch's own ``PipelineStage``.

One idea: torch is told beforehand what crosses, so it runs nothing to find out, and all ranks read it off the same program, so
they agree on what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...ir.errors import StageError
from .boundaries import boundaries
from .lower_stages import Stages

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.pipelining import PipelineStage

__all__ = ["pipeline_stage"]


def pipeline_stage(
    stages: Stages,
    index: int,
    *,
    device: torch.device | str | None = None,
    group: ProcessGroup | None = None,
    example: Sequence[torch.Tensor] | None = None,
) -> PipelineStage:
    """Return a stage for a schedule of ``torch.distributed.pipelining`` on this rank.

    What torch must know of the tensors that cross (dtype, shape, whether they need a gradient) is told from the program, so
    all ranks must have lowered the same one. Parameters may be frozen afterwards, but not the other way round: what was
    exported frozen and is trained now would get no gradient.

    Args:
        stages: what ``lower_stages`` returned, with this one made.
        index: the number of the stage.
        device: where the stage runs and its parameters are; by default the device of its first parameter or buffer, or
            the CPU.
        group: the process group of the pipeline, by default the whole world.
        example: what the first stage takes for one microbatch, the same on all ranks; needed where sizes are dynamic. One
            that requires a gradient says that the gradients of that input are wanted.

    Returns:
        The stage. ``schedule.step`` takes what ``stages.arguments`` gives on the first rank.

    Raises:
        StageError: the stage was not made, sizes are dynamic and there is no example, or a parameter was unfrozen.
        RuntimeError: there is no process group.

    >>> import torch.distributed as dist
    >>> from torch.distributed.pipelining import ScheduleGPipe
    >>> import purefx as px
    >>> program = px.sink_state(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))))
    >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> schedule = ScheduleGPipe(px.pipeline_stage(stages, 0), n_microbatches=2)
    >>> schedule.step(torch.ones(6, 2)).shape
    torch.Size([6, 1])
    >>> dist.destroy_process_group()
    """
    from torch.distributed.pipelining import PipelineStage

    module = stages[index]
    number = range(len(stages))[index]
    _check_frozen(stages, number, module)
    found = boundaries(stages.programs, stages.names, example)
    where = torch.device(device) if device is not None else _device(module)
    before, after = found[number], found[number + 1]
    return PipelineStage(module, number, len(stages), where, input_args=tuple(before), output_args=tuple(after), group=group)


def _device(module: torch.nn.Module) -> torch.device:
    for tensors in (module.parameters(), module.buffers()):
        for tensor in tensors:
            return tensor.device
    return torch.device("cpu")


def _check_frozen(stages: Stages, number: int, module: torch.nn.Module) -> None:
    state = stages.programs[number].state
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and name in state and not state[name].value.requires_grad:
            raise StageError(
                f"the parameter {name} of stage {number} was frozen when the program was exported and is trained now; other "
                "ranks can not know that, and would send no gradient for it: unfreeze it in the model, and export that"
            )
