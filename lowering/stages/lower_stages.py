"""``lower_stages`` and ``pipeline_stage``: convert the parts of a split program to modules that run as pipeline stages.

``sum_tied_gradients`` gives copies of one parameter the gradient of the original.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
import torch.distributed as dist
from attrs import evolve, field, frozen

from ...ir.arguments import Arg, Ref
from ...ir.calls.parts import chain_of
from ...ir.errors import ArgumentError, InputError, StageError
from ...ir.program import Program
from ...ir.state_changes import copy_value
from ...ir.validation import Kind, a_program
from ...ir.verify import check
from ...transforms import regions_to_bodies
from ..calls.arguments import CallPlan
from ..lower import lower
from .plan import StagePlan, boundaries, check_stages, shared_cells, stage_program

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.pipelining import PipelineStage


@frozen
class Tie:
    """A parameter of the original with copies in several stages.

    >>> Tie(((0, "embed.weight"), (2, "head.weight"))).places[1]
    (2, 'head.weight')
    """

    places: tuple[tuple[int, str], ...]
    """For each stage with a copy, the number of the stage and the first name of the parameter there."""


@frozen(eq=False)
class Stages(Sequence[torch.nn.Module]):
    """The stages of a program in order, a sequence of modules; only the requested ones are made.

    >>> import purefx as px
    >>> program = px.sink_state(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))))
    >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
    >>> len(stages), stages.names, stages[0](torch.zeros(3, 2)).shape
    (1, ('a',), torch.Size([3, 1]))

    Args:
        names: the names of the parts.
        programs: the programs of the stages.
        modules: the requested stages; None for the others.
        ties: the parameters with copies in several stages.
    """

    names: tuple[str, ...]
    programs: tuple[Program, ...] = field(repr=False)
    modules: tuple[torch.nn.Module | None, ...] = field(repr=False)
    ties: tuple[Tie, ...] = ()
    whole: CallPlan = field(repr=False, kw_only=True)
    """The call plan of the original."""
    taken: tuple[int, ...] = field(repr=False, kw_only=True)
    """The numbers of the leaves of a call that the first stage accepts."""
    results: tuple[Arg, ...] = field(repr=False, kw_only=True)
    """The results of the original: references to results of the last stage, in order, and literals."""

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> torch.nn.Module: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.nn.Module, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.nn.Module | tuple[torch.nn.Module, ...]:
        if isinstance(index, slice):
            return tuple([self[at] for at in range(*index.indices(len(self)))])
        module = self.modules[index]
        if module is None:
            raise StageError(
                f"stage {index} ({self.names[index]}) was not made: include it in only= of lower_stages"
            )
        return module

    def __iter__(self) -> Iterator[torch.nn.Module]:
        return iter([self[at] for at in range(len(self))])

    def arguments(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Return the inputs of the first stage: the tensors among arguments of the original ``forward``.

        Sizes are not checked, because schedules accept whole batches and stages one microbatch.

        Raises:
            InputError: too many, too few, unknown or differently nested arguments.

        >>> import purefx as px
        >>> half = lambda x: torch.ops.aten.mul.Scalar(x, 0.5)
        >>> model = torch.nn.Sequential(torch.nn.ReLU())
        >>> program = px.sink_state(px.import_ep(torch.export.export(model, (torch.ones(2),))))
        >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
        >>> stages.arguments(input=torch.zeros(4))
        (tensor([0., 0., 0., 0.]),)
        """
        leaves = self.whole.bound(args, kwargs)
        return tuple([leaves[index] for index in self.taken])

    def result(self, output: Any) -> Any:
        """Convert the result of the last stage to the result of the original: nested, with its constants.

        Args:
            output: a tensor, or several, as ``schedule.step`` returns them on the last rank.

        Raises:
            InputError: the number of tensors is wrong.
        """
        tensors = [output] if isinstance(output, torch.Tensor) else list(output)
        wanted = sum(type(arg) is Ref for arg in self.results)
        if len(tensors) != wanted:
            raise InputError(f"the last stage returns {wanted} tensors, not {len(tensors)}")
        rest = iter(tensors)
        return self.whole.result([next(rest) if type(arg) is Ref else arg for arg in self.results])


def lower_stages(
    program: Program,
    *,
    to: Literal["graph_module", "interpreter"] = "graph_module",
    device: torch.device | str | None = None,
    state: Literal["copy", "share"] = "copy",
    shared: Literal["error", "copy"] = "error",
    only: Collection[int] | None = None,
) -> Stages:
    """Lower each part of a split program to a module that ``torch.distributed.pipelining`` can run.

    A stage accepts the tensors that the previous stage returns, by position and in that order, and has exactly the
    parameters and buffers of its part, under their original names. The first stage accepts the tensors among the
    arguments of the original; the last returns a tensor or a tuple of tensors.

    Args:
        program: a split program in which no value skips a part and no number crosses: see ``relay_skips`` and
            ``move_non_tensor_nodes``. Its sizes are those of one microbatch, unless they are dynamic.
        to: the kind of modules, see ``lower``.
        device: the device of the stages; None changes nothing.
        state: ``"copy"`` copies the tensors of the program, ``"share"`` shares them with the modules.
        shared: how to treat parameters that several parts use (tied embeddings): ``"error"``, or ``"copy"`` for a copy in
            each, whose gradients must be added up after every step, see ``sum_tied_gradients``. State that is neither trained nor
            written is always copied.
        only: the numbers of the stages to make, usually one per rank; None makes all.

    Returns:
        The stages, a sequence of modules.

    Raises:
        StageError: torch cannot run the parts as stages; all reasons are listed.
        UnsupportedProgram: the program is not split, or an operator has no callable.
        InvalidProgram: the program breaks invariants.
        ArgumentError: an option has an invalid value.

    >>> import purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> program = px.sink_state(px.import_ep(torch.export.export(model, (torch.ones(4, 2),))))
    >>> split = px.split_by_module(program, {"0": "stage0", "1": "stage1"})
    >>> [list(stage.state_dict()) for stage in px.lower_stages(split)]
    [['0.weight', '0.bias'], ['1.weight', '1.bias']]
    """
    a_program(program, "lower_stages")
    if shared not in ("error", "copy"):
        raise ArgumentError(f'shared={shared!r}: pass "error" or "copy"')
    plan = StagePlan(check(program), chain_of(program, asked_by="lower_stages"))
    count = len(plan.chain.parts)
    wanted = range(count) if only is None else sorted(set(only))
    if any(type(index) is not int or not 0 <= index < count for index in wanted):
        raise ArgumentError(f"only={only!r}: pass numbers of stages, 0 to {count - 1}")
    check_stages(plan, shared=shared)
    programs = tuple([stage_program(plan, number) for number in range(count)])
    ties = _ties(plan, programs)
    if state == "share":
        programs = _untied(programs, ties, wanted)
    # Markers set the mode with which the program was traced; bodies restore that of the caller, such as torch.no_grad().
    runs = {number: regions_to_bodies(programs[number]) for number in wanted}
    made = {
        number: lower(program, to=to, device=device, state=state)
        for number, program in runs.items()
    }
    users = enumerate(program.user_inputs)
    return Stages(
        tuple([part.path for part in plan.chain.parts]),
        programs,
        tuple([made.get(number) for number in range(count)]),
        ties,
        whole=CallPlan(program),
        taken=tuple([index for index, (formal, _) in users if formal.name in set(plan.inputs)]),
        results=plan.outputs,
    )


def _ties(plan: StagePlan, programs: Sequence[Program]) -> tuple[Tie, ...]:
    found: list[Tie] = []
    for cell in shared_cells(plan):
        names = [
            (number, program.state.by_cell.get(cell)) for number, program in enumerate(programs)
        ]
        found.append(Tie(tuple([(number, of[0]) for number, of in names if of is not None])))
    return tuple(found)


def _untied(
    programs: tuple[Program, ...], ties: Sequence[Tie], wanted: Collection[int]
) -> tuple[Program, ...]:
    # Even with shared state: the gradient of one tensor in two stages of a process would be scaled twice.
    found = list(programs)
    for tie in ties:
        for number, name in [place for place in tie.places[1:] if place[0] in wanted]:
            state = found[number].state
            value, cell = state[name].value, state[name].cell
            copy = copy_value(name, value, {})
            slots = {other: evolve(state[other], value=copy) for other in state.by_cell[cell]}
            found[number] = found[number].evolve(
                state=evolve(state, slots=state.slots.update(slots))
            )
    return tuple(found)


STAGES = Kind(
    Stages,
    "the stages that px.lower_stages makes",
    {Program: "px.lower_stages(program) makes them of a split one"},
)


def sum_tied_gradients(
    stages: Stages,
    *,
    ranks: Mapping[int, int] | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Add up the gradients of the copies that ``lower_stages(..., shared="copy")`` made, on all ranks.

    Call it on every rank with a copy, between ``schedule.step`` and ``optimizer.step``. A norm of all gradients must count
    a copy once.

    Args:
        stages: the stages, with those of this rank made.
        ranks: the rank of each stage in the group; by default stage ``i`` is on rank ``i % n`` of ``n``, as for the
            schedules GPipe, 1F1B and interleaved 1F1B.
        group: the process group of the pipeline, by default the whole world.

    Raises:
        StageError: a stage of this rank was not made.

    >>> import purefx as px
    >>> program = px.sink_state(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))))
    >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
    >>> px.sum_tied_gradients(stages, ranks={0: 0})  # nothing is tied
    """
    STAGES.check(stages, "sum_tied_gradients")
    if not stages.ties:
        return
    mine, count = dist.get_rank(group), dist.get_world_size(group)
    places = (
        ranks if ranks is not None else {number: number % count for number in range(len(stages))}
    )
    for tie in stages.ties:
        _sum(stages, tie, {number: places[number] for number, _ in tie.places}, mine, group)


def _sum(
    stages: Stages, tie: Tie, ranks: Mapping[int, int], mine: int, group: dist.ProcessGroup | None
) -> None:
    local = {
        number: stages[number].get_parameter(name)
        for number, name in tie.places
        if ranks[number] == mine
    }
    if not local:
        return
    copies = list({id(parameter): parameter for parameter in local.values()}.values())
    shares = {
        mine: _total(
            [copy.grad if copy.grad is not None else torch.zeros_like(copy) for copy in copies]
        )
    }
    operations: list[dist.P2POp] = []
    for rank in dict.fromkeys(ranks.values()):
        if rank == mine:
            continue
        shares[rank] = torch.empty_like(shares[mine])
        operations.append(dist.P2POp(dist.isend, shares[mine], group=group, group_peer=rank))
        operations.append(dist.P2POp(dist.irecv, shares[rank], group=group, group_peer=rank))
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
    total = _total([shares[rank] for rank in sorted(shares)])
    for copy in copies:
        copy.grad = total.clone()


def _total(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone(memory_format=torch.contiguous_format)
    for part in parts[1:]:
        total += part
    return total


def pipeline_stage(
    stages: Stages,
    index: int,
    *,
    device: torch.device | str | None = None,
    group: ProcessGroup | None = None,
    example: Sequence[torch.Tensor] | None = None,
) -> PipelineStage:
    """Return a stage for a schedule of ``torch.distributed.pipelining`` on this rank.

    The metadata of boundary tensors (dtype, shape, whether they need a gradient) is derived from the program, so all ranks must
    have lowered the same one. You may freeze parameters afterwards, but not unfreeze them: a parameter that was exported frozen
    would get no gradient.

    Args:
        stages: the result of ``lower_stages``, with this stage made.
        index: the number of the stage.
        device: the device of the stage and its parameters; by default the device of its first parameter or buffer, or
            the CPU.
        group: the process group of the pipeline, by default the whole world.
        example: the inputs of the first stage for one microbatch, the same on all ranks; required if sizes are dynamic. A
            tensor that requires a gradient requests the gradient of that input.

    Returns:
        The stage. On the first rank, pass ``stages.arguments(...)`` to ``schedule.step``.

    Raises:
        StageError: the stage was not made, sizes are dynamic without an example, or a parameter was unfrozen.
        RuntimeError: the process group is not initialized.

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

    module = STAGES.check(stages, "pipeline_stage")[index]
    number = range(len(stages))[index]
    _check_frozen(stages, number, module)
    found = boundaries(stages.programs, stages.names, example)
    where = torch.device(device) if device is not None else device_of_stage(module)
    before, after = found[number], found[number + 1]
    return PipelineStage(
        module,
        number,
        len(stages),
        where,
        input_args=tuple(before),
        output_args=tuple(after),
        group=group,
    )


def device_of_stage(module: torch.nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer of a stage; the CPU if it has none.

    >>> device_of_stage(torch.nn.ReLU())
    device(type='cpu')
    """
    tensor = next(chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def _check_frozen(stages: Stages, number: int, module: torch.nn.Module) -> None:
    state = stages.programs[number].state
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and name in state and not state[name].value.requires_grad:
            raise StageError(
                f"the parameter {name} of stage {number} was frozen when the program was exported, but now requires a gradient, "
                "which other ranks cannot know: unfreeze it in the model before the export"
            )
