"""``tensor_gradients``: what autograd says about a program of real operators.

One idea: the evaluator runs the program as it always does, on a machine that lets autograd watch.  Inputs are copies of
leaves, so that a program may write to them; outputs are weighted, or what sums to a constant would have no gradient.
It lowers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ir.parts import original, part_names
from ..ir.program import Program
from ..ir.state import State
from .evaluate import evaluate
from .tensors import TensorMachine

__all__ = ["tensor_gradients"]


class GradientMachine(TensorMachine):
    """Runs the operators of torch under autograd; use it for one call.

    >>> machine = GradientMachine()
    >>> machine.given(torch.ones(2)).requires_grad, machine.given(torch.ones(2, dtype=torch.int64)).requires_grad
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: dict[str, torch.Tensor] = {}
        """What gradients are asked of, by what messages call it."""
        self.count = 0

    def load(self, state: State) -> dict[str, Any]:
        """Return copies of the tensors; those that want gradients want them here too."""
        values = super().load(state)
        for names in state.by_cell.values():
            value = values[names[0]]
            if isinstance(value, torch.Tensor) and state[names[0]].value.requires_grad:
                self.leaves[names[0]] = value.requires_grad_()
        return values

    def given(self, leaf: Any) -> Any:
        """Return a copy of a tensor, which wants gradients if it can; other leaves as they are."""
        name, self.count = f"input {self.count}", self.count + 1
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return super().given(leaf)
        self.leaves[name] = leaf.detach().clone().requires_grad_()
        return self.leaves[name].clone()

    def save(self, value: Any) -> Any:
        """Return a copy that autograd knows the origin of."""
        return value.clone() if isinstance(value, torch.Tensor) else value

    def shown(self, saved: Any) -> Any:
        """Return what was saved: the caller goes back from it."""
        return saved


def tensor_gradients(program: Program, calls: Sequence[Sequence[Any]], *, seed: int = 0) -> Mapping[str, Any]:
    """Return the gradients of everything that comes out, for each parameter and input; None for what nothing depends on.

    Args:
        program: a program of real operators at any stage, on the CPU; its state is not changed.
        calls: the leaves of the user inputs, for each call; each is made by itself, with the state as it was.
        seed: of torch's generator, which is put back afterwards.

    >>> from purefx.ir.importing import import_ep
    >>> linear = torch.nn.Linear(2, 1, bias=False)
    >>> program = import_ep(torch.export.export(linear, (torch.ones(1, 2),)))
    >>> tensor_gradients(program, [(torch.tensor([[3.0, 5.0]]),)])["call 0, weight"]
    tensor([[3., 5.]])
    """
    found: dict[str, Any] = {}
    for number, leaves in enumerate(calls):
        machine = GradientMachine()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            meaning = evaluate(program, [leaves], machine)
            parts = [_weighted(value) for value in (*meaning.outputs[0], *meaning.inputs[0]) if _has_gradient(value)]
            wanted = [leaf for leaf in machine.leaves.values() if parts]
            grads = torch.autograd.grad(parts, wanted, allow_unused=True) if wanted else [None] * len(machine.leaves)
        names = frozenset(part_names(program))  # of a split program, parameters are called as before
        found.update((f"call {number}, {original(name, names)}", grad) for name, grad in zip(machine.leaves, grads, strict=True))
    return found


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _weighted(value: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(value) if value.is_complex() else value
    weights = torch.arange(real.numel(), dtype=torch.float64).cos().to(real.dtype).reshape(real.shape)
    return (real * weights).sum()
