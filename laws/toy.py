"""Machines that run programs: ``TensorMachine`` with the operators of torch, ``ToyMachine`` with toy operators on integers.

Toy programs run fast and still have all features that make rewriting hard.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ir.effects.declared import COMMUNICATION, LIBRARIES, ArgAt, Effects, Unless
from ..ir.graph import Op
from ..ir.operators import GETITEM as GETITEM  # noqa: PLC0414  part of the toy operators
from ..ir.operators import op_of
from ..ir.program import Program
from ..ir.state import SlotKind, State, is_plain
from ..ir.state_changes import copy_value
from ..ir.torch_private import resolve_operator, storage_key, window_on
from .evaluate import Contents, Meaning, evaluate
from .purity import seeded


def _cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    # torch's parameter names: a pass may use them as keywords.
    return (true_fn if pred else false_fn)(*operands)


ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The address of an object, which differs in copies."""


class TensorMachine:
    """Runs the operators of torch on the CPU; use it for one evaluation.

    >>> machine = TensorMachine()
    >>> machine.shown(machine.save(torch.ones(2)))
    float32[2] (1.0, 1.0)
    """

    def __init__(self) -> None:
        self.slots: dict[str, Any] = {}
        """The state, after ``load``."""
        self.effects: dict[str, list[Any]] = {"emitted": []}
        self.functions: Mapping[str, Callable[..., Any]] = {
            "aten._print.default": self.effects["emitted"].append,
            "higher_order.with_effects": self._thread,
            "higher_order.cond": _cond,
        }

    def _thread(self, token: None, target: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        result = self.functions.get(str(target), target)(*args, **kwargs)
        return (token, *result) if isinstance(result, tuple) else (token, result)

    def load(self, state: State) -> None:
        """Copy the state, with the ties and the shared memory of the originals.

        >>> from purefx.ir import Slot
        >>> z = torch.ones(1, dtype=torch.complex64)
        >>> slots = {"z": Slot(SlotKind.BUFFER, z, 0, 0), "conjugate": Slot(SlotKind.BUFFER, z.conj(), 1, 0)}
        >>> machine = TensorMachine()
        >>> machine.load(State.of(slots))
        >>> machine.slots["z"].mul_(2j).tolist(), machine.slots["conjugate"].tolist()
        ([2j], [-2j])
        """
        cells: dict[int, Any] = {}
        memo: dict[int, Any] = {}
        # Modules come last, so that they share the copied tensors.
        for name in sorted(state, key=lambda name: state[name].kind is SlotKind.MODULE):
            slot = state[name]
            if slot.cell not in cells and is_plain(slot.value):
                plain = slot.value.detach()
                cells[slot.cell] = window_on(copy.deepcopy(plain.untyped_storage(), memo), plain)
            elif slot.cell not in cells:
                cells[slot.cell] = copy_value(name, slot.value, memo)
            memo[id(slot.value)] = cells[slot.cell]
        self.slots = {name: cells[state[name].cell] for name in state}

    def given(self, leaf: Any) -> Any:
        """Return a copy of a tensor; other leaves unchanged."""
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    def save(self, value: Any) -> Any:
        """Return a copy of a tensor; constants unchanged."""
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor."""
        target.copy_(saved)

    def shown(self, saved: Any) -> Any:
        """Return the contents of a tensor or of the state of an object; type and text of a constant."""
        if isinstance(saved, torch.nn.Module):
            return [
                (name, self.shown(value))
                for name, value in saved.state_dict(keep_vars=True).items()
            ]
        if isinstance(saved, torch.Generator):
            return self.shown(saved.get_state())
        return (
            Contents(saved)
            if isinstance(saved, torch.Tensor)
            else (type(saved).__name__, ADDRESS.sub("", repr(saved)))
        )


def tensor_meaning(
    program: Program,
    calls: Sequence[Sequence[Any]],
    *,
    seed: int = 0,
    leaves_alone: frozenset[str] | None = None,
) -> Meaning:
    """Return the meaning of a program of real operators, bit for bit.

    Args:
        program: a program at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call.
        seed: of torch's generator, which is restored afterwards.
        leaves_alone: see ``evaluate``.

    >>> from purefx.ir.importing import import_ep
    >>> program = import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)))
    >>> tensor_meaning(program, [(torch.tensor([-2.0]),)]).outputs
    ((float32[1] (0.0),),)
    """
    with seeded(seed), torch.no_grad():
        return evaluate(program, calls, TensorMachine(), leaves_alone=leaves_alone)


A, B = ArgAt(0, "a"), ArgAt(1, "b")

NEG, ADD, MUL = Op("toy.neg"), Op("toy.add"), Op("toy.mul")
VIEW = Op("toy.view", Effects(aliases=(A,)))
"""Another cell with the same memory."""
PAIR = Op("toy.pair", Effects(aliases=(A, B)))
"""A tuple of its two arguments."""
ADD_ = Op("toy.add_", Effects(writes=(A,), returns=(A,), aliases=(A,)))
RAND = Op(
    "toy.rand",
    Effects(random=True, random_unless=(Unless(ArgAt(2, "train"), value=False, default=True),)),
)
"""``rand(a, tag, train)``: ``a`` plus a random number; ``a`` itself if ``train`` is False."""
EMIT = Op("toy.emit", Effects(ordered=True))
"""``emit(a, tag)``: writes the contents of ``a`` outside."""
COND = Op("toy.cond", Effects(through_bodies=True))
"""``cond(a, then, else, (operands))``: runs one of the bodies, depending on ``a``."""
ENTER, LEAVE = (
    Op("toy.enter", Effects(ordered=True, scope=1)),
    Op("toy.leave", Effects(ordered=True, scope=-1)),
)
"""The boundaries of a region in which ``neg``, ``add`` and ``mul`` have other results, like operators under a vmap."""
SEND = Op("toy.send", Effects(domain=COMMUNICATION, group=ArgAt(1, "group")))
"""``send(a, group)``: the result of a collective over a group, which must be awaited."""
WAIT = Op("toy.wait", Effects(aliases=(A,), completes=(A,)))
"""``wait(a)``: ``a``, when the collective is complete."""
COUNT = Op("toy.count", Effects(domain=LIBRARIES))
"""``count(a)``: ``a`` plus the number of calls, a hidden side effect."""
COPY_ = op_of(torch.ops.aten.copy_.default)
CLONE = op_of(torch.ops.aten.clone.default)
PRINT = op_of(resolve_operator("aten", "_print", "default"))
THREAD = op_of(torch.ops.higher_order.with_effects)

GROUPS = ("g0", "g1")
"""The process groups of generated programs."""

UNSENT = -1
"""The contents of the result of a collective before the wait."""


class ToyMachine(TensorMachine):
    """Runs toy operators on integers without dimensions; use it for one evaluation.

    >>> machine = ToyMachine()
    >>> machine.functions["toy.emit"](torch.tensor(3), "here")
    >>> machine.effects["emitted"]
    [('here', 3)]
    """

    def __init__(self) -> None:
        super().__init__()
        self.effects.update(
            {"drawn": [], "counted": [], **{f"sent to {each}": [] for each in GROUPS}}
        )
        self.level = 0
        self.pending: dict[int, torch.Tensor] = {}
        """Sent contents before the wait, by the memory that receives them."""
        self.functions = {
            **self.functions,
            "toy.neg": lambda a: 131 * self.level - a,
            "toy.add": lambda a, b: a + b + 137 * self.level,
            "toy.mul": lambda a, b: a * b + 139 * self.level,
            "toy.enter": lambda: self._step(1),
            "toy.leave": lambda: self._step(-1),
            "toy.view": lambda a: a.view(()),
            "toy.pair": lambda a, b: (a, b),
            "toy.add_": lambda a, number: a.add_(number),
            "toy.rand": self._rand,
            "toy.send": self._send,
            "toy.wait": self._wait,
            "toy.count": self._count,
            "toy.emit": lambda a, tag: self.effects["emitted"].append((tag, int(a))),
            "toy.cond": lambda a, yes, no, operands: (yes if int(a) % 2 else no)(*operands),
            "aten.neg.default": lambda a: 131 * self.level - a,
            "aten.add.Scalar": lambda a, b: a + b + 137 * self.level,
            "aten.sym_size.int": lambda _, dim: 1 + dim,
        }

    def _step(self, by: int) -> None:
        self.level = max(0, self.level + by)

    def _send(self, a: torch.Tensor, group: str) -> torch.Tensor:
        sent = self.effects[f"sent to {group}"]
        sent.append(int(a))
        made = torch.tensor(UNSENT)
        self.pending[storage_key(made)] = a + 149 * len(sent)
        return made

    def _wait(self, a: torch.Tensor) -> torch.Tensor:
        return a.copy_(self.pending.pop(storage_key(a), a)).view(())

    def _count(self, a: torch.Tensor) -> torch.Tensor:
        self.effects["counted"].append(int(a))
        return a + 151 * len(self.effects["counted"])

    def _rand(self, a: torch.Tensor, tag: str, train: bool = True) -> torch.Tensor:  # noqa: FBT001, FBT002  flags by position
        drawn = self.effects["drawn"]
        if train:
            drawn.append(tag)
        return a + (7919 * len(drawn) if train else 0)

    def given(self, leaf: int) -> torch.Tensor:
        """Return a tensor with a number in it."""
        return torch.tensor(leaf)

    def shown(self, saved: Any) -> Any:
        """Return the number in a tensor; a constant as text."""
        return int(saved) if isinstance(saved, torch.Tensor) else repr(saved)


def toy_meaning(
    program: Program, *, calls: int = 3, leaves_alone: frozenset[str] | None = None
) -> Meaning:
    """Return the meaning of a toy program over some calls with different numbers.

    Args:
        program: a program of toy operators at any stage.
        calls: their number.
        leaves_alone: see ``evaluate``.

    >>> from purefx.ir import Graph
    >>> toy_meaning(Program.of({"": Graph((), (), ())})).outputs
    ((), (), ())
    """
    count = len(program.signature.users)
    leaves = [[3 + 10 * call + index for index in range(count)] for call in range(calls)]
    return evaluate(program, leaves, ToyMachine(), leaves_alone=leaves_alone)
