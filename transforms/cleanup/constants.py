"""``lift_constants`` and ``mark_non_persistent``: constants become state with a name, and leave ``state_dict`` where they should.

Buffers that a tracer made of constants are distinguished from those of the module.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from attrs import evolve

from ...ir.effects.resolved import node_effects, summary
from ...ir.errors import NamingError
from ...ir.importing.constants import with_constants
from ...ir.names import join
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import StateInput, StateMutation
from ...ir.state import SlotKind, State
from ...ir.torch_private import unsaved_buffers
from ..transformation import UNLIMITED, Fuel, transformation
from .state import near_or_there

__all__ = ["is_made", "lift_constants", "made_constants", "mark_non_persistent"]

MADE = "_tensor_constant"
"""How tracers of torch call a tensor that no module has; a number follows."""


def made_constants(program: Program, names: Iterable[str]) -> frozenset[str]:
    """Return the slots among some that are constants which a tracer registered as buffers.

    Args:
        program: any valid program.
        names: slots of it.

    >>> from purefx.ir import Graph
    >>> made_constants(Program.of({"": Graph((), ())}), ())
    frozenset()
    """
    state = program.state
    found = {name for name in names if state[name].kind is SlotKind.BUFFER and is_made(name)}
    if not found:
        return frozenset()
    does = summary(program.main, node_effects(program, program.main))
    inputs = {formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput}
    written = [*does.writes_slots, *(inputs[name] for name in does.writes if name in inputs)]
    written += [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    memory = {state[slot].storage for slot in written}
    return frozenset(name for name in found if state[name].storage not in memory)


def is_made(name: str) -> bool:
    """Return whether a tracer calls a tensor so that no module has.

    >>> is_made("_tensor_constant0"), is_made("a._tensor_constant12"), is_made("_tensor_constant")
    (True, True, False)
    """
    word = name.rpartition(".")[2]
    return word.startswith(MADE) and word[len(MADE) :].isdecimal()


@transformation(
    proven=True,
    forgets={"state as inputs"},
    laws=["no object is among the arguments afterwards", "one object is one slot", "only reads are added"],
)
def lift_constants(program: Program) -> Program:
    """Turn tensors, script objects and other objects among operands into state.

    Before::

        y = aten.mul.Tensor(x, tensor(3.))                  in scale

    After::

        y_constant = get scale._constant0                   in scale
        y = aten.mul.Tensor(x, y_constant)                  in scale

    One object is one slot, of the innermost module around all that use it; an object that is state already is read from where
    it is.  A ``torch.nn.Parameter`` becomes a parameter, anything else a constant, which ``state_dict`` does not have.

    A program with tensors among its arguments is not valid: nothing would say which of them share memory, so nothing could say
    which nodes may change places.  This is the one transformation that takes such a program, so let it be the first after the
    rewrite.  It takes no fuel, because a program with half of its constants is not a program.

    Args:
        program: a program at any stage, valid but for objects among the arguments.  In a flat program that takes its state as
            inputs they are reads all the same; ``lift_state`` makes inputs of them.

    Returns:
        The program with the constants in its state.

    Raises:
        UnsupportedProgram: a literal is a module, or a fake tensor.

    >>> import torch, purefx as px
    >>> node = px.Node("y", px.Op("toy.mul"), (px.Ref("x"), torch.tensor(3.0)), stack=(px.Frame("scale"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), px.Ref("y"))})
    >>> lifted = px.lift_constants(program)
    >>> lifted.main.nodes[0].do, lifted.main.nodes[1].args, lifted.state["scale._constant0"].value
    (Get(slot='scale._constant0'), (Ref(name='x'), Ref(name='y_constant')), tensor(3.))
    """
    return with_constants(program)


@transformation(proven=True, laws=["only those buffers are left out of the saved state", "no graph changes"])
def mark_non_persistent(program: Program, buffers: Iterable[str] | torch.nn.Module, *, fuel: Fuel = UNLIMITED) -> Program:
    """Leave buffers out of ``state_dict``.

    Before::

        buffer mask: f32[4, 4]

    After::

        buffer mask: f32[4, 4] not_persistent

    Args:
        program: a program at any stage.
        buffers: names of buffers; or the original module, of which the names of those are taken that it does not save (the
            program need not have all of them).
        fuel: a rewrite is one buffer, in the order of the state.

    Returns:
        The program whose buffers of these names are not saved; a tensor with a second name stays saved under that.

    Raises:
        NamingError: there is no such state, or it is not a buffer.
        TypeError: ``buffers`` is neither names nor a module.

    >>> import torch, purefx as px
    >>> slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    >>> program = px.Program.of({"": px.Graph((), ())}, state=px.ir.State(("mask",), px.ir.pmap({"mask": slot})))
    >>> px.mark_non_persistent(program, ["mask"]).state["mask"].persistent
    False
    """
    wanted = _of_module(program.state, buffers) if isinstance(buffers, torch.nn.Module) else _named(program.state, buffers)
    chosen = [name for name, slot in program.state.pairs if name in wanted and slot.persistent and fuel.burn("leave out", name)]
    if not chosen:
        return program
    slots = dict(program.state.pairs)
    slots.update({name: evolve(slots[name], persistent=False) for name in chosen})
    return program.evolve(state=State(program.state.order, pmap(slots)))


def _of_module(state: State, module: torch.nn.Module) -> set[str]:
    found: set[str] = set()
    for path, inner in module.named_modules(remove_duplicate=False):
        found.update([join(path, name) for name in unsaved_buffers(inner)])
    return {name for name in found if name in state and state[name].kind is SlotKind.BUFFER}


def _named(state: State, names: Iterable[str]) -> set[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        given = repr(names) if isinstance(names, str) else f"a {type(names).__name__}"
        raise TypeError(f'mark_non_persistent takes names of buffers, or a module, not {given}; write ["mask"] for one buffer')
    wanted = list(names)
    faults = [_fault(state, name) for name in wanted]
    if any(faults):
        raise NamingError("buffers cannot be left out: " + "; ".join(filter(None, faults)))
    return set(wanted)


def _fault(state: State, name: object) -> str:
    if name not in state:
        buffers = [known for known, slot in state.pairs if slot.kind is SlotKind.BUFFER]
        return f"there is no state {name!r}{near_or_there(name, buffers or state.order)}"
    kind = state[str(name)].kind
    if kind is SlotKind.CONSTANT:
        return f"{name!r} is a constant, which is never saved"
    return "" if kind is SlotKind.BUFFER else f"{name!r} is a {kind.value}, no buffer"
