"""Names of inputs, as in ``forward``, and of state, as in the original module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Ref
from ...ir.calls.argument_tree import ArgumentTree, leaf_ranges
from ...ir.errors import NamingError
from ...ir.graph import Graph
from ...ir.names import Names, did_you_mean, is_below, is_identifier
from ...ir.program import Program
from ...ir.signature import Signature, StateInput, UserInput
from ...ir.state import Slot, SlotKind, State, exporter_name
from ...ir.tensors import TensorIds, cell_key
from ...ir.verify.findings import short
from ..state import sink_state
from ..transformation import transformation
from .state import Original, is_made, made_constants, original_of, with_state, with_state_inputs

ROOTS = ("L__self___", "self_")
"""Prefixes of names that tracers write for the root, and the exporter omits."""


def exporter_names(program: Program) -> list[str]:
    """Return the exporter's name of each input of the root, before duplicates are numbered.

    >>> from purefx.ir import Graph, Input, ObjectType, Signature
    >>> signature = Signature((UserInput(ObjectType(), "batch['ids']"),))
    >>> exporter_names(Program.of({"": Graph((Input("l_batch_ids_"),), ())}, signature=signature))
    ['batch_ids']
    """
    signature = program.signature
    tree = ArgumentTree.of(signature.in_spec, signature.arg_names)
    leaves = [
        "_".join([word(tree.labels[number]), *map(_of_key, rest)]) for number, rest in tree.places
    ]
    leaf_names = iter(leaves if len(leaves) == len(signature.users) else ())
    found: list[str] = []
    for formal, spec in program.inputs:
        match spec:
            case StateInput(slot=slot):
                below = next((slot[len(root) :] for root in ROOTS if slot.startswith(root)), slot)
                found.append(exporter_name(below, program.state[slot]))
            case UserInput(argument=argument):
                found.append(_identifier(next(leaf_names, word(argument) or formal.name)))
            case _:
                found.append("token")
    return [name.lower() for name in found]


def word(path: str) -> str:
    """Return a path as one word, with ``_`` for invalid characters.

    >>> word("batch['my ids'][0]"), word("lin.weight"), word("args[0]")
    ('batch_my_ids_0', 'lin_weight', 'args_0')
    """
    plain = path.replace("']", "").replace("['", ".").replace("]", "").replace("[", ".")
    return "".join([char if char.isascii() and char.isalnum() else "_" for char in plain])


def _of_key(key: Any) -> str:
    return word(
        str(
            next(
                (getattr(key, field) for field in ("key", "idx", "name") if hasattr(key, field)),
                key,
            )
        )
    )


def _identifier(name: str) -> str:
    if is_identifier(name):
        return name
    return f"{name}_" if is_identifier(f"{name}_") else f"_{name}"


@transformation(
    proven=True,
    laws=[
        "nothing but names changes",
        "an input has the name of its argument, or that with a number where two would have it",
    ],
)
def name_inputs(
    program: Program, names: Iterable[str] | Mapping[str, str] | None = None
) -> Program:
    """Rename the inputs of the root after their arguments or state.

    Before::

        inputs arg0_1 = state "lin.weight", l_batch_ids_ = batch['ids']

    After::

        inputs p_lin_weight = state "lin.weight", batch_ids = batch['ids']

    The default names are those of ``torch.export``: the path of each leaf as one word in lower case, ``p_``, ``b_``, ``c_`` and
    ``obj_`` before parameters, buffers, constants and other objects, ``token`` for tokens.  So a program of ``import_ep`` is
    unchanged.  Equal names are numbered in order.

    Args:
        program: a program at any stage.
        names: a name for each user input, in order, or a mapping from current names or paths to new names.  If such an input is
            a whole positional argument, the argument of the lowered module is renamed, too.

    Returns:
        The program with renamed inputs.

    Raises:
        NamingError: a name is not an identifier, two names are equal, their number is wrong, or an input does not exist.
        TypeError: ``names`` is neither a sequence of names nor a mapping.

    >>> import purefx as px
    >>> signature = px.ir.Signature((px.ir.UserInput(px.ir.ObjectType(), "batch['ids']"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("l_batch_ids_"),), ())}, signature=signature)
    >>> px.name_inputs(program).main.inputs[0].name, px.name_inputs(program, ["ids"]).main.inputs[0].name
    ('batch_ids', 'ids')
    """
    wanted = exporter_names(program)
    requested = {} if names is None else _requested(program, names)
    for position, name in requested.items():
        wanted[position] = name
    found = _settled(program, wanted, requested)
    signature = _signature(program.signature, requested)
    if not found and signature is program.signature:
        return program
    return program.with_main(_renamed(program.main, found), signature=signature)


def _requested(program: Program, names: Iterable[str] | Mapping[str, str]) -> dict[int, str]:
    # The names that the caller passes, by number of the root input.
    users = list(program.signature.users)
    if isinstance(names, str) or not isinstance(names, Iterable):
        message = (
            f"not {short(names)}; write [{names!r}] for one input"
            if isinstance(names, str)
            else f"not {short(names)}"
        )
        raise TypeError(
            f"name_inputs takes names, one for each user input, or a mapping from inputs to names, {message}"
        )
    if isinstance(names, Mapping):
        pairs = {_position(program, users, key): name for key, name in names.items()}
    else:
        listed = list(names)
        if len(listed) != len(users):
            specs: Any = program.signature.inputs
            there = (
                ", ".join([specs[at].argument or program.main.inputs[at].name for at in users])
                or "none"
            )
            raise NamingError(
                f"{len(listed)} names for {len(users)} user inputs: {there}; pass a mapping to name some of them"
            )
        pairs = dict(zip(users, listed, strict=True))
    _check(pairs)
    return pairs


def _check(pairs: Mapping[int, str]) -> None:
    for name in pairs.values():
        if not is_identifier(name):
            raise NamingError(
                f"{short(name)} cannot be the name of an input: it is not an identifier of Python, or a keyword"
            )
    twice = [name for name, times in Counter(pairs.values()).items() if times > 1]
    if twice:
        raise NamingError(f"two inputs cannot both be called {twice[0]!r}")


def _position(program: Program, users: list[int], key: object) -> int:
    known: dict[object, int] = {}
    for position in users:
        spec = program.signature.inputs[position]
        known.setdefault(program.main.inputs[position].name, position)
        known.setdefault(spec.argument if type(spec) is UserInput else "", position)
    if key not in known:
        raise NamingError(
            f"the program has no user input {key!r}{did_you_mean(key, [str(name) for name in known if name])}"
        )
    return known[key]


def _settled(program: Program, wanted: list[str], first: Container[int]) -> dict[str, str]:
    # New names of inputs by old names: first those that the caller passes, then those of the user inputs.
    inputs, specs = program.main.inputs, program.signature.inputs
    order = sorted(
        range(len(inputs)), key=lambda at: (at not in first, type(specs[at]) is not UserInput, at)
    )
    used: set[str] = set()
    moving: list[int] = []
    for at in order:
        name, wish = inputs[at].name, wanted[at]
        stays = name == wish or (
            wish in used and name.startswith(f"{wish}_") and name[len(wish) + 1 :].isdecimal()
        )
        if stays and name not in used:
            used.add(name)
        else:
            used.add(wish)
            moving.append(at)
    names = Names([inputs[at].name for at in set(order).difference(moving)])
    return {inputs[at].name: names.fresh(wanted[at]) for at in moving}


def _renamed(graph: Graph, found: dict[str, str]) -> Graph:
    # A node is renamed if an input gets its name.
    input_names = {found.get(one.name, one.name) for one in graph.inputs}
    names = Names([*input_names, *(node.name for node in graph.nodes)])
    known = {old: Ref(new) for old, new in found.items()}
    known.update(
        {
            node.name: Ref(names.fresh(node.name))
            for node in graph.nodes
            if found and node.name in input_names
        }
    )
    return graph.renamed(known)


def _signature(signature: Signature, requested: dict[int, str]) -> Signature:
    # Positional arguments that are single inputs get the names that the caller passes.
    users = list(signature.users)
    leaves = {
        users[number]: argument
        for argument, number in enumerate(_whole(signature, len(users)))
        if number is not None
    }
    names, inputs = list(signature.arg_names), list(signature.inputs)
    for position, name in requested.items():
        spec, argument = inputs[position], leaves.get(position)
        if argument is None or type(spec) is not UserInput:
            continue
        names += [f"args_{number}" for number in range(len(names), argument + 1)]
        names[argument], inputs[position] = name, evolve(spec, argument=name)
    if tuple(inputs) == signature.inputs and tuple(names) == signature.arg_names:
        return signature
    if len(set(names)) < len(names):
        raise NamingError(
            f"two arguments would have one name: {', '.join(names)}; name both of them"
        )
    return evolve(signature, inputs=tuple(inputs), arg_names=tuple(names))


def _whole(signature: Signature, users: int) -> list[int | None]:
    # The leaf of each positional argument; None if it has several.
    if signature.in_spec is None:
        return list(range(users))
    specs = signature.in_spec.child(0).children()
    return [
        numbers.start if spec.is_leaf() else None
        for spec, numbers in zip(specs, leaf_ranges(specs), strict=True)
    ]


REGISTERED = (SlotKind.PARAMETER, SlotKind.BUFFER)


@transformation(
    proven=True,
    laws=[
        "a tensor of the module has all the names that it has there, and no others",
        "state that the module does not have keeps its name",
        "names that were lost come back",
    ],
)
def restore_names(
    program: Program,
    module: torch.nn.Module | Mapping[str, Any],
    *,
    inputs: Sequence[Any] | None = None,
    add_unused: bool = False,
) -> Program:
    """Rename state as in the module that was traced, with its kinds.

    Before::

        parameter _param_constant0: f32[2, 2]
        w = get _param_constant0

    After::

        parameter embed.weight: f32[2, 2]
        parameter head.weight: f32[2, 2] tied embed.weight
        w = get embed.weight

    A slot with a tensor of the module, or the same view of the same memory with the same dtype, gets its name.  If the module has
    several names for a tensor, all of them exist afterwards.  Kinds (parameter, buffer, saved or not, constant) are those of the
    module; an unwritten buffer ``_tensor_constant0`` that it does not have becomes a constant.  State of the module comes first,
    in the order of the module. State that the program lacks is added only with ``add_unused=True``, so that ``state_dict`` equals
    that of the module; by default, renaming does not make a program larger.

    Args:
        program: a program at any stage, without shared bodies that read state; with ``inputs``, it must be flat.
        module: the original module, or a mapping from names to its tensors, like ``dict(module.named_parameters())`` or
            ``module.state_dict()``; a mapping changes no kinds, except for values that are parameters.
        inputs: the arguments of the traced graph (Dynamo's ``example_inputs``), as pytrees: inputs that are a tensor of the
            module become state, and the lowered module does not take them.
        add_unused: whether to add parameters and buffers of the module that the program lacks.

    Returns:
        The program with these names.

    Raises:
        NamingError: the module has no tensor of the program, or another tensor under one of its names; the program takes
            parameters as inputs, and ``inputs`` is missing; the length of ``inputs`` is not the number of user inputs, or a part
            of an argument would become state; or a tensor is more inputs than it has names.
        UnsupportedProgram: a shared body would have to read one slot under several names, or the program is split and a name is
            in no part.
        PipelineError: ``inputs`` is passed for a program that calls modules.
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
    converted = program if inputs is None else with_state_inputs(program, original, inputs)
    naming = _Naming(converted.state, original)
    passed = [
        formal.name for formal in program.main.inputs if isinstance(formal.val, torch.nn.Parameter)
    ]
    naming.check(passed if inputs is None else [])
    made = made_constants(converted, naming.unmatched) if original.tells_kinds else frozenset[str]()
    state = naming.state_after(made, add_unused=add_unused)
    named = converted
    if state is not converted.state or naming.names:
        named = with_state(
            converted, state, naming.names, {one.path: one for one in original.modules}
        )
    # Reads are inserted below modules, so after the state is renamed.
    return (
        sink_state.apply(named)
        if converted is not program and "state sunk" in program.facts
        else named
    )


class _Naming:
    """Matches slots with tensors of the original, and renames the state."""

    def __init__(self, state: State, original: Original) -> None:
        self.state = state
        self.original = original
        by_key = original.by_key(unless_known=state)
        self.matched: dict[object, list[str]] = {}
        """The slots with each tensor of the original."""
        for name, slot in state.pairs:
            key = cell_key(slot.value)[0]
            if key in by_key and slot.kind is not SlotKind.MODULE and slot.value is not None:
                self.matched.setdefault(key, []).append(name)
        self.sources: dict[str, str] = {}
        """The slot of the program for each original name."""
        self.target: dict[str, str] = {}
        """The new name of each of these slots in reads."""
        for key, slots in self.matched.items():
            self._share_out(slots, by_key[key])

    def _share_out(self, slots: list[str], wanted: list[str]) -> None:
        # A slot with one of the names keeps it; the others get the name of their object, or the next one.
        free = dict.fromkeys(wanted)
        self.target.update({slot: slot for slot in slots if slot in free})
        for slot in slots:
            free.pop(self.target.get(slot, ""), None)
        for slot in slots:
            if slot not in self.target:
                value = self.state[slot].value
                same = next(
                    (name for name in free if self.original.slots[name].value is value), None
                )
                name = same or next(iter(free), None) or wanted[0]
                free.pop(name, None)
                self.target[slot] = name
        for name in wanted:
            named = next((slot for slot in slots if self.target[slot] == name), None)
            value = self.original.slots[name].value  # several objects may be views of one memory
            same = next((slot for slot in slots if self.state[slot].value is value), slots[0])
            self.sources[name] = named or same

    def check(self, parameters: list[str]) -> None:
        """Raise for a module other than the traced one, and for parameters among the inputs without ``inputs=``."""
        original, state = self.original.slots, self.state
        if self.matched:
            strange = [name for name in state if name in original and name not in self.target]
            if strange:
                raise NamingError(
                    f"the module has another tensor under the name {strange[0]!r}: state is identified by its memory, so "
                    f"pass the traced module before its tensors are replaced, moved or copied"
                )
        elif original and any(
            slot.kind in REGISTERED and not is_made(name) for name, slot in state.pairs
        ):
            raise NamingError(
                f"the module has none of the {len(state)} tensors of the program ({', '.join(map(repr, state.order[:3]))} ...): "
                "state is identified by its memory, so pass the traced module itself, not a copy"
            )
        elif parameters and any(slot.kind is SlotKind.PARAMETER for slot in original.values()):
            raise NamingError(
                f"the program takes parameters as inputs ({', '.join(map(repr, parameters[:3]))}), and has no tensor of "
                "the module, like graphs of Dynamo: pass `inputs=`, the arguments of the graph"
            )

    @property
    def names(self) -> dict[str, str]:
        """The new names of renamed slots."""
        return {
            slot: name for slot, name in {**self.target, **self._others}.items() if slot != name
        }

    @property
    def _others(self) -> dict[str, str]:
        # Slots outside of the module are renamed if their names clash with the module's.
        names = Names([*self.sources, *self.unmatched])
        return {name: names.fresh(name) for name in self.unmatched if name in self.sources}

    @property
    def unmatched(self) -> list[str]:
        """The slots that match nothing in the original."""
        return [name for name in self.state if name not in self.target]

    def state_after(self, made: frozenset[str], *, add_unused: bool) -> State:
        """Return the state with these names, and with buffers of tracers as constants; the same object if nothing changes."""
        slots: dict[str, Slot] = {}
        numbers = TensorIds(self.state)
        for name, own in self.original.slots.items():
            if name in self.sources:
                slots[name] = self._slot(self.state[self.sources[name]], own)
            elif (
                add_unused
                and own.kind is not SlotKind.CONSTANT
                and not any(is_below(name, at) for at in self.state.modules)
            ):
                slots[name] = numbers.slot(own.value, own.kind, persistent=own.persistent)
        others = self._others
        for name in self.unmatched:
            slot = self.state[name]
            is_made = name in made
            slots[others.get(name, name)] = (
                evolve(slot, kind=SlotKind.CONSTANT, persistent=False) if is_made else slot
            )
        same = tuple(slots) == self.state.order and all(
            slots[name] is slot for name, slot in self.state.pairs
        )
        return self.state if same else State.of(slots)

    def _slot(self, slot: Slot, own: Slot) -> Slot:
        if not self.original.tells_kinds:
            if own.kind is SlotKind.PARAMETER and slot.kind is not SlotKind.PARAMETER:
                return evolve(slot, kind=SlotKind.PARAMETER, value=own.value, persistent=True)
            return slot
        if slot.kind is own.kind and slot.persistent == own.persistent and slot.value is own.value:
            return slot
        return evolve(slot, kind=own.kind, value=own.value, persistent=own.persistent)
