"""Two processes that talk over gloo and run programs, given as text, on their own numbers."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import frozen

SECONDS = 10
"""How long a process waits for the other in one operation."""


@frozen
class Ran:
    """What one process saw of one program."""

    issued: dict[str, list[str]]
    """For each process group the operators in the order in which they began, with the shapes of their operands."""
    outputs: list[bytes]
    """The outputs, and the inputs afterwards, bit by bit."""
    error: str = ""


def both(*jobs: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, Any]]]:
    """Call functions in two processes, one after the other, and return for each the pairs of its results.

    To start the processes takes longer than most functions, so tests share them.

    Args:
        jobs: each function, with the argument for each process.
    """
    place = Path(tempfile.mkdtemp()) / "rendezvous"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.communication.pair", str(rank), str(place)],
            cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(pickle.dumps([(what, given[rank]) for what, given in jobs]))
        process.stdin.close()
        process.stdin = None
    try:
        one, other = (
            pickle.loads(process.communicate(timeout=30 * SECONDS)[0]) for process in processes
        )
    finally:
        for process in processes:
            process.kill()
    return [list(zip(mine, theirs, strict=True)) for mine, theirs in zip(one, other, strict=True)]


# -- one of the two --------------------------------------------------------------------------------------------------------------


def run_texts(jobs: Sequence[tuple[str, int]]) -> list[Ran]:
    """Parse, lower and run programs, each with the number that chooses its inputs; none after one that fails."""
    found: list[Ran] = []
    for text, data in jobs:
        failed = bool(found and found[-1].error)
        found.append(Ran({}, [], "a program before it failed") if failed else _run(text, data))
    return found


def _run(text: str, data: int) -> Ran:
    import torch
    import torch.distributed as dist

    import purefx as px

    names = [name.replace("::", ".") for name in torch._C._dispatch_get_all_op_names()]
    issued: dict[str, list[str]] = {}
    try:
        module = px.lower(
            px.parse(
                text,
                allow={f"{name}.default" for name in names if name.startswith("_c10d_functional.")},
            )
        )
        generator = torch.Generator().manual_seed(1000 * data + dist.get_rank())
        inputs = [torch.randn(4, generator=generator) for _ in range(3)]
        with _recording(issued), torch.no_grad():
            outputs = module(*inputs)
        return Ran(
            issued,
            [bytes(one.contiguous().view(torch.uint8).tolist()) for one in (*outputs, *inputs)],
        )
    except Exception as error:
        return Ran(issued, [], f"{type(error).__name__}: {error}"[:2000])


PLACES = ("src", "dst", "group_name")
"""Operands that differ from process to process, or are recorded elsewhere."""


def _recording(issued: dict[str, list[str]]) -> Any:
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names = [argument.name for argument in func._schema.arguments]
            if func.namespace == "_c10d_functional" and "group_name" in names:
                given = dict(zip(names, args, strict=False)) | (kwargs or {})
                shapes = [
                    tuple(one.shape)
                    for one in pytree.tree_leaves(args)
                    if isinstance(one, torch.Tensor)
                ]
                literals = [
                    value
                    for key, value in given.items()
                    if type(value) in (int, str) and key not in PLACES
                ]
                issued.setdefault(given["group_name"], []).append(f"{func} {shapes} {literals}")
            return func(*args, **(kwargs or {}))

    return Recording()


def main(rank: int, place: str) -> None:
    """Join the other process, call the functions and write their results."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # others may print
    import torch
    import torch.distributed as dist

    importlib.import_module("torch.distributed._functional_collectives")
    torch.set_num_threads(1)
    timeout = timedelta(seconds=SECONDS)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=2, timeout=timeout
    )
    groups: list[Any] = [
        dist.group.WORLD,
        *[dist.new_group([0, 1], timeout=timeout) for _ in range(2)],
    ]
    assert [group.group_name for group in groups] == ["0", "1", "2"]
    results: list[Any] = []
    for what, given in pickle.load(sys.stdin.buffer):
        file, _, name = what.rpartition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(file), name)
        results.append(function(given))
    pickle.dump(results, answers)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    # As a module, not as __main__: pickled objects name the module of their class.
    importlib.import_module("tests.communication.pair").main(int(sys.argv[1]), sys.argv[2])
