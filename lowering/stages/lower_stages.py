"""``lower_stages``: the parts of a split program become modules that run as stages of a pipeline.

One idea: all that can be wrong is found before anything is made; then each part is a program of its own and is lowered like any
other.  Nothing here knows processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, overload

import torch
from attrs import evolve, field, frozen

from ...ir.arguments import Arg, Ref
from ...ir.chain import chain_of
from ...ir.errors import InputError, StageError
from ...ir.program import Program
from ...ir.signature import UserInput
from ...ir.verify import check
from ..arguments import CallPlan
from ..lower import lower
from .cutting import stage_program
from .plan import StagePlan
from .refusals import check_stages, shared_cells

__all__ = ["Stages", "Tie", "lower_stages"]


@frozen
class Tie:
    """A parameter of the original that several stages have a copy of.

    >>> Tie(((0, "embed.weight"), (2, "head.weight"))).places[1]
    (2, 'head.weight')
    """

    places: tuple[tuple[int, str], ...]
    """For each stage that has it its number and the name there, the first if it has several."""


@frozen(eq=False)
class Stages(Sequence[torch.nn.Module]):
    """The stages of a program, in order: a sequence of modules, of which those that were not asked for are not made.

    >>> import purefx as px
    >>> program = px.sink_state(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))))
    >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
    >>> len(stages), stages.names, stages[0](torch.zeros(3, 2)).shape
    (1, ('a',), torch.Size([3, 1]))

    Args:
        names: of the parts.
        programs: what each stage does.
        modules: the stages that were made; None for the others.
        ties: the parameters that were copied into several stages.
    """

    names: tuple[str, ...]
    programs: tuple[Program, ...] = field(repr=False)
    modules: tuple[torch.nn.Module | None, ...] = field(repr=False)
    ties: tuple[Tie, ...] = ()
    whole: CallPlan = field(repr=False, kw_only=True)
    """How the original is called."""
    taken: tuple[int, ...] = field(repr=False, kw_only=True)
    """The leaves of a call that the first stage takes, by number."""
    results: tuple[Arg, ...] = field(repr=False, kw_only=True)
    """What the original gives back: references to what the last stage gives, in order, and literals."""

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
            raise StageError(f"stage {index} ({self.names[index]}) was not made: give lower_stages another only={{...}}")
        return module

    def __iter__(self) -> Iterator[torch.nn.Module]:
        return iter([self[at] for at in range(len(self))])

    def arguments(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Return what the first stage takes, from the arguments of the original ``forward``: the tensors among them.

        Sizes are not looked at, because a schedule is given whole batches and each stage one microbatch.

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
        """Return what the original gives back, from what the last stage gave: nested as it was, with its constants.

        Args:
            output: a tensor, or several, as ``schedule.step`` returns them on the last rank.

        Raises:
            InputError: there are more or fewer tensors than the last stage gives.
        """
        tensors = [output] if isinstance(output, torch.Tensor) else list(output)
        wanted = sum(type(arg) is Ref for arg in self.results)
        if len(tensors) != wanted:
            raise InputError(f"the last stage gives {wanted} tensors, not {len(tensors)}")
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

    A stage takes tensors by position, exactly those that the stage before it gives, in that order, and has exactly the
    parameters and buffers of its part, under the names that the original gave them. The first takes the tensors among the
    arguments of the original; the last gives a tensor or a tuple of them.

    Args:
        program: a split program in which no value skips a part and no number crosses: see ``relay_skips`` and
            ``move_non_tensor_nodes``. Its sizes are those of one microbatch, unless they are dynamic.
        to: what the modules are, see ``lower``.
        device: where the stages that are made go; None changes nothing.
        state: ``"copy"`` gives the modules tensors of their own, ``"share"`` those of the program.
        shared: what shall be with parameters that several parts use (tied embeddings): ``"error"``, or ``"copy"`` for one in
            each, whose gradients must be added up after every step, see ``sum_tied_gradients``. What nobody trains or writes
            is always copied.
        only: the numbers of the stages to make, usually one on each rank; None makes all.

    Returns:
        The stages, a sequence of modules.

    Raises:
        StageError: torch can not run the parts as stages; all reasons are listed, and nothing was made.
        UnsupportedProgram: the program is not split, or an operator has no callable behind it.
        InvalidProgram: the program breaks invariants.
        ValueError: an option is none of those above.

    >>> import purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> program = px.sink_state(px.import_ep(torch.export.export(model, (torch.ones(4, 2),))))
    >>> split = px.split_by_module(program, {"0": "stage0", "1": "stage1"})
    >>> [list(stage.state_dict()) for stage in px.lower_stages(split)]
    [['0.weight', '0.bias'], ['1.weight', '1.bias']]
    """
    if not isinstance(program, Program):
        raise TypeError(f"lower_stages takes a purefx Program, not a {type(program).__name__}; start with import_ep(ep)")
    if shared not in ("error", "copy"):
        raise ValueError(f'shared={shared!r}: it is "error" or "copy"')
    plan = StagePlan(check(program), chain_of(program, asked_by="lower_stages"))
    count = len(plan.chain.parts)
    wanted = range(count) if only is None else sorted(set(only))
    if any(type(index) is not int or not 0 <= index < count for index in wanted):
        raise ValueError(f"only={only!r}: the stages are numbered 0 to {count - 1}")
    check_stages(plan, shared=shared)
    programs = tuple([stage_program(plan, number) for number in range(count)])
    ties = _ties(plan, programs)
    if state == "share":
        programs = _untied(programs, ties, wanted)
    made = {number: lower(programs[number], to=to, device=device, state=state) for number in wanted}
    users = [
        formal for formal, spec in zip(program.main.inputs, program.signature.inputs, strict=True) if type(spec) is UserInput
    ]
    return Stages(
        tuple([part.path for part in plan.chain.parts]),
        programs,
        tuple([made.get(number) for number in range(count)]),
        ties,
        whole=CallPlan(program),
        taken=tuple([index for index, formal in enumerate(users) if formal.name in set(plan.inputs)]),
        results=plan.outputs,
    )


def _ties(plan: StagePlan, programs: Sequence[Program]) -> tuple[Tie, ...]:
    found: list[Tie] = []
    for cell in shared_cells(plan):
        names = [(number, program.state.by_cell.get(cell)) for number, program in enumerate(programs)]
        found.append(Tie(tuple([(number, of[0]) for number, of in names if of is not None])))
    return tuple(found)


def _untied(programs: tuple[Program, ...], ties: Sequence[Tie], wanted: Collection[int]) -> tuple[Program, ...]:
    # Even where state is shared: one tensor in two stages of a process would have its gradient scaled twice.
    found = list(programs)
    for tie in ties:
        for number, name in [place for place in tie.places[1:] if place[0] in wanted]:
            state = found[number].state
            value, cell = state[name].value, state[name].cell
            copy = torch.nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
            slots = {other: evolve(state[other], value=copy) for other in state.by_cell[cell]}
            found[number] = found[number].evolve(state=evolve(state, slots=state.slots.update(slots)))
    return tuple(found)
