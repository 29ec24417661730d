"""Two processes that talk over gloo and run what they are given: programs as text, on numbers of their own.

``Pair`` is the side of the test.  What a program issues is written down as it is issued, by group; a program that gets stuck is
an error after a while, and the processes are made anew.  Run as a module this file is one of the two.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from attrs import frozen

__all__ = ["Pair", "Ran"]

SECONDS = 10
"""How long a process waits for the other in one operation."""


@frozen
class Ran:
    """What one process saw of one program."""

    issued: dict[str, list[str]]
    """For each process group the operators in the order in which they began, with the shapes of what they took."""
    outputs: list[bytes]
    """What came out, and the inputs afterwards, bit by bit."""
    error: str = ""


class Pair:
    """Two processes, started when they are first needed."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, jobs: Sequence[tuple[str, str]], *, data: int = 0) -> list[tuple[Ran, Ran]]:
        """Run programs one after the other: each as text for either process.

        Args:
            jobs: the program of the first process and that of the second.
            data: chooses the numbers.
        """
        return self.ask("run_texts", [[job[rank] for job in jobs] for rank in range(2)], data)

    def ask(self, what: str, given: Sequence[Any], *more: Any) -> list[Any]:
        """Let both processes do something at once, each with its own argument, and return what they say, pair by pair.

        Args:
            what: a function of this file, or of a file as ``"tests.file:function"``.
            given: the argument of either.
            more: further arguments, the same for both.
        """
        self._start()
        for process, mine in zip(self._processes, given, strict=True):
            assert process.stdin is not None
            try:
                process.stdin.write(pickle.dumps((what, mine, more)))
                process.stdin.flush()
            except BrokenPipeError:
                self.stop()  # the next one gets processes that live
                raise AssertionError("a process has ended") from None
        found = [self._answer(process) for process in self._processes]
        if any(isinstance(one, str) for one in found):
            self.stop()
            raise AssertionError("\n".join(map(str, found)))
        if any(getattr(each, "error", "") for one in found for each in one):
            self.stop()  # what one process still waits for would be taken for an answer to the next program
        return list(zip(*found, strict=True))

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 12 * SECONDS)
        try:
            return pickle.load(process.stdout) if ready else "a process said nothing for two minutes"
        except EOFError:
            return f"a process ended with {process.wait()}"

    def _start(self) -> None:
        if self._processes:
            return
        place = Path(tempfile.mkdtemp()) / "rendezvous"
        for rank in range(2):
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.communication.pair", str(rank), str(place)],
                    cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip

    def stop(self) -> None:
        """End both processes."""
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes = []


# -- one of the two -------------------------------------------------------------------------------------------------------------


def run_texts(texts: Sequence[str], data: int) -> list[Ran]:
    """Parse, lower and run programs that talk."""
    return [_run(text, data) for text in texts]


def _run(text: str, data: int) -> Ran:
    import torch
    import torch.distributed as dist

    import purefx as px

    issued: dict[str, list[str]] = {}
    try:
        module = px.lower(px.parse(text, allow=_operators()))
        generator = torch.Generator().manual_seed(1000 * data + dist.get_rank())
        inputs = [torch.randn(4, generator=generator) for _ in range(3)]
        with _writing_down(issued), torch.no_grad():
            outputs = module(*inputs)
        return Ran(issued, [bytes(one.contiguous().view(torch.uint8).tolist()) for one in (*outputs, *inputs)])
    except Exception as error:
        return Ran(issued, [], f"{type(error).__name__}: {error}"[:2000])


def _operators() -> set[str]:
    import torch

    names = [name.replace("::", ".") for name in torch._C._dispatch_get_all_op_names()]
    return {f"{name}.default" for name in names if name.startswith("_c10d_functional.")}


PLACES = ("src", "dst", "group_name")
"""What differs from process to process, or is said elsewhere."""


def _writing_down(issued: dict[str, list[str]]) -> Any:
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class WritesDown(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names = [argument.name for argument in func._schema.arguments]
            if func.namespace == "_c10d_functional" and "group_name" in names:
                given = dict(zip(names, args, strict=False)) | (kwargs or {})
                shapes = [tuple(one.shape) for one in pytree.tree_leaves(args) if isinstance(one, torch.Tensor)]
                said = [value for key, value in given.items() if type(value) in (int, str) and key not in PLACES]
                issued.setdefault(given["group_name"], []).append(f"{func} {shapes} {said}")
            return func(*args, **(kwargs or {}))

    return WritesDown()


def main(rank: int, place: str) -> None:
    """Do what is asked for, until nobody asks."""
    warnings.simplefilter("ignore")
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    questions: BinaryIO = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what others start does not read the questions
    import torch
    import torch.distributed as dist

    importlib.import_module("torch.distributed._functional_collectives")
    torch.set_num_threads(1)
    timeout = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2, timeout=timeout)
    groups: list[Any] = [dist.group.WORLD, *[dist.new_group([0, 1], timeout=timeout) for _ in range(2)]]
    assert [group.group_name for group in groups] == ["0", "1", "2"]
    while True:
        try:
            what, given, more = pickle.load(questions)
        except EOFError:
            os._exit(0)
        file, _, name = what.rpartition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(file or "tests.communication.pair"), name)
        try:
            found = function(given, *more)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    # As a module, not as __main__: what is pickled says where its class is.
    importlib.import_module("tests.communication.pair").main(int(sys.argv[1]), sys.argv[2])
