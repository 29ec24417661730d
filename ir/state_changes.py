"""Changes of the state of a program: slots that are added, and slots that go when nothing uses them.

``Program.with_state`` is the public way; rules, edits and clean-up stand on the same functions.  Nothing here reads or writes a
tensor, and no node is made: what reads new state is written by whoever adds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from .calls.call_graph import all_instances
from .calls.parts import part_names, with_listed
from .errors import NamingError
from .graph import Get, Input, Node, place_of
from .names import did_you_mean, join
from .program import Program, state_changed
from .signature import InputMutation, InputSpec, StateGradient, StateInput, StateMutation, UserInput
from .state import Slot, SlotKind, exporter_name
from .tensors import TensorIds


def with_slots(program: Program, added: Mapping[str, Slot]) -> Program:
    """Return a program with more state: behind what the module and those below it have, as a module that registers it last.

    Args:
        program: any valid program.
        added: by path; numbered as the state of the program is (``TensorIds``).

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> with_slots(program, {"lin.w": Slot(SlotKind.BUFFER, torch.ones(2), 0, 0)}).state.order
    ('lin.w',)
    """
    owners = [name.rpartition(".")[0] for name in added]
    return program.evolve(state=program.state.with_slots(added), modules=with_listed(program.modules, owners))


def without_slots(program: Program, gone: Iterable[str]) -> Program:
    """Return a program without some state, and without the inputs that it was; the same object if it has none of it.

    Args:
        program: any valid program.
        gone: slots that nothing uses (``state_uses``).
    """
    slots = frozenset(gone)
    if slots.isdisjoint(program.state.order):
        return program
    left = [(formal, spec) for formal, spec in program.inputs if type(spec) is not StateInput or spec.slot not in slots]
    if len(left) < len(program.inputs):
        main = program.main.with_nodes(program.main.nodes, inputs=tuple([formal for formal, _ in left]))
        program = program.with_boundary(main, [spec for _, spec in left])
    lifted = tuple([place for place in program.signature.lifted if place.slot not in slots])
    return program.evolve(state=program.state.without(slots), signature=evolve(program.signature, lifted=lifted))


def state_uses(program: Program) -> Mapping[str, Node | None]:
    """Return the slots that something uses, each with a node that does; None where the signature promises it or returns it.

    Args:
        program: a program at any stage.  An input that nothing uses is no use of its slot.

    >>> from purefx.ir import Graph
    >>> node = Node("w", Get("weight"))
    >>> dict(state_uses(Program.of({"": Graph((), (node,))}))) == {"weight": node}
    True
    """
    specs = program.signature.outputs
    found: dict[str, Node | None] = {spec.slot: None for spec in specs if isinstance(spec, StateMutation | StateGradient)}
    main, by_name = program.main, program.main.by_name
    returned, mutated = main.output_refs(), {spec.index for spec in specs if type(spec) is InputMutation}
    for number, (formal, spec) in enumerate(program.inputs):
        if type(spec) is StateInput and (formal.name in main.users or formal.name in returned or number in mutated):
            users = main.users.get(formal.name)
            found.setdefault(spec.slot, by_name[users[0]] if users else None)
    for name, paths in all_instances(program).items():
        reads = [(node, node.do.slot) for node in program.graphs[name].nodes if type(node.do) is Get]
        for path in paths if reads else ():
            for node, slot in reads:
                found.setdefault(join(path, slot), node)
    return found


def _changed(program: Program, add: Mapping[str, Any], remove: Iterable[str]) -> Program:
    if isinstance(remove, str):
        raise TypeError(f"remove is a list of paths, not {remove!r}: write [{remove!r}]")
    program = _without(program, list(dict.fromkeys(remove)))
    if not add:
        return program
    ids = TensorIds(program.state)
    added = {path: _slot(path, value, ids) for path, value in add.items()}
    tied = {slot.cell: (path, slot.kind) for path, slot in reversed(program.state.pairs)}
    for path, slot in added.items():
        _check_place(program, path, added)
        there, kind = tied.setdefault(slot.cell, (path, slot.kind))
        if kind is not slot.kind:
            raise NamingError(
                f"{path!r} would be a {slot.kind.value} and is the same tensor as {there!r}, a {kind.value}: clone it, or "
                f"give px.ir.Slot(px.ir.SlotKind.{kind.name}, ...)"
            )
    program = with_slots(program, added)
    return _with_inputs(program, added) if "state as inputs" in program.facts else program


def _without(program: Program, gone: Sequence[str]) -> Program:
    for path in gone:
        if path not in program.state:
            raise NamingError(f"no state is called {path!r}{did_you_mean(path, program.state)}")
    renamed = _under_other_names(program, gone)
    used = state_uses(renamed) if gone else {}
    for path in gone:
        if path in used:
            user = used[path]
            by = place_of(user) if user is not None else "the signature of the program"
            raise NamingError(f"the state {path!r} is used by {by}, so it cannot go: let something else be used there first")
    return without_slots(renamed, gone)


def _under_other_names(program: Program, gone: Sequence[str]) -> Program:
    # An input that is a tensor with several names is called after one that stays.
    state, specs = program.state, program.signature.inputs
    taken = {spec.slot for spec in specs if type(spec) is StateInput}
    others: dict[str, str] = {}
    for path in gone:
        left = [name for name in state.by_cell[state[path].cell] if name not in gone]
        if path in taken and left and taken.isdisjoint(left):
            others[path] = left[0]
            taken.add(left[0])
    return program.evolve(signature=program.signature.with_slots(lambda slot: others.get(slot, slot))) if others else program


def _with_inputs(program: Program, added: Mapping[str, Slot]) -> Program:
    # One for each tensor that none is yet, behind those of the other state.
    state, names, pairs = program.state, program.main.names(), list(program.inputs)
    given = {state[spec.slot].cell for _, spec in pairs if type(spec) is StateInput}
    new: list[tuple[Input, InputSpec]] = []
    for path, slot in added.items():
        if slot.cell not in given:
            given.add(slot.cell)
            new.append((Input(names.fresh(exporter_name(path, slot))), StateInput(path)))
    place = next((number for number, (_, spec) in enumerate(pairs) if type(spec) is UserInput), len(pairs))
    pairs[place:place] = new
    main = program.main.with_nodes(program.main.nodes, inputs=tuple([formal for formal, _ in pairs]))
    return program.with_boundary(main, [spec for _, spec in pairs]) if new else program


def _slot(path: str, value: Any, ids: TensorIds) -> Slot:
    if isinstance(value, Slot):
        return ids.renumbered(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"the state {path!r} is a {type(value).__name__}: give a torch.nn.Parameter, a tensor (a persistent buffer), or a "
            "px.ir.Slot, which says its kind"
        )
    kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
    return ids.slot(value, kind, persistent=True)


def _check_place(program: Program, path: str, added: Mapping[str, Slot]) -> None:
    if type(path) is not str or not all(path.split(".")):
        raise NamingError(f"{path!r} cannot be the path of state: write names with dots between, 'layers.0.weight'")
    if path in program.state:
        raise NamingError(f"there is a state {path!r} already: remove it first, or choose another name")
    if any(module.path == path for module in program.modules):
        raise NamingError(f"{path!r} is a module: choose another name for its new state")
    for end in range(1, path.count(".") + 1):
        above = ".".join(path.split(".")[:end])
        if above in program.state or above in added:
            raise NamingError(f"{path!r} would be inside of {above!r}, which is a tensor: choose another name")
    parts = part_names(program)
    if parts and path.partition(".")[0] not in parts:
        raise NamingError(f"the program is split, so its state lies in the parts {', '.join(parts)}, and {path!r} is in none")


state_changed.register(Program, _changed)
