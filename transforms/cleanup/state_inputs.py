"""``with_state_inputs``: inputs that were given a tensor of the module become state.

One idea: Dynamo and AOTAutograd hand parameters over as arguments; what the graph was called with tells which inputs those are.
The input stays where it is and becomes a state input.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from attrs import evolve

from ...ir.cells import CellNumbers, cell_key
from ...ir.errors import NamingError, PipelineError, UnsupportedProgram
from ...ir.node import Call
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import InputGradient, InputMutation, RestType, Signature, StateInput, StateMutation, UserInput
from ...ir.state import State
from ...ir.torch_private import pytree
from ...ir.verify.kinds import short
from ..transformation import ADVICE
from .original import Original

__all__ = ["with_state_inputs"]


def with_state_inputs(program: Program, original: Original, inputs: Sequence[Any]) -> Program:
    """Return a program in which inputs are state that were given tensors of the original.

    Args:
        program: a flat program; one that calls modules is refused where there is something to do.
        original: the tensors by name.
        inputs: the arguments of a call, as pytrees.

    Raises:
        NamingError: they are not as many as the user inputs, or a part of an argument would become state.
        PipelineError: the program calls modules.
        UnsupportedProgram: constraints or gradients speak of the inputs.
        TypeError: ``inputs`` is no tuple or list.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> with_state_inputs(program, Original({}, tells_kinds=False), ()) is program
    True
    """
    slots = _slots(program, original, _leaves(program, inputs))
    if not slots:
        return program
    if any(type(node.do) is Call for node in program.main.nodes):
        raise PipelineError(f"inputs become state in a program that is 'flat', and this one is not; {ADVICE['flat']}")
    constraints, signature = program.constraints, program.signature
    if constraints.ranges or constraints.guards or any(type(spec) is InputGradient for spec in signature.outputs):
        raise UnsupportedProgram("inputs can not become state: the constraints, or gradients, of the program count its inputs")
    return program.evolve(state=_state(program.state, original, slots), signature=_signature(signature, slots))


def _leaves(program: Program, inputs: Sequence[Any]) -> dict[int, Any]:
    # What each user input was given, by position among the inputs of the root.
    if not isinstance(inputs, tuple | list):
        raise TypeError(f"inputs are the arguments of one call, in a tuple or a list, not {short(inputs)}")
    specs = program.signature.inputs
    users = [at for at, spec in enumerate(specs) if type(spec) is UserInput]
    leaves = pytree.tree_leaves(list(inputs))
    if len(leaves) != len(users):
        raise NamingError(f"inputs are {len(leaves)} values, and the program takes {len(users)}; give those of a whole call")
    pairs = [(at, leaf, specs[at]) for at, leaf in zip(users, leaves, strict=True)]
    return {at: leaf for at, leaf, spec in pairs if type(spec) is UserInput and type(spec.type) is not RestType}


def _slots(program: Program, original: Original, leaves: dict[int, Any]) -> dict[int, str]:
    # The slot that each input becomes: one of the program where it has the tensor already.  Several inputs that are one tensor
    # get its several names: no state is two inputs.
    known: dict[object, list[str]] = {key: list(names) for key, names in original.by_key().items()}
    for name, slot in reversed(program.state.pairs):
        key = cell_key(slot.value)[0]
        if key in known:
            known[key] = [name, *[other for other in known[key] if other != name]]
    taken = {spec.slot for spec in program.signature.inputs if type(spec) is StateInput}
    found: dict[int, str] = {}
    for at, leaf in leaves.items():
        names = known.get(cell_key(leaf)[0]) if isinstance(leaf, torch.Tensor | torch.ScriptObject) else None
        if names:
            found[at] = next((name for name in names if name not in taken), names[0])
            taken.add(found[at])
    return found


def _state(state: State, original: Original, chosen: dict[int, str]) -> State:
    numbers = CellNumbers(state)
    slots = dict(state.pairs)
    for name in dict.fromkeys(chosen.values()):
        if name in slots:
            own = original.slots.get(name)
            if own is not None and cell_key(own.value)[0] != cell_key(slots[name].value)[0]:
                raise NamingError(f"the program has other state under the name {name!r}, which an input would become")
            continue
        own = original.slots[name]
        slots[name] = numbers.slot(own.value, own.kind, persistent=own.persistent)
    return State(tuple(slots), pmap(slots))


def _signature(signature: Signature, slots: dict[int, str]) -> Signature:
    users = [at for at, spec in enumerate(signature.inputs) if type(spec) is UserInput]
    gone = {number for number, at in enumerate(users) if at in slots}
    inputs = tuple([StateInput(slots[at]) if at in slots else spec for at, spec in enumerate(signature.inputs)])
    outputs = tuple(
        [
            StateMutation(slots[spec.index]) if type(spec) is InputMutation and spec.index in slots else spec
            for spec in signature.outputs
        ]
    )
    in_spec, names = _arguments(signature, gone, len(users))
    return evolve(signature, inputs=inputs, outputs=outputs, in_spec=in_spec, arg_names=names)


def _arguments(signature: Signature, gone: set[int], users: int) -> tuple[Any, tuple[str, ...]]:
    # The pytree of the arguments without those that are state now, and the names of those that are left.
    names = signature.arg_names
    if signature.in_spec is None:
        return None, tuple([name for at, name in enumerate(names) if at not in gone]) if len(names) == users else names
    args_spec, kwargs_spec = signature.in_spec.children()
    args, keys = args_spec.children(), list(kwargs_spec.context)
    # Types of the user's are not put together for this: their specs stay as they are.
    leaves = iter(range(signature.in_spec.num_leaves))
    taken = [set(islice(leaves, spec.num_leaves)) for spec in (*args, *kwargs_spec.children())]
    left = [at for at in range(len(args)) if not _is_gone(taken[at], gone, names[at] if at < len(names) else f"args[{at}]")]
    named = zip(keys, kwargs_spec.children(), taken[len(args) :], strict=True)
    kept = {key: spec for key, spec, found in named if not _is_gone(found, gone, str(key))}
    positional = [names[at] for at in left if at < len(names)]
    rest = [name for name in names[len(args) :] if name not in keys or name in kept]
    parts = [
        pytree.TreeSpec(tuple, None, [args[at] for at in left]),
        pytree.TreeSpec(dict, list(kept), list(kept.values())),
    ]
    return pytree.TreeSpec(tuple, None, parts), (*positional, *rest)


def _is_gone(leaves: set[int], gone: set[int], argument: str) -> bool:
    if leaves and leaves <= gone:
        return True
    if leaves & gone:
        raise NamingError(
            f"of the argument {argument!r} some tensors are the module's and some are not, so it can not become state; "
            "trace with the parameters in an argument of their own"
        )
    return False
