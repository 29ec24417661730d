"""``TensorMachine``: what values and operators are to the evaluator when a program is a real one.

One idea: operators run their own targets on copies of the state, in which ties and shared memory are as in the
original.  Contents are compared as dtype, shape and bytes, so NaN equals itself and -0.0 is not 0.0.  It lowers nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ir.program import Program
from ..ir.state import SlotKind, State
from ..ir.torch_private import storage_key, window_on
from .contents import contents_of
from .evaluate import Meaning, evaluate

__all__ = ["TensorMachine", "tensor_meaning"]


class TensorMachine:
    """Runs the operators of torch on the CPU; use it for one evaluation.

    >>> machine = TensorMachine()
    >>> machine.shown(machine.save(torch.ones(2)))
    float32[2] (1.0, 1.0)
    """

    def __init__(self) -> None:
        self.effects: dict[str, list[Any]] = {"emitted": []}
        self.functions: Mapping[str, Callable[..., Any]] = {
            "aten._print.default": self.effects["emitted"].append,
            "higher_order.with_effects": self._thread,
            "higher_order.cond": lambda condition, yes, no, operands: (yes if condition else no)(*operands),
        }

    def _thread(self, token: None, target: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        result = self.functions.get(str(target), target)(*args, **kwargs)
        return (token, *result) if isinstance(result, tuple) else (token, result)

    def load(self, state: State) -> dict[str, Any]:
        """Return copies of tensors and modules, tied and sharing memory as the originals are; other constants as they are."""
        memories: dict[int, torch.UntypedStorage] = {}
        cells: dict[int, Any] = {}
        for name in state:
            slot = state[name]
            if slot.cell in cells or slot.kind is SlotKind.MODULE:
                continue
            value = slot.value
            if isinstance(value, torch.Tensor):
                plain = value.detach()
                key = storage_key(plain)
                memory = memories[key] if key in memories else memories.setdefault(key, plain.untyped_storage().clone())
                value = window_on(memory, plain)
            cells[slot.cell] = value
        # Modules come last, with one memo: they find the copies of the tensors that they share with the rest.
        memo: dict[Any, Any] = {"torch": memories}
        memo.update({id(state[name].value): cells[state[name].cell] for name in state if name not in state.modules})
        for name in state.modules:
            cells[state[name].cell] = copy.deepcopy(state[name].value, memo)
        return {name: cells[state[name].cell] for name in state}

    def given(self, leaf: Any) -> Any:
        """Return a copy of a tensor; other leaves as they are."""
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    def save(self, value: Any) -> Any:
        """Return a copy of a tensor; constants as they are."""
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor."""
        target.copy_(saved)

    def shown(self, saved: Any) -> Any:
        """Return dtype, shape and bytes of a tensor; those of a module's state; type and text of a constant."""
        if isinstance(saved, torch.nn.Module):
            return [(name, self.shown(value)) for name, value in saved.state_dict(keep_vars=True).items()]
        if not isinstance(saved, torch.Tensor):
            return (type(saved).__name__, repr(saved))
        return contents_of(saved)


def tensor_meaning(program: Program, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> Meaning:
    """Return what a program of real operators means, bit for bit.

    Args:
        program: a program at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call.
        seed: of torch's generator, which is put back afterwards.

    >>> from purefx.ir.importing import import_ep
    >>> program = import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)))
    >>> tensor_meaning(program, [(torch.tensor([-2.0]),)]).outputs
    ((float32[1] (0.0),),)
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return evaluate(program, calls, TensorMachine())
