"""``Step``: the autograd node of a training module.

Its forward runs the lowered forward program, its backward the lowered backward program on the saved values.  All values are
saved through autograd, so that autograd detects tensors that change in between, runs hooks on saved tensors, and supports
``retain_graph``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ...ir.tensors import tensors_among
from ...ir.torch_private import base_of, device_of, storage_key
from .backward import TrainingPrograms


class Step(torch.autograd.Function):
    """One call of a training module."""

    @staticmethod
    def forward(ctx: Any, module: Any, *values: Any) -> Any:
        """Run the forward program, and save values for the backward.

        Args:
            ctx: the context of autograd.
            module: the training module.
            values: the state with gradients, then the leaves of the call.
        """
        programs: TrainingPrograms = module.purefx_programs
        results = module.purefx_run(values[len(programs.slots) :])
        outputs = results[: programs.outputs]
        if not torch.compiler.is_compiling():
            outputs = apart(outputs, programs.tangents, values)
        save(ctx, [*results[programs.outputs :], *programs.read_state(module)])
        ctx.set_materialize_grads(False)
        ctx.programs = programs
        ctx.likes = [
            (outputs[number].shape, outputs[number].dtype, device_of(outputs[number]))
            for number in programs.tangents
        ]
        fixed = [value for number, value in enumerate(outputs) if number not in programs.tangents]
        ctx.mark_non_differentiable(*tensors_among(fixed))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the backward program.

        Args:
            ctx: the context of autograd.
            gradients: the gradients of the outputs; None for unused ones.
        """
        return (_backward if torch.compiler.is_compiling() else once_differentiable(_backward))(
            ctx, *gradients
        )


def _backward(ctx: Any, *gradients: Any) -> Any:
    with as_captured():
        results = ctx.programs.gradients(
            saved_in(ctx), ctx.likes, gradients, ctx.needs_input_grad[1:]
        )
    return (None, *results)


DEVICES = ("cpu", "cuda")


def as_captured() -> AbstractContextManager[Any]:
    """Return a context with autocast disabled, as the casts of the captured autocast are in the program.

    >>> with torch.autocast("cpu"), as_captured():
    ...     torch.is_autocast_enabled("cpu")
    False
    """
    casting = [device for device in DEVICES if torch.is_autocast_enabled(device)]
    if not casting:
        return nullcontext()
    stack = ExitStack()
    for device in casting:
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def save(ctx: Any, values: Sequence[Any]) -> None:
    """Save values for the backward: tensors through autograd, others as attributes.

    Args:
        ctx: the context of autograd.
        values: tensors, sizes and other objects.
    """
    ctx.save_for_backward(*tensors_among(values))
    ctx.others = [
        (number, value)
        for number, value in enumerate(values)
        if not isinstance(value, torch.Tensor)
    ]


def saved_in(ctx: Any) -> list[Any]:
    """Return the saved values, and free them in autograd unless the graph is retained.

    Raises:
        RuntimeError: they were freed, or a tensor was modified in place since.
    """
    found = list(ctx.saved_tensors)
    if not torch.compiler.is_compiling():
        ctx.maybe_clear_saved_tensors()
    for number, value in ctx.others:
        found.insert(number, value)
    return found


def apart(
    outputs: Sequence[Any], differentiable: Collection[int], operands: Sequence[Any]
) -> list[Any]:
    """Return outputs for autograd, each as a distinct tensor.

    An output that shares memory with another output or an operand becomes a view, which autograd does not allow to write, because
    it would miss the change of the other. Any other output is not a view, so it may be written as in the original.

    Args:
        outputs: the outputs of one call; only differentiable ones are changed.
        differentiable: the numbers of outputs that may have a gradient.
        operands: the operands of the call.

    >>> x = torch.ones(2)
    >>> [one._is_view() for one in apart([x + 1, x[:1], (x + 1)[:1]], {0, 1, 2}, [x])]
    [False, True, False]
    >>> [one._is_view() for one in apart([x, x], {0, 1}, [])]
    [True, True]
    """
    tensors, passed = tensors_among(outputs), tensors_among(operands)
    counts = Counter([storage_key(value) for value in tensors]) if len(tensors) > 1 else None
    found = list(outputs)
    for number in differentiable:
        value = outputs[number]
        if counts is not None and counts[storage_key(value)] > 1:
            found[number] = value.view_as(value)
        elif (base := base_of(value)) is not None and not any(
            base is one or base is base_of(one) for one in passed
        ):
            found[number] = value.detach()
    return found
