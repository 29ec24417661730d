"""``training_module``: a joint program becomes a module that trains like the one that was captured.

It is a lowered forward program, with its state under the original names; where gradients are on, each call is one ``Step``.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch

from ...ir.errors import ArgumentError, UnsupportedProgram
from ...ir.graph import Op, place_of
from ...ir.program import Program
from ...ir.taking import a_program
from ...ir.torch_private import is_tracing
from ...ir.verify import check
from ...transforms.effect_tokens import remove_effect_tokens
from ...transforms.inline import inline
from ...transforms.training import Policy, partition_joint
from ...transforms.training.phases import is_joint
from ..calls.arguments import result_builder
from ..calls.root import LoweredRoot
from ..lower import lower
from ..modules.module import MADE
from .backward import TrainingPrograms
from .calling import called_like, result_spec, uncalled, with_tangent_of_loss
from .step import Step, as_captured

__all__ = ["TrainingModule", "training_module"]


def training_module(
    program: Program,
    *,
    policy: Policy | None = None,
    device: torch.device | str | None = None,
    state: Literal["copy", "share"] = "copy",
) -> TrainingModule:
    """Return a module that trains like the one that a joint program was captured of.

    It is called as the original, and has its state under its names. Where gradients are on, a call is one node of autograd, whose
    backward is the backward program: optimizers, hooks of parameters, ``zero_grad``, accumulation, ``torch.no_grad`` and
    ``torch.compile`` work as they do elsewhere. Inner modules hold state and are not called, since the program is flat.

    Args:
        program: a joint program: it gives gradients, and has a loss or takes tangents. Module calls are inlined.
        policy: which values of the forward are kept for the backward, see ``px.training.partition_joint``; by default all.
        device: where the state goes; every device that the program names is replaced. None changes nothing.
        state: ``"copy"`` gives the module tensors of its own, ``"share"`` those of the program.

    Returns:
        The module.

    Raises:
        ArgumentError: the program is not a joint one.
        InvalidProgram: the program breaks invariants.
        PartitionError: it cannot be cut into a forward and a backward.
        UnsupportedProgram: an operator gives its backward nothing where it runs; the message says how to capture another.

    >>> import torch, purefx as px
    >>> model, x = torch.nn.Linear(3, 1), torch.ones(2, 3)
    >>> module = px.training_module(px.training.capture_joint(model, (x,)))
    >>> module(x).sum().backward()
    >>> module.weight.grad
    tensor([[2., 2., 2.]])
    """
    a_program(program, "training_module")
    if not is_joint(program):
        raise ArgumentError(
            "training_module takes a joint program, which has a forward and its backward, and this one gives no gradients; "
            "px.training.capture_joint(module, args) makes one"
        )
    flat = inline(remove_effect_tokens(check(program)))
    _check_operators(flat)
    cut = partition_joint(with_tangent_of_loss(uncalled(flat)), policy=policy)
    programs = TrainingPrograms(cut, None if device is None else torch.device(device))
    made: Any = lower(called_like(flat, cut.forward), device=device, state=state)
    return training(made, programs, result_spec(flat))


BY_GRADIENT_MODE = {
    "aten.mkldnn_rnn_layer.default": "with torch.backends.mkldnn.flags(enabled=False)",
}
"""Operators that keep nothing for the backward while gradients are off, as they are inside of an autograd node, each with how to
capture others in their place."""


def _check_operators(program: Program) -> None:
    for node in program.main.nodes:
        if type(node.do) is Op and node.do.name in BY_GRADIENT_MODE:
            raise UnsupportedProgram(
                f"{place_of(node)}: {node.do.name} keeps what its backward needs only where gradients are on, and they are off "
                f"inside of an autograd node; capture the program {BY_GRADIENT_MODE[node.do.name]}"
            )


class TrainingModule(LoweredRoot):
    """A lowered forward program whose calls are nodes of autograd; what ``training_module`` makes."""

    purefx_programs: TrainingPrograms
    purefx_result: Any

    def _run_body(self, leaves: Any) -> Any:
        programs = self.purefx_programs
        if is_tracing():
            return self.purefx_run(leaves)[: programs.outputs]
        with as_captured():
            if not torch.is_grad_enabled():
                return self.purefx_run(leaves)[: programs.outputs]
            programs.check(self, leaves)
            return Step.apply(self, *programs.read_slots(self), *leaves)

    def purefx_run(self, leaves: Any) -> Any:
        """Return what the forward program gives, for the leaves of a call: the results, and what is saved."""
        return super()._run_body(leaves)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse: its programs are not pickled.

        Raises:
            UnsupportedProgram: always.
        """
        raise UnsupportedProgram(
            "a training module cannot be pickled: save the joint program (px.save) and the state_dict() of the module, and make "
            "another one of them"
        )

    def recompile(self) -> Any:
        """Refuse: an edited forward has another backward.

        Raises:
            UnsupportedProgram: always.
        """
        raise UnsupportedProgram(
            "the graph of a training module is its forward alone, and an edit of it would leave the backward as it is: "
            "transform the joint program, and make a training module of that"
        )


def training(module: Any, programs: TrainingPrograms, result: Any) -> TrainingModule:
    """Make a lowered forward program a training module.

    Args:
        module: of the class that ``lower`` gave it.
        programs: what it does.
        result: the pytree of what it returns.
    """
    kind = type(module)
    module.__class__ = type("TrainingModule", (TrainingModule, kind), {"__module__": TrainingModule.__module__, MADE: True})
    module.__dict__["purefx_programs"] = programs
    module.__dict__["purefx_result"] = result
    module.__dict__["purefx_plan"].result = result_builder(result)
    return cast(TrainingModule, module)
