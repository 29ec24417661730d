"""``TalkMachine``: runs programs that talk in one process, as one of two of which the other is made up.

What the other process gives depends on how much was said in the group before, so another order gives other numbers, and a
coalesced operator is one collective after another.  Until it is waited for, what is under way is no number.  Real processes are
in ``tests/communication``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.program import Program
from .evaluate import Meaning, evaluate
from .law import Case
from .purity import seeded
from .strategies.talking import GROUP_NAMES, LENGTH, SIZE
from .toy import TensorMachine

__all__ = ["TalkMachine", "talk_case", "talk_meaning"]

CALLS = tuple([[torch.arange(LENGTH) * 0.75 + 5 * call + number for number in range(3)] for call in range(2)])
"""What programs of ``talking_programs`` are called with."""


class TalkMachine(TensorMachine):
    """Runs operators of torch, and its functional collectives as the first of two processes; use it for one evaluation.

    >>> machine = TalkMachine()
    >>> sent = machine.functions["_c10d_functional.all_reduce.default"](torch.ones(1), "sum", "0")
    >>> float(sent), float(machine.functions["_c10d_functional.wait_tensor.default"](sent))
    (nan, 2.25)
    """

    def __init__(self) -> None:
        super().__init__()
        self.effects.update({f"said in {name}": [] for name in GROUP_NAMES})
        self.pending: dict[int, tuple[torch.Tensor, Callable[[], torch.Tensor]]] = {}
        """What is under way, by its address: the tensor, and what gives its contents when they are there."""
        self.received: dict[str, int] = dict.fromkeys(GROUP_NAMES, 0)
        one_by_one = {"all_reduce": self._reduce, "all_gather_into_tensor": self._gather, "reduce_scatter_tensor": self._scatter}
        told: dict[str, Callable[..., Any]] = {
            **one_by_one,
            "broadcast": self._broadcast,
            "all_reduce_": self._reduce_,
            "isend": self._isend,
            "irecv": self._irecv,
            "wait_tensor": self._wait,
            "wait_tensors": lambda values: [self._wait(value) for value in values],
        }
        for name, single in one_by_one.items():
            told[f"{name}_coalesced"] = lambda values, *rest, single=single: [single(value, *rest) for value in values]
        self.functions = {**self.functions, **{f"_c10d_functional.{name}.default": run for name, run in told.items()}}

    def _other(self, group: str, what: str, value: torch.Tensor) -> torch.Tensor:
        said = self.effects[f"said in {group}"]
        said.append((what, self.shown(value.clone())))
        return value * 0.25 + len(said)

    def _under_way(self, room: torch.Tensor, contents: Callable[[], torch.Tensor]) -> torch.Tensor:
        room.fill_(float("nan"))
        self.pending[room.data_ptr()] = room, contents
        return room

    def _reduce(self, value: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
        return self._reduce_(value.clone(), reduction, group)

    def _reduce_(self, value: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
        other, mine = self._other(group, f"all_reduce {reduction}", value), value.clone()
        done = mine + other if reduction == "sum" else torch.maximum(mine, other)
        return self._under_way(value, lambda: done)

    def _gather(self, value: torch.Tensor, _: int, group: str) -> torch.Tensor:
        other = self._other(group, "all_gather", value)
        # What is gathered is read until it is waited for.
        return self._under_way(torch.empty(SIZE * value.shape[0]), lambda: torch.cat([value, other]))

    def _scatter(self, value: torch.Tensor, reduction: str, _: int, group: str) -> torch.Tensor:
        other, part = self._other(group, f"reduce_scatter {reduction}", value), value.shape[0] // SIZE
        return self._under_way(torch.empty(part), lambda: value[:part] + other[:part])

    def _broadcast(self, value: torch.Tensor, source: int, group: str) -> torch.Tensor:
        other, mine = self._other(group, f"broadcast {source}", value), value.clone()
        return self._under_way(value.clone(), lambda: mine if source == 0 else other)

    def _isend(self, value: torch.Tensor, peer: int, _: int, group: str) -> torch.Tensor:
        self.effects[f"said in {group}"].append((f"send {peer}", self.shown(value.clone())))
        return value

    def _irecv(self, room: torch.Tensor, peer: int, _: int, group: str) -> torch.Tensor:
        self.effects[f"said in {group}"].append((f"receive {peer}", tuple(room.shape)))
        self.received[group] += 1
        comes = torch.full_like(room, self.received[group] + 0.5)
        return self._under_way(room, lambda: comes)

    def _wait(self, value: torch.Tensor) -> torch.Tensor:
        room, contents = self.pending.pop(value.data_ptr(), (value, value.clone))
        room.copy_(contents())
        return value


def talk_meaning(program: Program, calls: Sequence[Sequence[Any]] = CALLS) -> Meaning:
    """Return what a program that talks means to one process.

    Args:
        program: of ``talking_programs``, at any stage.
        calls: the leaves of the user inputs, for each call.

    >>> from purefx.ir import Graph
    >>> talk_meaning(Program.of({"": Graph((), (), ())}), [()]).outputs
    ((),)
    """
    with seeded(0), torch.no_grad():
        return evaluate(program, calls, TalkMachine())


def talk_case(program: Program, seed: int = 0) -> Case:
    """Return a case of a program that talks, for laws.

    Args:
        program: of ``talking_programs``.
        seed: chooses the variants that a law compares it with.

    >>> from purefx.ir import Graph
    >>> talk_case(Program.of({"": Graph((), (), ())})).seed
    0
    """
    return Case(program, seed, talk_meaning, calls=CALLS)
