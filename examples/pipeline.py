"""A language model as a pipeline of processes, beside eager.

    torchrun --nproc-per-node 2 -m examples.pipeline --models llama qwen3 gemma2

runs on ``torch.distributed.pipelining``, over gloo on CPUs and nccl where each process has a GPU; ``python -m examples.pipeline
--processes 2 3`` starts processes itself, first two, then three. The model is exported for one microbatch and
split by its modules; the outputs, losses and gradients of the ranks equal those of eager on the same microbatches.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from attrs import frozen
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

import purefx as px
from examples.zoo import Example, gemma2, llama, qwen3

MODELS: Mapping[str, Callable[[int], Example]] = {"llama": llama, "qwen3": qwen3, "gemma2": gemma2}

MICROBATCHES = 4

SCHEDULES: Mapping[str, Any] = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


@frozen
class Work:
    """A model, and its program split into as many parts as there are stages."""

    example: Example
    program: px.Program
    count: int

    @property
    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and labels of several microbatches, the same on all ranks."""
        drawn = [self.example.inputs(seed)[1]["input_ids"] for seed in range(2 * MICROBATCHES)]
        return torch.cat(drawn[:MICROBATCHES]), torch.cat(drawn[MICROBATCHES:])


def split(example: Example, layers: int, count: int) -> px.Program:
    """Return the program of a model, split into stages that take only what the one before gives.

    Args:
        example: a causal language model.
        layers: how many it has.
        count: of the stages.
    """
    program = px.transform(px.import_ep(example.export(example.build())))
    tags = [f"stage{number}" for number in range(count)]
    tag_of = {f"model.layers.{layer}": tags[layer * count // layers] for layer in range(layers)}
    tag_of |= {"model.embed_tokens": tags[0], "model.norm": tags[-1], "lm_head": tags[-1]}
    parts = px.split_by_tags(program, tags, tag_of=tag_of)
    return px.relay_skips(px.move_non_tensor_nodes(parts))


def works(models: Sequence[str], layers: int, count: int) -> list[Work]:
    """Return models with so many layers, each split into so many stages.

    Args:
        models: their names in ``MODELS``.
        layers: of each.
        count: of the stages.
    """
    examples = [MODELS[name](layers) for name in models]
    return [Work(example, split(example, layers, count), count) for example in examples]


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of one microbatch."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@frozen
class Eager:
    """What eager gives for the same microbatches, one after the other: the mean of the losses is what is trained."""

    logits: torch.Tensor
    losses: list[torch.Tensor]
    gradients: dict[str, torch.Tensor | None]


def eagerly(work: Work, device: torch.device) -> Eager:
    """Run the whole model."""
    model = work.example.build().to(device)
    tokens, labels = (part.to(device) for part in work.batch)
    logits: list[torch.Tensor] = []
    losses: list[torch.Tensor] = []
    for some, wanted in zip(tokens.chunk(MICROBATCHES), labels.chunk(MICROBATCHES), strict=True):
        logits.append(model(input_ids=some).logits)
        losses.append(loss_of(logits[-1], wanted))
        torch.autograd.backward(losses[-1])
    gradients = {
        name: None if parameter.grad is None else parameter.grad / MICROBATCHES
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    return Eager(torch.cat(logits).detach(), [loss.detach() for loss in losses], gradients)


def run(work: Work, device: torch.device) -> list[str]:
    """Run the stages of this rank under each schedule, and return lines about what differs from eager; "" for nothing.

    Args:
        work: what to run; the process group is there.
        device: of this rank.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    expected = eagerly(work, device)
    schedules = SCHEDULES if work.count == ranks else {"interleaved 1F1B": ScheduleInterleaved1F1B}
    lines: list[str] = []
    for name, kind in schedules.items():
        mine = range(rank, work.count, ranks)
        stages = px.lower_stages(work.program, device=device, only=mine, shared="copy")
        # Neighbours in one process cannot run forward only in torch 2.13: it wants gradients of the one for the other.
        found = forward(work, stages, mine, kind, expected, device) if ranks > 1 else []
        found += train(work, stages, mine, kind, expected, device)
        lines += [f"{work.example.name}, {name}, rank {rank}: {line}" for line in found]
    return lines


def scheduled(
    stages: px.Stages, mine: Sequence[int], kind: Any, device: torch.device, **options: Any
) -> Any:
    """Return a schedule over the stages of this rank."""
    made = [px.pipeline_stage(stages, index, device=device) for index in mine]
    return kind(made if kind is ScheduleInterleaved1F1B else made[0], MICROBATCHES, **options)


def forward(
    work: Work,
    stages: px.Stages,
    mine: Sequence[int],
    kind: Any,
    expected: Eager,
    device: torch.device,
) -> list[str]:
    """Run the pipeline without gradients, and say what differs."""
    schedule = scheduled(stages, mine, kind, device)
    given = stages.arguments(input_ids=work.batch[0].to(device)) if 0 in mine else ()
    with torch.no_grad():
        output = schedule.step(*given)
    if work.count - 1 not in mine:
        return []
    return told("forward", {"logits": (stages.result(output).logits, expected.logits)})


def train(
    work: Work,
    stages: px.Stages,
    mine: Sequence[int],
    kind: Any,
    expected: Eager,
    device: torch.device,
) -> list[str]:
    """Run forward and backward, and say what differs."""
    schedule = scheduled(stages, mine, kind, device, loss_fn=loss_of)
    tokens, labels = (part.to(device) for part in work.batch)
    given = stages.arguments(input_ids=tokens) if 0 in mine else ()
    losses: list[torch.Tensor] = []
    is_last = work.count - 1 in mine
    output = schedule.step(*given, target=labels if is_last else None, losses=losses)
    px.sum_tied_gradients(stages)
    pairs: dict[str, tuple[Any, Any]] = {}
    for index in mine:
        for name, parameter in stages[index].named_parameters():
            pairs[f"gradient of {name}"] = (parameter.grad, expected.gradients[name])
    if is_last:
        pairs |= {
            f"loss {number}": pair
            for number, pair in enumerate(zip(losses, expected.losses, strict=True))
        }
        pairs["logits"] = (stages.result(output).logits, expected.logits)
    tied = {f"gradient of {name}" for tie in stages.ties for _, name in tie.places}
    return told("training", pairs, about=tied)


def told(
    what: str, pairs: Mapping[str, tuple[Any, Any]], about: Sequence[str] | set[str] = ()
) -> list[str]:
    """Return a line about tensors and what they should be.

    On CPUs all must be equal to the last bit, because the same kernels run in the same order; except the sums that tied
    parameters get, which eager adds up in the order of the microbatches. On GPUs the order of some sums is not fixed.
    """
    wrong: list[str] = []
    exact = 0
    for name, (given, wanted) in pairs.items():
        if given is None or wanted is None:
            same = close = given is wanted
        else:
            same = torch.equal(given, wanted)
            close = (name in about or given.is_cuda) and torch.allclose(
                given, wanted, rtol=1e-4, atol=1e-6
            )
        exact += same
        if not same and not close:
            wrong.append(name)
    said = f"{exact} of {len(pairs)} equal to eager bit for bit" + (
        ", the others nearly" if exact < len(pairs) else ""
    )
    return [f"{what}: {'DIFFERENT: ' + ', '.join(wrong) if wrong else said}"]


def report(todo: Sequence[Work], device: torch.device) -> int:
    """Run everything on this rank, let the first say what all found, and return the exit status."""
    found: list[list[str]] = [[]] * dist.get_world_size()
    dist.all_gather_object(found, [line for work in todo for line in run(work, device)])
    lines = [line for rank in found for line in rank]
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes over {dist.get_backend()}", *lines, sep="\n  ")
    return int(any("DIFFERENT" in line for line in lines))


def on_rank(rank: int, ranks: int, todo: Sequence[Work], meeting: str) -> None:
    """Be one of the processes that ``start`` forks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(minutes=2),
    )
    status = report(todo, torch.device("cpu"))
    dist.destroy_process_group()
    sys.exit(status)


def start(ranks: int, todo: Sequence[Work]) -> int:
    """Fork processes that run on CPUs, and return the exit status; what this process exported they have."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        made = [
            fork.Process(target=on_rank, args=(rank, ranks, todo, f"{folder}/meeting"))
            for rank in range(ranks)
        ]
        for process in made:
            process.start()
        for process in made:
            process.join()
    return int(any(process.exitcode for process in made))


def main(given: Sequence[str] | None = None) -> int:
    """Run under torchrun, or start processes, and return the exit status.

    Args:
        given: the command line; None takes that of the process.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=["llama"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--stages", type=int, help="a multiple of the number of processes, which is the default"
    )
    parser.add_argument(
        "--processes", type=int, nargs="+", help="fork so many instead of running under torchrun"
    )
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    if options.processes:
        counts = [(ranks, options.stages or ranks) for ranks in options.processes]
        return max(
            start(ranks, works(options.models, options.layers, count)) for ranks, count in counts
        )
    if "WORLD_SIZE" not in os.environ:
        parser.error(
            "start it with torchrun --nproc-per-node 2 -m examples.pipeline, or give --processes 2"
        )
    ranks, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        timeout=timedelta(minutes=2),
        device_id=device if on_gpu else None,
    )
    status = report(works(options.models, options.layers, options.stages or ranks), device)
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
