"""``NewState``: collects the state that rules and edits add and drop, until the program is built.

A new name is free at all instances of a body, so one read serves them all.  A slot is dropped when nothing reads it any more;
state that is still read, written or promised to a caller stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import torch
from attrs import frozen

from ...ir.effects.resolved import node_effects, summary
from ...ir.errors import RuleError
from ...ir.names import join, nested
from ...ir.program import Program
from ...ir.signature import StateGradient, StateInput, StateMutation
from ...ir.state import Slot, SlotKind
from ...ir.state_changes import state_uses, with_slots, without_slots
from ...ir.tensors import TensorIds
from ..state import lift_state
from ..transformation import observed

__all__ = ["Addition", "NewState", "as_staged", "parameter_of"]


@frozen(eq=False)
class Addition:
    """New state of a replacement, for one instance."""

    kind: SlotKind
    value: torch.Tensor
    persistent: bool = True


class NewState:
    """Pending changes of the state of a program.

    Args:
        program: the program before the changes.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.state = program.state
        self.added: dict[str, Slot] = {}
        self.dropped: dict[str, None] = {}

    @cached_property
    def _ids(self) -> TensorIds:
        return TensorIds(self.state)

    @cached_property
    def _modules(self) -> frozenset[str]:
        return frozenset(module.path for module in self.program.modules)

    @cached_property
    def _written(self) -> frozenset[int]:
        # The memory that the program writes; rules add no writes.
        program, main = self.program, self.program.main
        effects = summary(main, node_effects(program, main))
        inputs = {formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput}
        slots = {*effects.writes_slots, *(inputs[name] for name in effects.writes if name in inputs)}
        slots.update(spec.slot for spec in program.signature.outputs if type(spec) is StateMutation)
        return frozenset(self.state[slot].storage for slot in slots if slot in self.state)

    def tensor(self, slot: str) -> torch.Tensor | None:
        """Return the tensor of a slot; None if the slot has no tensor, or the program writes it."""
        found = self.added.get(slot) or self.state.slots.get(slot)
        if found is None or not isinstance(found.value, torch.Tensor):
            return None
        return found.value if slot in self.added or found.storage not in self._written else None

    def constant(self, slot: str, *, buffers: bool, parameters: bool) -> torch.Tensor | None:
        """Return the tensor of a slot that neither training nor loading changes; None if they may.

        Args:
            slot: its name from the root.
            buffers: include persistent buffers, although others may be loaded.
            parameters: include parameters, although they are trained and loaded.
        """
        value, state = self.tensor(slot), self.state
        if value is None:
            return None
        storage = (self.added.get(slot) or state[slot]).storage
        trained = [
            state[spec.slot].storage
            for spec in self.program.signature.outputs
            if type(spec) is StateGradient and spec.slot in state
        ]
        if storage in trained or any(storage in several for several in state.entangled):
            return None
        for other in (*[each for _, each in state.pairs], *self.added.values()):
            is_loaded = other.kind is SlotKind.BUFFER and other.persistent and not buffers
            if other.storage == storage and (is_loaded or (other.kind is SlotKind.PARAMETER and not parameters)):
                return None
        return value

    def free(self, owner: str, word: str, paths: Iterable[str], taken: Iterable[str] = ()) -> str:
        """Return a slot name, relative to a body, that is free at all its instances.

        Args:
            owner: the module that has the slot, relative to the body.
            word: the preferred name; a number is appended if it exists.
            paths: the instances.
            taken: further names that are used in the body.

        Raises:
            RuleError: the name is not a valid attribute name.
        """
        if not word.isidentifier():
            raise RuleError(f"{word!r} cannot be the name of state: use a valid attribute name, without dots")
        places, used, number = tuple(paths), set(taken), 0
        name = nested(owner, word)
        while name in used or any(self._is_taken(join(path, name)) for path in places):
            number += 1
            name = nested(owner, f"{word}_{number}")
        return name

    def _is_taken(self, slot: str) -> bool:
        return slot in self.state or slot in self.added or slot in self._modules

    def add(self, path: str, additions: Mapping[str, Addition]) -> None:
        """Add state to one instance of a body, by names relative to the body."""
        for name, new in additions.items():
            self.added[join(path, name)] = self._ids.slot(new.value, new.kind, persistent=new.persistent)

    def drop(self, path: str, slots: Iterable[str]) -> None:
        """Drop state of one instance, by names relative to the body, with all its unread names."""
        self.dropped.update(dict.fromkeys([join(path, slot) for slot in slots]))

    def applied(self, program: Program) -> Program:
        """Return a program with the added state, and without dropped state that nothing reads."""
        if self.added:
            program = with_slots(program, self.added)
            self.program, self.state, self.added = program, program.state, {}
        if self.dropped:
            state = program.state
            tied = {name for slot in self.dropped if slot in state.slots for name in state.by_cell[state[slot].cell]}
            program = without_slots(program, tied - state_uses(program).keys())
            self.program, self.state = program, program.state
        return program


def parameter_of(value: Any) -> Any:
    """Return a tensor as a parameter, trainable if its dtype allows; a parameter itself is returned unchanged.

    >>> parameter_of(torch.ones(2)).requires_grad, parameter_of(torch.ones(2, dtype=torch.int8)).requires_grad
    (True, False)
    """
    if isinstance(value, torch.nn.Parameter):
        return value
    return torch.nn.Parameter(value.detach(), requires_grad=value.is_floating_point() or value.is_complex())


def as_staged(program: Program) -> Program:
    """Return a program with all its state as inputs, if it had state inputs before reads of new state were added.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> as_staged(program) is program
    True
    """
    if "state as inputs" not in program.facts or "state as inputs" in observed(program):
        return program
    if any(type(spec) is StateInput for spec in program.signature.inputs):
        return lift_state.apply(program)
    return program.evolve(facts=program.facts - {"state as inputs"})
