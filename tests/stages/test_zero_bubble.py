"""Stages on schedules that split the backward: processes over gloo get what eager gets.

The processes are forked by one that is started here; each says what of its stages differs from eager, to the last bit.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from torch.distributed.pipelining import schedules

import purefx as px

ROOT = Path(__file__).parents[2]
MICROBATCHES = 6  # what all schedules take for two and for three processes

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no collectives")


class Layer(torch.nn.Module):
    """A layer with a frozen scale, a counter that it writes, and a mask that crosses all boundaries."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(6), torch.nn.Linear(6, 8), torch.nn.Linear(8, 6)
        self.scale = torch.nn.Parameter(torch.full((6,), 0.5), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.scale * self.down(self.up(self.norm(x)).relu()).where(mask, x)


class Model(torch.nn.Module):
    """Layers behind an embedding; what it takes needs no gradient."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, 6)
        self.layers = torch.nn.ModuleList([Layer() for _ in range(layers)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        mask = x > 0
        for layer in self.layers:
            x = layer(x, mask)
        return x


def built(layers: int) -> Model:
    """Return a model, the same each time."""
    torch.manual_seed(0)
    return Model(layers)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of one microbatch."""
    return (output - target).pow(2).mean()


@frozen
class Work:
    """A model in as many parts as there are stages, and a batch for it."""

    program: px.Program
    count: int
    ids: torch.Tensor
    target: torch.Tensor


def work(count: int) -> Work:
    """Return a model with a layer for each stage."""
    ids = torch.randint(10, (2 * MICROBATCHES, 3))
    ep = torch.export.export(built(count), (ids[:2],))
    tags = {f"layers.{number}": f"stage{number}" for number in range(count)}
    parts = px.split_by_module(px.transform(px.import_ep(ep)), {"embed": "stage0", **tags})
    program = px.relay_skips(px.move_non_tensor_nodes(parts))
    return Work(program, count, ids, torch.randn(2 * MICROBATCHES, 3, 6))


def eagerly(work: Work) -> tuple[Model, list[torch.Tensor]]:
    """Return the model after one step over all microbatches, and the loss of each."""
    model, losses = built(work.count), list[torch.Tensor]()
    for ids, target in zip(work.ids.chunk(MICROBATCHES), work.target.chunk(MICROBATCHES), strict=True):
        losses.append(loss_of(model(ids), target))
        torch.autograd.backward(losses[-1])
    return model, [loss.detach() for loss in losses]


def differences(work: Work, name: str, rank: int, ranks: int) -> list[str]:
    """Run the stages of this process under a schedule, and return what differs from eager."""
    mine = [rank, work.count - 1 - rank] if name in V_SHAPED else [*range(rank, work.count, ranks)]
    stages = px.lower_stages(work.program, only=mine)
    kind: Any = getattr(schedules, name)
    schedule = kind([px.pipeline_stage(stages, index) for index in mine], MICROBATCHES, loss_fn=loss_of)
    losses: list[torch.Tensor] = []
    is_last = work.count - 1 in mine
    given = stages.arguments(work.ids) if 0 in mine else ()
    schedule.step(*given, target=work.target if is_last else None, losses=losses)
    model, wanted = eagerly(work)
    found = [f"loss {number}" for number, pair in enumerate(zip(losses, wanted, strict=is_last)) if not torch.equal(*pair)]
    state = model.state_dict(keep_vars=True)
    for index in mine:
        for slot, value in stages[index].state_dict(keep_vars=True).items():
            theirs = state[slot].grad
            expected = None if theirs is None else theirs / MICROBATCHES
            same = value.grad is None if expected is None else value.grad is not None and torch.equal(value.grad, expected)
            found += [] if same and torch.equal(value.detach(), state[slot].detach()) else [slot]
    return found


V_SHAPED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
"""The schedules in which a process has a stage of the first half and its mirror image."""


def on_rank(rank: int, ranks: int, todo: Sequence[tuple[str, Work]], meeting: str) -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    talk = torch.distributed
    talk.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=timedelta(minutes=1))
    for name, one in todo:
        sys.stdout.write(f"{name} {ranks} {rank} {differences(one, name, rank, ranks)}\n")
        sys.stdout.flush()
    talk.destroy_process_group()


def start(ranks: int, names: Sequence[str]) -> None:
    """Fork processes and wait for them."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    todo = [(name, work(2 * ranks)) for name in names]
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        made = [fork.Process(target=on_rank, args=(rank, ranks, todo, f"{folder}/meeting")) for rank in range(ranks)]
        for process in made:
            process.start()
        for process in made:
            process.join()


SPLIT = ("ScheduleZBVZeroBubble", "ScheduleInterleavedZeroBubble")
WHOLE = ("ScheduleInterleaved1F1B",)


RUNS = ((2, (*SPLIT, *WHOLE)), (3, SPLIT[:1]))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [RUNS, pytest.param([(3, SPLIT[1:])], marks=pytest.mark.deep)], ids=["some", "the others"])
def test_processes_train_as_eager(runs: Sequence[tuple[int, tuple[str, ...]]]) -> None:
    """Losses, gradients and the buffers that the stages write; frozen parameters get no gradient."""
    there = [(ranks, [name for name in names if hasattr(schedules, name)]) for ranks, names in runs]
    program = f"from tests.stages.test_zero_bubble import start; [start(*one) for one in {there}]"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = [f"{name} {ranks} {rank} []" for ranks, names in there for name in names for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == sorted(wanted)
