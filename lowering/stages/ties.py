"""``sum_tied_gradients``: copies of one parameter get the gradient that the one would have.

One idea: the gradient of a tied parameter is the sum over all its uses; each stage has some of them.  Ranks send their share
to each other and add all up in the same order, so the copies stay equal bit by bit as long as each is updated alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from .lower_stages import Stages, Tie

__all__ = ["sum_tied_gradients"]


def sum_tied_gradients(stages: Stages, *, ranks: Mapping[int, int] | None = None, group: dist.ProcessGroup | None = None) -> None:
    """Add up the gradients of the copies that ``lower_stages(..., shared="copy")`` made, on all ranks.

    Every rank that has a copy calls it after ``schedule.step`` and before the optimizer's. A norm of all gradients must count
    a copy once.

    Args:
        stages: with the stages of this rank made, and those of other ranks not, or made and not used.
        ranks: for each stage its rank in the group; by default stage ``i`` of ``n`` ranks is on rank ``i % n``, as for the
            schedules GPipe, 1F1B and interleaved 1F1B.
        group: the process group of the pipeline, by default the whole world.

    Raises:
        StageError: a stage of this rank was not made.

    >>> import purefx as px
    >>> program = px.sink_state(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))))
    >>> stages = px.lower_stages(px.split_by_tags(program, ("a",), tag_of=lambda node: "a"))
    >>> px.sum_tied_gradients(stages, ranks={0: 0})  # nothing is tied
    """
    if not stages.ties:
        return
    mine, count = dist.get_rank(group), dist.get_world_size(group)
    places = ranks if ranks is not None else {number: number % count for number in range(len(stages))}
    for tie in stages.ties:
        _sum(stages, tie, {number: places[number] for number, _ in tie.places}, mine, group)


def _sum(stages: Stages, tie: Tie, ranks: Mapping[int, int], mine: int, group: dist.ProcessGroup | None) -> None:
    local = {number: stages[number].get_parameter(name) for number, name in tie.places if ranks[number] == mine}
    if not local:
        return
    copies = list({id(parameter): parameter for parameter in local.values()}.values())
    shares = {mine: _total([copy.grad if copy.grad is not None else torch.zeros_like(copy) for copy in copies])}
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
