"""``python -m bench.communication``: what buckets and overlap save, on two processes of this machine over gloo.

A step of 48 small layers, forward, backward and one all-reduce for each of 96 gradients, is traced, transformed and lowered; the
forms take turns.  Ratios are to the step as it was traced, and the numbers of all forms are equal.  Nothing here is a test.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LAYERS, WIDTH, ROWS, TURNS = 48, 64, 256, 25


def main() -> int:
    """Start both processes, and return how the first one ended."""
    place = str(Path(tempfile.mkdtemp()) / "rendezvous")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bench.communication"]
    both = [subprocess.Popen([*command, place, str(rank)], env=environment) for rank in range(2)]
    return max(process.wait() for process in both)


def take_part(place: str, rank: int) -> None:
    """Be one of the two processes; the first one prints the table."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    told = _measured()
    if rank == 0:
        print("| form | collectives | ms | times as fast |\n|---|---|---|---|")
        print("\n".join(told))
    dist.barrier()
    dist.destroy_process_group()


def _measured() -> list[str]:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as collectives
    from torch.fx.experimental.proxy_tensor import make_fx

    import purefx as px

    def step(weights: Sequence[torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
        leaves = [weight.detach().requires_grad_() for weight in weights]
        for weight, bias in zip(leaves[::2], leaves[1::2], strict=True):
            x = torch.tanh(x @ weight + bias)
        grads = torch.autograd.grad(x.sum(), leaves)
        return [collectives.all_reduce(grad, "sum", world) / 2 for grad in reversed(grads)]

    world: Any = dist.group.WORLD
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH) / 8 if number % 2 == 0 else torch.randn(WIDTH) for number in range(2 * LAYERS)]
    args = weights, torch.randn(ROWS, WIDTH)
    traced = px.import_fx(make_fx(step)(*args))
    bucket, overlap = px.training.bucket_collectives, px.training.overlap_communication
    forms = {
        "as traced": traced,
        "overlapped": overlap(traced),
        "buckets of 100 kB": bucket(traced, bytes=100_000),
        "buckets of 100 kB, overlapped": overlap(bucket(traced, bytes=100_000)),
        "one bucket": bucket(traced),
    }
    modules = {name: px.lower(form) for name, form in forms.items()}
    expected = step(*args)
    assert all(torch.equal(one, other) for module in modules.values() for one, other in zip(module(*args), expected, strict=True))
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(TURNS):
        for name, module in modules.items():
            dist.barrier()
            start = time.perf_counter()
            module(*args)
            times[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(each) for name, each in times.items()}
    counts = {name: sum("all_reduce" in str(node.do) for node in form.main.nodes) for name, form in forms.items()}
    return [
        f"| {name} | {counts[name]} | {1000 * middle[name]:.1f} | {middle['as traced'] / middle[name]:.2f} |" for name in forms
    ]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    take_part(sys.argv[1], int(sys.argv[2]))
