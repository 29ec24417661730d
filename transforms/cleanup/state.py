"""Rename state everywhere in a program, and turn inputs into state.

``Original`` has the names of the tensors of the traced module.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.calls.argument_tree import leaf_ranges
from ...ir.calls.call_graph import all_instances
from ...ir.calls.parts import part_names, with_listed
from ...ir.effects.resolved import written_slots
from ...ir.errors import NamingError, PipelineError, UnsupportedProgram
from ...ir.graph import Get, Graph
from ...ir.importing.constants import with_constants
from ...ir.importing.traced import Attributes
from ...ir.names import FROM_ROOT, is_dotted_path, join, last_name, parent_of, relative
from ...ir.program import Module, Program
from ...ir.rewriter import Relocation
from ...ir.signature import (
    InputGradient,
    InputMutation,
    RestType,
    Signature,
    StateInput,
    StateMutation,
)
from ...ir.state import Slot, SlotKind, State, registered_kind
from ...ir.tensors import TensorIds, cell_key
from ...ir.torch_private import pytree
from ...ir.verify.findings import short
from ..transformation import ADVICE, transformation

MADE = "_tensor_constant"
"""Names that tracers of torch give to tensors outside of the module; a number follows."""


def made_constants(program: Program, names: Iterable[str]) -> frozenset[str]:
    """Return the slots that are constants, although a tracer registered them as buffers.

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
    memory = {state[slot].storage for slot in written_slots(program)}
    return frozenset(name for name in found if state[name].storage not in memory)


def is_made(name: str) -> bool:
    """Return whether a tracer gives this name to tensors outside of the module.

    >>> is_made("_tensor_constant0"), is_made("a._tensor_constant12"), is_made("_tensor_constant")
    (True, True, False)
    """
    word = last_name(name)
    return word.startswith(MADE) and word[len(MADE) :].isdecimal()


@transformation(
    proven=True,
    forgets={"state as inputs"},
    laws=[
        "no object is among the arguments afterwards",
        "one object is one slot",
        "only reads are added",
    ],
)
def lift_constants(program: Program) -> Program:
    """Turn tensors, script objects and other objects among operands into state.

    Before::

        y = aten.mul.Tensor(x, tensor(3.))                  in scale

    After::

        y_constant = get scale._constant0                   in scale
        y = aten.mul.Tensor(x, y_constant)                  in scale

    Each object becomes one slot, in the innermost module around all of its users; an object that is already state is read from
    its slot.  A ``torch.nn.Parameter`` becomes a parameter, anything else a constant, which ``state_dict`` does not have.

    A program with tensors among its arguments is not valid: it is unknown which of them share memory, and so which nodes may be
    reordered.  This is the only transformation that accepts such a program, so run it directly after the rewrite.  It takes no
    fuel, because a program with only some of its constants lifted is not valid.

    Args:
        program: a program at any stage, valid except for objects among the arguments.  In a flat program that takes its state as
            inputs they become reads, too; ``lift_state`` turns them into inputs.

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


@frozen
class Original:
    """The tensors and other objects of a module, by name, in the order in which it declares them."""

    slots: Mapping[str, Slot]
    tells_kinds: bool
    """Whether their kinds are known: of a module all, of a mapping only those of parameters."""
    modules: tuple[Module, ...] = ()

    def by_key(self, unless_known: Container[str] = ()) -> dict[object, list[str]]:
        """Return the names of each tensor; of parameters and buffers only registered names, not plain attributes."""
        found: dict[object, list[str]] = {}
        for name, slot in self.slots.items():  # constants are the last
            names = found.setdefault(cell_key(slot.value)[0], [])
            if slot.kind is not SlotKind.CONSTANT or not names or name in unless_known:
                names.append(name)
        return found


def original_of(source: torch.nn.Module | Mapping[str, Any]) -> Original:
    """Return the names of the tensors of a module, or of a mapping from names to tensors.

    Raises:
        NamingError: a name is not a path, or a value of a mapping is neither a tensor nor a script object.
        TypeError: ``source`` is neither a module nor a mapping.

    >>> list(original_of(torch.nn.Linear(2, 2)).slots)
    ['weight', 'bias']
    """
    if isinstance(source, torch.nn.Module):
        return _original_of(source)
    if not isinstance(source, Mapping):
        expected = "the module that was traced, or a mapping from names to its tensors"
        raise TypeError(f"restore_names takes {expected}, not {short(source)}")
    slots: dict[str, Slot] = {}
    for name, value in source.items():
        if not is_dotted_path(name):
            raise NamingError(
                f"{short(name)} cannot be the name of state: names are separated by dots, without quotes"
            )
        if not isinstance(value, torch.Tensor | torch.ScriptObject):
            raise NamingError(
                f"{name!r} is {short(value)}, and only tensors and script objects have names"
            )
        slots[name] = Slot(registered_kind(value), value, 0, 0)
    return Original(slots, tells_kinds=False)


def _original_of(module: torch.nn.Module) -> Original:
    attributes = Attributes(module)
    for path, holder in attributes.modules.items():
        for name, value in vars(holder).items():
            if isinstance(value, torch.Tensor | torch.ScriptObject) and is_dotted_path(name):
                attributes.constants.setdefault(join(path, name), value)
    return Original(
        dict(attributes.state().pairs), tells_kinds=True, modules=attributes.hierarchy({})
    )


def with_state(
    program: Program, state: State, names: Mapping[str, str], modules: Mapping[str, Module]
) -> Program:
    """Return a program with other state.

    Args:
        program: any valid program.
        state: the new state.
        names: the new names of renamed slots.
        modules: the known modules that hold the new state, by path.

    Raises:
        UnsupportedProgram: a body that several modules share would have to read state under several names, or state would
            leave the parts of a split program.

    >>> from purefx.ir import Node, Slot, SlotKind, pmap
    >>> slot = Slot(SlotKind.BUFFER, None, 0, 0)
    >>> program = Program.of({"": Graph((), (Node("w", Get("c")),))}, state=State(("c",), pmap({"c": slot})))
    >>> with_state(program, State(("lin.w",), pmap({"lin.w": slot})), {"c": "lin.w"}, {}).main.nodes[0].do
    Get(slot='lin.w')
    """
    _check_parts(program, state)
    graphs: dict[str, Graph] = {}
    for name, places in all_instances(program).items() if names else ():
        # Only slots: modules keep their paths, and so do calls and stacks.
        named = Relocation(partial(_slot, graph=name, places=places, names=names))
        nodes = [
            node.evolve(do=named.do(node.do)) if type(node.do) is Get else node
            for node in program.graphs[name].nodes
        ]
        graphs[name] = program.graphs[name].with_nodes(nodes)
    owners = [parent_of(slot) for slot in state.order]
    listed = with_listed(
        program.modules, owners, {path: module.type_name for path, module in modules.items()}
    )
    signature = (
        program.signature.with_slots(lambda slot: names.get(slot, slot))
        if names
        else program.signature
    )
    return program.with_graphs(graphs).evolve(state=state, signature=signature, modules=listed)


def _check_parts(program: Program, state: State) -> None:
    parts = part_names(program)
    strange = (
        [
            name
            for name in state
            if name not in program.state and name.partition(".")[0] not in parts
        ]
        if parts
        else []
    )
    if strange:
        raise UnsupportedProgram(
            f"the program is split, and {strange[0]!r} is in none of its parts: restore names before split_by_tags, or join the "
            "parts first"
        )


def _slot(slot: str, graph: str, places: tuple[str, ...], names: Mapping[str, str]) -> str:
    olds = [join(place, slot) for place in places]
    news = [names.get(old, old) for old in olds]
    if news == olds:
        return slot
    ways = {relative(new, place) for new, place in zip(news, places, strict=True)}
    if len(ways) == 1:
        return ways.pop()
    if len(set(news)) == 1:
        return FROM_ROOT + news[0]
    raise UnsupportedProgram(
        f"the body {graph!r} is shared by {', '.join(map(repr, places[:3]))}, and its slot {slot!r} would be renamed to "
        f"{', '.join(map(repr, news[:3]))}; restore names before deduplicate, or expand the program first"
    )


def with_state_inputs(program: Program, original: Original, inputs: Sequence[Any]) -> Program:
    """Return a program in which inputs that are tensors of the original become state.

    Args:
        program: a flat program; a program that calls modules is refused if an input becomes state.
        original: the tensors by name.
        inputs: the arguments of a call, as pytrees.

    Raises:
        NamingError: their number is not that of the user inputs, a part of an argument would become state, or a tensor is more
            inputs than it has names.
        PipelineError: the program calls modules.
        UnsupportedProgram: constraints or gradients refer to the inputs.
        TypeError: ``inputs`` is not a tuple or list.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> with_state_inputs(program, Original({}, tells_kinds=False), ()) is program
    True
    """
    slots = _slots(program, original, _leaves(program, inputs))
    if not slots:
        return program
    if program.main.called:
        raise PipelineError(
            f"inputs become state in a program that is 'flat', but this one is not; {ADVICE['flat']}"
        )
    constraints, signature = program.constraints, program.signature
    if (
        constraints.ranges
        or constraints.guards
        or any(type(spec) is InputGradient for spec in signature.outputs)
    ):
        raise UnsupportedProgram(
            "inputs cannot become state: the constraints, or gradients, of the program count its inputs"
        )
    state = _state(program.state, original, slots)
    owners, types = (
        [parent_of(slot) for slot in state.order],
        {one.path: one.type_name for one in original.modules},
    )
    listed = with_listed(program.modules, owners, types)
    return program.evolve(state=state, signature=_signature(signature, slots), modules=listed)


def _leaves(program: Program, inputs: Sequence[Any]) -> dict[int, Any]:
    # The arguments that were passed for the user inputs, by number of the root input.
    if not isinstance(inputs, tuple | list):
        raise TypeError(
            f"inputs are the arguments of one call, in a tuple or a list, not {short(inputs)}"
        )
    users = program.signature.users
    leaves = pytree.tree_leaves(list(inputs))
    if len(leaves) != len(users):
        raise NamingError(
            f"inputs are {len(leaves)} values, but the program takes {len(users)}; pass those of a whole call"
        )
    return {
        at: leaf
        for at, leaf in zip(users, leaves, strict=True)
        if type(users[at].type) is not RestType
    }


def _slots(program: Program, original: Original, leaves: dict[int, Any]) -> dict[int, str]:
    # The slot that each input becomes: that of the program if it has the tensor.  Several inputs that are one tensor get its
    # several names: each piece of state is one input.
    known: dict[object, list[str]] = {key: list(names) for key, names in original.by_key().items()}
    for name, slot in reversed(program.state.pairs):
        key = cell_key(slot.value)[0]
        if key in known:
            known[key] = [name, *[other for other in known[key] if other != name]]
    used = set(program.state_inputs.values())
    found: dict[int, str] = {}
    for at, leaf in leaves.items():
        names = (
            known.get(cell_key(leaf)[0])
            if isinstance(leaf, torch.Tensor | torch.ScriptObject)
            else None
        )
        if names:
            name = next((name for name in names if name not in used), None)
            if name is None:
                raise NamingError(
                    f"several inputs are the tensor {names[0]!r}, but state cannot be two inputs: trace with it in one argument"
                )
            found[at] = name
            used.add(name)
    return found


def _state(state: State, original: Original, chosen: dict[int, str]) -> State:
    numbers = TensorIds(state)
    slots = dict(state.pairs)
    for name in dict.fromkeys(chosen.values()):
        if name in slots:
            own = original.slots.get(name)
            if own is not None and cell_key(own.value)[0] != cell_key(slots[name].value)[0]:
                raise NamingError(
                    f"the program has other state under the name {name!r}, which an input would become"
                )
            continue
        own = original.slots[name]
        slots[name] = numbers.slot(own.value, own.kind, persistent=own.persistent)
    return State.of(slots)


def _signature(signature: Signature, slots: dict[int, str]) -> Signature:
    users = list(signature.users)
    gone = {number for number, at in enumerate(users) if at in slots}
    inputs = tuple(
        [StateInput(slots[at]) if at in slots else spec for at, spec in enumerate(signature.inputs)]
    )
    outputs = tuple(
        [
            StateMutation(slots[spec.index])
            if type(spec) is InputMutation and spec.index in slots
            else spec
            for spec in signature.outputs
        ]
    )
    in_spec, names = _arguments(signature, gone, len(users))
    return evolve(signature, inputs=inputs, outputs=outputs, in_spec=in_spec, arg_names=names)


def _arguments(signature: Signature, gone: set[int], users: int) -> tuple[Any, tuple[str, ...]]:
    # The pytree of the arguments without those that are state now, and the names of the others.
    names = signature.arg_names
    if signature.in_spec is None:
        return None, tuple([name for at, name in enumerate(names) if at not in gone]) if len(
            names
        ) == users else names
    args_spec, kwargs_spec = signature.in_spec.children()
    args, keys = args_spec.children(), list(kwargs_spec.context)
    # Containers of user types cannot be reconstructed, so their specs stay.
    ranges = [set(numbers) for numbers in leaf_ranges([*args, *kwargs_spec.children()])]
    left = [
        at
        for at in range(len(args))
        if not _is_gone(ranges[at], gone, names[at] if at < len(names) else f"args[{at}]")
    ]
    named = zip(keys, kwargs_spec.children(), ranges[len(args) :], strict=True)
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
            f"some tensors of the argument {argument!r} are the module's and some are not, so it cannot become state; "
            "trace with the parameters in a separate argument"
        )
    return False
