"""``Halves``: how the two programs of a training module are called.

It is shared by all copies of a module, and holds no tensor of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from attrs import define

from ...ir.effects.resolved import node_effects
from ...ir.errors import InputValueError, UnsupportedProgram
from ...ir.program import Program
from ...ir.signature import GIVEN, InputGradient, InputMutation, StateGradient, UserInput
from ...ir.state import SlotKind
from .backward import Backward, Request
from .boxed import reader

__all__ = ["Halves", "Saved"]


class Halves:
    """What a step does.

    Args:
        forward: it gives what the caller gets, then what is saved.
        saved: how many values that is.
        backward: it takes them, then tangents, and gives gradients.
        device: replaces every device that the programs name.
    """

    def __init__(self, forward: Program, saved: int, backward: Program, device: torch.device | None = None) -> None:
        given = [spec for spec in forward.signature.outputs if type(spec) in GIVEN]
        self.outputs = len(given) - saved
        """How many leaves the caller gets."""
        users = [spec for _, spec in backward.inputs if type(spec) is UserInput]
        self.tangents = tuple([spec.tangent_of for spec in users if spec.tangent_of is not None])
        """For each tangent of the backward, the output whose gradient it is."""
        self.leaves = sum(type(spec) is UserInput for spec in forward.signature.inputs)
        """How many leaves the caller passes."""
        gradients = [spec for spec in backward.signature.outputs if type(spec) in GIVEN]
        of_slot = {spec.slot: number for number, spec in enumerate(gradients) if type(spec) is StateGradient}
        of_leaf = {spec.leaf: number for number, spec in enumerate(gradients) if type(spec) is InputGradient}
        self.slots = tuple(of_slot)
        """The state that has gradients."""
        known = {forward.state[slot].cell for slot in self.slots}
        others = {slot.cell: name for name, slot in reversed(forward.state.pairs) if slot.cell not in known}
        self.frozen = tuple([name for name in reversed(others.values()) if forward.state[name].kind is SlotKind.PARAMETER])
        """The parameters that have none."""
        self.read_frozen = reader(self.frozen)
        self.refused = _refused(forward, of_leaf)
        """Why a leaf must not need a gradient, by its number."""
        self.places = (*of_slot.values(), *[of_leaf.get(number) for number in range(self.leaves)])
        """For each operand of the step, which result of the backward is its gradient."""
        self.backward = Backward(backward, self.places, device)
        self.read_slots = reader(self.slots)

    def __deepcopy__(self, memo: dict[int, Any]) -> Halves:
        return self

    def check(self, module: torch.nn.Module, leaves: Sequence[Any]) -> None:
        """Refuse a call of which gradients would be missing.

        Args:
            module: whose state is used.
            leaves: of the call.

        Raises:
            InputValueError: an argument needs a gradient, and the program has none for it; or the program writes it.
            UnsupportedProgram: so does a parameter.
        """
        for name, value in zip(self.frozen, self.read_frozen(module), strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise UnsupportedProgram(
                    f"{name} needs a gradient, and it needed none when the program was captured, which so has none for it: let "
                    "it require one (requires_grad_()) and capture it again"
                )
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and (what := self.refused.get(number)):
                raise InputValueError(what)

    def gradients(self, call: Saved, gradients: Sequence[torch.Tensor | None], needed: tuple[bool, ...]) -> list[Any]:
        """Return the gradient of each operand of the step.

        Args:
            call: what the forward saved; nothing of it is left.
            gradients: of the outputs; None for those that nothing used.
            needed: for each operand whether it needs one.
        """
        given = [gradients[number] for number in self.tangents]
        tangents = [_or_zeros(gradient, like) for gradient, like in zip(given, call.likes, strict=True)]
        request = Request(needed, tuple([gradient is not None for gradient in given]), self.backward.fits(tangents))
        count = len(call.values) - len(self.backward.whole.state)
        box = [*call.values[:count], *tangents, *call.values[count:]]
        call.values.clear()
        results = self.backward.run(box, request)
        return [None if place is None else results[place] for place in self.places]


@define
class Saved:
    """What one call of the forward left for its backward."""

    values: list[Any]
    """What the forward gave, then the state."""
    likes: list[Like]
    """Of the output of each tangent, what zeros for it are like."""


def _refused(forward: Program, gradients: Collection[int]) -> dict[int, str]:
    written = {forward.main.inputs[spec.index].name for spec in forward.signature.outputs if type(spec) is InputMutation}
    written |= {name for does in node_effects(forward, forward.main) for name in does.writes}
    found: dict[int, str] = {}
    users = [(formal, spec) for formal, spec in forward.inputs if type(spec) is UserInput]
    for number, (formal, spec) in enumerate(users):
        name = spec.argument or formal.name
        if number not in gradients:
            found[number] = (
                f"the argument {name} needs a gradient, and it needed none when the program was captured, which so has none for "
                f"it: pass {name}.detach(), or capture it again with an argument that requires one"
            )
        elif formal.name in written:
            found[number] = f"the argument {name} is written in place and needs a gradient; pass a copy: {name}.detach().clone()"
    return found


Like = tuple[torch.Size, torch.dtype, torch.device]


def _or_zeros(gradient: torch.Tensor | None, like: Like) -> torch.Tensor:
    if gradient is not None:
        return gradient
    size, dtype, device = like
    return torch.zeros(size, dtype=dtype, device=device)
