"""``restore_names``: state gets the names that it has in the module that was traced.

A tensor is identified by its memory, so a slot that shows a tensor of the original module gets its name and kind, and one that
the module has under two names gets both.  What a tracer made itself keeps its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.errors import NamingError
from ...ir.names import Names, is_below
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.state import Slot, SlotKind, State
from ...ir.tensors import TensorIds, cell_key, numbered
from ..state import sink_state
from ..transformation import UNLIMITED, Fuel, transformation
from .constants import is_made, made_constants
from .state import Original, original_of, with_state, with_state_inputs

__all__ = ["restore_names"]


REGISTERED = (SlotKind.PARAMETER, SlotKind.BUFFER)


@transformation(
    proven=True,
    laws=[
        "a tensor of the module has all the names that it has there, and no others",
        "what the module does not have keeps its name",
        "names that were lost come back",
    ],
)
def restore_names(
    program: Program,
    module: torch.nn.Module | Mapping[str, Any],
    *,
    inputs: Sequence[Any] | None = None,
    add_unused: bool = False,
    fuel: Fuel = UNLIMITED,
) -> Program:
    """Rename state to its names and kinds in the module that was traced.

    Before::

        parameter _param_constant0: f32[2, 2]
        w = get _param_constant0

    After::

        parameter embed.weight: f32[2, 2]
        parameter head.weight: f32[2, 2] tied embed.weight
        w = get embed.weight

    A slot that is a tensor of the module, or the same view of the same memory with the same dtype, gets its name; if the module
    has several names for a tensor, all of them exist afterwards.  Kinds (parameter, buffer, saved or not, constant) are those
    of the module, and a buffer ``_tensor_constant0`` that it does not have and that nothing writes is a constant.  State of the
    module comes first, in the order in which the module declares it. State that the program lacks is added only with
    ``add_unused=True``, which makes ``state_dict`` that of the module: renaming alone should not make a program larger.

    Args:
        program: a program at any stage in which no two modules share a body that reads state; one with ``inputs`` is flat.
        module: the original module, or a mapping from names to its tensors, like ``dict(module.named_parameters())`` or
            ``module.state_dict()``; a mapping leaves kinds as they are, but for values that are parameters.
        inputs: what the traced graph was called with (Dynamo's ``example_inputs``), as pytrees: inputs that were given a tensor
            of the module become state, and the lowered module is called without them.
        add_unused: whether parameters and buffers of the module that the program does not have are added.
        fuel: a rewrite is one tensor of the module, in the order of the program's state.

    Returns:
        The program with these names.

    Raises:
        NamingError: the module has none of the program's tensors, or another tensor under the name of one that is not its; the
            program takes parameters as inputs, and ``inputs`` are not given; they are not as many as the user inputs, or a part
            of an argument would become state; or more inputs were given one tensor than it has names.
        UnsupportedProgram: a body that several modules share would have to read one slot under several names, or the program is
            split and the names are of no part.
        PipelineError: ``inputs`` are given for a program that calls modules.
        TypeError: ``module`` is neither a module nor a mapping.

    >>> import torch, purefx as px
    >>> lin = torch.nn.Linear(2, 2)
    >>> slot = px.ir.Slot(px.ir.SlotKind.CONSTANT, lin.weight, 0, 0, False)
    >>> graph = px.Graph((), (px.Node("w", px.Get("_tensor_constant0")),), px.Ref("w"))
    >>> state = px.ir.State(("_tensor_constant0",), px.ir.pmap({"_tensor_constant0": slot}))
    >>> named = px.restore_names(px.Program.of({"": graph}, state=state), lin)
    >>> named.main.nodes[0].do, named.state["weight"].kind
    (Get(slot='weight'), <SlotKind.PARAMETER: 'parameter'>)
    """
    original = original_of(module)
    taken = program if inputs is None else with_state_inputs(program, original, inputs)
    naming = _Naming(taken.state, original, fuel)
    naming.check(_parameters_handed(program) if inputs is None else [])
    made = made_constants(taken, naming.unmatched) if original.tells_kinds and naming.whole else frozenset[str]()
    state = naming.state_after(made, add_unused=add_unused)
    named = taken
    if state is not taken.state or naming.names:
        named = with_state(taken, state, naming.names, {one.path: one for one in original.modules})
    # Reads are placed where the state is, so after it has its names.
    return sink_state.apply(named) if taken is not program and "state sunk" in program.facts else named


def _parameters_handed(program: Program) -> list[str]:
    return [formal.name for formal in program.main.inputs if isinstance(formal.meta.get("val"), torch.nn.Parameter)]


class _Naming:
    """Which slot is which tensor of the original, and what becomes of the state."""

    def __init__(self, state: State, original: Original, fuel: Fuel) -> None:
        self.state = state
        self.original = original
        by_key = original.by_key(unless_known=state)
        shown: dict[object, list[str]] = {}
        for name, slot in state.pairs:
            key = cell_key(slot.value)[0]
            if key in by_key and slot.kind is not SlotKind.MODULE and slot.value is not None:
                shown.setdefault(key, []).append(name)
        self.matched = {key: slots for key, slots in shown.items() if fuel.burn("name", *by_key[key])}
        self.whole = not fuel.refused
        self.given: dict[str, str] = {}
        """For each name of the original the slot of the program that is that tensor."""
        self.target: dict[str, str] = {}
        """For each of these slots, the name that reads of it use."""
        for key, slots in self.matched.items():
            self._share_out(slots, by_key[key])

    def _share_out(self, slots: list[str], wanted: list[str]) -> None:
        # A slot that has one of the names keeps it, then each slot takes the one of its object, then the next.
        free = dict.fromkeys(wanted)
        self.target.update({slot: slot for slot in slots if slot in free})
        for slot in slots:
            free.pop(self.target.get(slot, ""), None)
        for slot in slots:
            if slot not in self.target:
                value = self.state[slot].value
                same = next((name for name in free if self.original.slots[name].value is value), None)
                name = same or next(iter(free), None) or wanted[0]
                free.pop(name, None)
                self.target[slot] = name
        for name in wanted:
            named = next((slot for slot in slots if self.target[slot] == name), None)
            value = self.original.slots[name].value  # of several objects that show one window, its own
            same = next((slot for slot in slots if self.state[slot].value is value), slots[0])
            self.given[name] = named or same

    def check(self, handed: list[str]) -> None:
        """Raise for a module other than the traced one, and for parameters among the inputs without ``inputs=``."""
        original, state = self.original.slots, self.state
        if self.matched or not self.whole:
            strange = [name for name in state if name in original and name not in self.target]
            if strange and self.whole:
                raise NamingError(
                    f"the module has another tensor under the name {strange[0]!r}: state is identified by its memory, so "
                    f"give the module as it was traced, before its tensors were replaced, moved or copied"
                )
        elif original and any(slot.kind in REGISTERED and not is_made(name) for name, slot in state.pairs):
            raise NamingError(
                f"the module has none of the {len(state)} tensors of the program ({', '.join(map(repr, state.order[:3]))} ...): "
                "state is identified by its memory, so give the module itself that was traced, not a copy"
            )
        elif handed and any(slot.kind is SlotKind.PARAMETER for slot in original.values()):
            raise NamingError(
                f"the program has no tensor of the module, and takes parameters as inputs ({', '.join(map(repr, handed[:3]))}), "
                "as graphs of Dynamo do: give `inputs=`, what the graph was called with"
            )

    @property
    def names(self) -> dict[str, str]:
        """What slots are called that are called otherwise now."""
        return {slot: name for slot, name in {**self.target, **self._others}.items() if slot != name}

    @property
    def _others(self) -> dict[str, str]:
        # What is not the module's gives way where a name is needed.
        names = Names([*self.given, *self.unmatched])
        return {name: names.fresh(name) for name in self.unmatched if name in self.given}

    @property
    def unmatched(self) -> list[str]:
        """The slots that get no name of the original."""
        return [name for name in self.state if name not in self.target]

    def state_after(self, made: frozenset[str], *, add_unused: bool) -> State:
        """Return the state with these names, and constants that a tracer made buffers; the same object if nothing differs."""
        slots: dict[str, Slot] = {}
        numbers = TensorIds(self.state)
        for name, own in self.original.slots.items():
            if name in self.given:
                slots[name] = self._slot(self.state[self.given[name]], own)
            elif add_unused and self.whole and own.kind is not SlotKind.CONSTANT and not self._is_held(name):
                slots[name] = numbers.slot(own.value, own.kind, persistent=own.persistent)
        others = self._others
        for name in self.unmatched:
            slot = self.state[name]
            is_made = name in made
            slots[others.get(name, name)] = evolve(slot, kind=SlotKind.CONSTANT, persistent=False) if is_made else slot
        slots = numbered(slots)
        same = tuple(slots) == self.state.order and all(slots[name] is slot for name, slot in self.state.pairs)
        return self.state if same else State(tuple(slots), pmap(slots))

    def _is_held(self, name: str) -> bool:
        return any(is_below(name, held) for held in self.state.modules)

    def _slot(self, slot: Slot, own: Slot) -> Slot:
        if not self.original.tells_kinds:
            if own.kind is SlotKind.PARAMETER and slot.kind is not SlotKind.PARAMETER:
                return evolve(slot, kind=SlotKind.PARAMETER, value=own.value, persistent=True)
            return slot
        if slot.kind is own.kind and slot.persistent == own.persistent and slot.value is own.value:
            return slot
        return evolve(slot, kind=own.kind, value=own.value, persistent=own.persistent)
