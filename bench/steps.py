"""Training steps: time, and memory at the highest point, of eager, of checkpointing, of functorch's partitioner and of ours.

A step is a forward and a backward of one model with its loss.  Memory is that of all tensors alive that operators have returned,
counted by storage as each comes and goes; it leaves out parameters and what a kernel takes and gives back inside of itself, and
so does not depend on the allocator, as the resident set of a process does.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from functorch.compile import aot_function, min_cut_rematerialization_partition
from torch import nn
from torch._dynamo.backends.debugging import boxed_nop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import purefx as px
from bench.measure import alternate
from bench.training import MODULES, Trained, trained

__all__ = ["HEADER", "Alive", "line", "steps"]

HEADER = f"{'step':<10} {'by':<28} {'peak bytes':>12} {'of eager':>9} {'ms':>8} {'of eager':>9} {'gradients':>10}"


class Alive(TorchDispatchMode):
    """Counts the bytes of the storages that operators make, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count what it returns."""
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.count(value.untyped_storage())
        return result

    def count(self, storage: torch.UntypedStorage) -> None:
        """Count a storage, once; torch keeps its Python object as long as the storage lives."""
        key, size = storage._cdata, storage.nbytes()
        if key not in self.seen:
            self.seen.add(key)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        """Note that a storage was freed."""
        self.seen.discard(key)
        self.bytes -= size


NOTHING: Any = boxed_nop
"""Compiles nothing: runs the graph, and frees what it was given at its last use."""


class Functorch(nn.Module):
    """A module by ``aot_function``; not through Dynamo, which runs eager where operators are watched."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.compiled = aot_function(
            self._called, NOTHING, partition_fn=min_cut_rematerialization_partition
        )

    def _called(self, state: dict[str, torch.Tensor], *args: Any) -> torch.Tensor:
        return torch.func.functional_call(self.model, state, args)

    def forward(self, *args: Any) -> torch.Tensor:
        """Run the model."""
        return self.compiled(
            {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}, *args
        )


def _candidates(name: str) -> Iterator[tuple[str, nn.Module]]:
    eager, glob = trained(name), MODULES[name.partition("-")[0]]
    yield "eager", eager
    again = copy.deepcopy(eager)
    for block in again.get_submodule(glob.removesuffix(".*")).children():
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    yield "torch.utils.checkpoint", again
    yield "functorch min-cut", Functorch(copy.deepcopy(eager))
    joint = px.training.capture_joint(eager, Trained.example())
    policies = {
        "save_all()": px.training.save_all(),
        "min_cut()": px.training.min_cut(),
        "recompute(blocks)": px.training.recompute(glob),
    }
    for said, policy in policies.items():
        yield f"ours, {said}", px.training_module(joint, policy=policy)


def _step(module: nn.Module, args: tuple[Any, ...]) -> None:
    module.zero_grad()
    torch.autograd.backward(module(*args))


def steps(name: str, rounds: int) -> list[dict[str, Any]]:
    """Run steps of one model in each way.

    Args:
        name: of the model, as ``trained`` takes it.
        rounds: of timing.
    """
    modules, args = dict(_candidates(name)), Trained.example()
    runs: dict[str, Callable[[], Any]] = {
        said: partial(_step, module, args) for said, module in modules.items()
    }
    for run in runs.values():
        run()  # what is compiled or made at first is not counted
    peaks = {said: _peak(run) for said, run in runs.items()}
    seconds = alternate(runs, rounds=rounds)
    wanted = [parameter.grad for parameter in modules["eager"].parameters()]
    return [
        {
            "name": name,
            "by": said,
            "peak": peaks[said],
            "of_eager": peaks[said] / peaks["eager"],
            "seconds": seconds[said],
            "ratio": seconds[said] / seconds["eager"],
            "equal": all(map(_same, [parameter.grad for parameter in module.parameters()], wanted)),
        }
        for said, module in modules.items()
    ]


def _same(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    return mine is theirs if mine is None or theirs is None else torch.equal(mine, theirs)


def _peak(run: Callable[[], Any]) -> int:
    with Alive() as alive:
        run()
    return alive.peak


def line(found: dict[str, Any]) -> str:
    """Return one row of the table."""
    same = "equal" if found["equal"] else "differ"
    return (
        f"{found['name']:<10} {found['by']:<28} {found['peak']:>12,} {found['of_eager']:>9.2f} {found['seconds'] * 1e3:>8.1f} "
        f"{found['ratio']:>9.2f} {same:>10}"
    )
