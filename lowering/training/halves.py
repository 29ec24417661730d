"""``Halves``: how the programs of a training module are called, forward and backward.

They are shared by all copies of a module, and hold no tensor of it.  ``SplitHalves`` leave gradients of state to be computed
later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from attrs import define

from ...ir.effects.resolved import node_effects
from ...ir.errors import InputValueError, UnsupportedProgram
from ...ir.graph import Input
from ...ir.program import Program
from ...ir.signature import GIVEN, InputGradient, InputMutation, StateGradient, UserInput
from ...ir.state import SlotKind
from ...transforms.training import Partition
from ...transforms.training.split_backward import split_backward
from .backward import Backward, Request
from .boxed import reader

__all__ = ["Halves", "Saved", "SplitHalves"]


class Halves:
    """What a call of a training module does.

    Args:
        cut: the forward and the backward program.
        device: replaces every device that they name.
    """

    def __init__(self, cut: Partition, device: torch.device | None = None) -> None:
        forward, backward = cut.forward, cut.backward
        given = [spec for spec in forward.signature.outputs if type(spec) in GIVEN]
        self.outputs = len(given) - len(cut.saved)
        """How many leaves the caller gets."""
        self.tangents = tuple([spec.tangent_of for _, spec in tangents_of(backward) if spec.tangent_of is not None])
        """For each tangent of the backward, the output whose gradient it is."""
        gradients = [spec for spec in backward.signature.outputs if type(spec) in GIVEN]
        of_slot = {spec.slot: number for number, spec in enumerate(gradients) if type(spec) is StateGradient}
        of_leaf = {spec.leaf: number for number, spec in enumerate(gradients) if type(spec) is InputGradient}
        self.slots = tuple(of_slot)
        """The state that has gradients."""
        leaves = sum(type(spec) is UserInput for spec in forward.signature.inputs)
        self.of_slots = tuple(of_slot.values())
        self.of_leaves = tuple([of_leaf.get(number) for number in range(leaves)])
        """For each slot and each leaf which result of the backward is its gradient."""
        self.frozen = _frozen(forward, self.slots)
        """The parameters that have none."""
        self.refused = _refused(forward, of_leaf)
        """Why a leaf must not need a gradient, by its number."""
        self.prepare(backward, device)
        self.make_readers()

    def prepare(self, backward: Program, device: torch.device | None) -> None:
        """Make the backward ready.

        Args:
            backward: the program.
            device: replaces every device that it names.
        """
        self.backward = Backward(
            backward, (*self.of_slots, *self.of_leaves), [formal for formal, _ in tangents_of(backward)], device
        )
        self.state = self.backward.state
        """The slots whose contents the backward takes."""

    def make_readers(self) -> None:
        """Make what reads the state of a module."""
        self.read_slots, self.read_frozen, self.read_state = map(reader, (self.slots, self.frozen, self.state))

    def __deepcopy__(self, memo: dict[int, Any]) -> Halves:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("read_")}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self.make_readers()

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
        results = self.ran(self.backward, call, gradients, needed)
        return [None if place is None else results[place] for place in self.backward.places]

    def ran(self, half: Backward, call: Saved, gradients: Sequence[torch.Tensor | None], needed: tuple[bool, ...]) -> Any:
        """Return the results of a backward program; it takes what was saved, tangents and its own state, saved first."""
        given = [gradients[number] for number in self.tangents]
        tangents = half.laid([_or_zeros(gradient, like) for gradient, like in zip(given, call.likes, strict=True)])
        request = Request(needed, tuple([gradient is not None for gradient in given]))
        box = [*call.values, *tangents, *call.state[: len(half.state)]]
        del call.values[:], call.state[: len(half.state)], given, tangents
        return half.run(box, request)


class SplitHalves(Halves):
    """Halves whose backward gives the gradients of arguments, and leaves those of state to ``later``."""

    def prepare(self, backward: Program, device: torch.device | None) -> None:
        """Make both programs of the backward ready."""
        split = split_backward(backward)
        early = [spec for spec in split.inputs.signature.outputs if type(spec) in GIVEN]
        of_leaf = {spec.leaf: number for number, spec in enumerate(early) if type(spec) is InputGradient}
        places = [None if place is None else of_leaf[leaf] for leaf, place in enumerate(self.of_leaves)]
        tangents = [formal for formal, _ in tangents_of(backward)]
        self.backward = Backward(split.inputs, [*[None] * len(self.slots), *places], tangents, device)
        self.handed = len(early) - len(split.kept)
        self.weights = Backward(split.weights, range(len(self.slots)), (), device)
        self.state = (*self.backward.state, *self.weights.state)

    def gradients(self, call: Saved, gradients: Sequence[torch.Tensor | None], needed: tuple[bool, ...]) -> list[Any]:
        """Return the gradients of arguments; what is left of the call is what ``later`` takes."""
        results = self.ran(self.backward, call, gradients, needed)
        call.values[:] = results[self.handed :]
        return [None if place is None else results[place] for place in self.backward.places]

    def later(self, call: Saved, parameters: Sequence[torch.Tensor]) -> None:
        """Compute the gradients of state, and accumulate them.

        Args:
            call: what ``gradients`` left.
            parameters: the state that has gradients.
        """
        box = [*call.values, *call.state]
        call.values.clear()
        call.state.clear()
        request = Request(tuple([parameter.requires_grad for parameter in parameters]), ())
        with torch.no_grad():
            results = self.weights.run(box, request)
        pairs = [pair for pair in zip(parameters, results, strict=True) if pair[1] is not None]
        if pairs:
            torch.autograd.backward([parameter for parameter, _ in pairs], [gradient for _, gradient in pairs])


@define
class Saved:
    """What one call of the forward left for its backward."""

    values: list[Any]
    """What the forward gave."""
    state: list[Any]
    likes: list[Like]
    """Of the output of each tangent, what zeros for it are like."""


def tangents_of(backward: Program) -> list[tuple[Input, UserInput]]:
    """Return the inputs of a program that are tangents."""
    return [(formal, spec) for formal, spec in backward.inputs if type(spec) is UserInput and spec.tangent_of is not None]


def _frozen(forward: Program, slots: Collection[str]) -> tuple[str, ...]:
    known = {forward.state[slot].cell for slot in slots}
    found: dict[int, str] = {}
    for name, slot in forward.state.pairs:
        if slot.cell not in known and slot.kind is SlotKind.PARAMETER:
            found.setdefault(slot.cell, name)
    return tuple(found.values())


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
