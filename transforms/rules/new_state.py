"""``NewState``: the state that rules and edits add and drop, gathered until the program is made.

A name is free at all instances of a body before it is taken, so that one read serves them all.  A slot is dropped when nothing
reads it any more; state that is still read, written or promised to a caller stays.
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
    """A piece of state that a replacement brings: what it is, for one instance."""

    kind: SlotKind
    value: torch.Tensor
    persistent: bool = True


class NewState:
    """What changes in the state of a program, and what is known of it meanwhile.

    Args:
        program: it has the state before.
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
        does = summary(main, node_effects(program, main))
        inputs = {formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput}
        slots = {*does.writes_slots, *(inputs[name] for name in does.writes if name in inputs)}
        slots.update(spec.slot for spec in program.signature.outputs if type(spec) is StateMutation)
        return frozenset(self.state[slot].storage for slot in slots if slot in self.state)

    def tensor(self, slot: str) -> torch.Tensor | None:
        """Return the tensor that is always read from a slot; None if there is none, or the program writes it."""
        found = self.added.get(slot) or self.state.slots.get(slot)
        if found is None or not isinstance(found.value, torch.Tensor):
            return None
        return found.value if slot in self.added or found.storage not in self._written else None

    def constant(self, slot: str, *, buffers: bool, parameters: bool) -> torch.Tensor | None:
        """Return the tensor that a slot always has, whatever is trained or loaded; None if there is none.

        Args:
            slot: from the root.
            buffers: whether persistent buffers count as well, though others may be loaded.
            parameters: whether parameters count as well, though they are trained and loaded.
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
        """Return a name for a slot that is free at all instances of a body, as the body writes it.

        Args:
            owner: the module that has it, as the body writes it.
            word: the wanted name; it is numbered where it is taken.
            paths: the instances.
            taken: names of the body that are taken besides.

        Raises:
            RuleError: it cannot be the name of an attribute.
        """
        if not word.isidentifier():
            raise RuleError(f"{word!r} cannot be the name of state: it is an attribute of a module, one word")
        places, used, number = tuple(paths), set(taken), 0
        name = nested(owner, word)
        while name in used or any(self._is_taken(join(path, name)) for path in places):
            number += 1
            name = nested(owner, f"{word}_{number}")
        return name

    def _is_taken(self, slot: str) -> bool:
        return slot in self.state or slot in self.added or slot in self._modules

    def add(self, path: str, additions: Mapping[str, Addition]) -> None:
        """Add what one instance of a body has from now on, by the names that the body writes."""
        for name, new in additions.items():
            self.added[join(path, name)] = self._ids.slot(new.value, new.kind, persistent=new.persistent)

    def drop(self, path: str, slots: Iterable[str]) -> None:
        """Drop state of one instance, by the names that the body writes, under each name that nothing reads."""
        self.dropped.update(dict.fromkeys([join(path, slot) for slot in slots]))

    def applied(self, program: Program) -> Program:
        """Return a program with the state that is added, and without what is dropped and not read any more."""
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
    """Return a tensor as a parameter that is trained, if its numbers can be; itself if it is one.

    >>> parameter_of(torch.ones(2)).requires_grad, parameter_of(torch.ones(2, dtype=torch.int8)).requires_grad
    (True, False)
    """
    if isinstance(value, torch.nn.Parameter):
        return value
    return torch.nn.Parameter(value.detach(), requires_grad=value.is_floating_point() or value.is_complex())


def as_staged(program: Program) -> Program:
    """Return a program that takes its state as inputs, if it did so before new state was read.

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
