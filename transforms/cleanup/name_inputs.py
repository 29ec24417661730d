"""``name_inputs``: the inputs of the root are named as the exporter names them, after the caller's arguments.

Values in graphs follow; contents and order stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

from attrs import evolve

from ...ir.arguments import Ref
from ...ir.calls.argument_tree import ArgumentTree, leaf_ranges
from ...ir.errors import NamingError
from ...ir.graph import Graph
from ...ir.names import Names, is_identifier
from ...ir.program import Program
from ...ir.signature import Signature, StateInput, UserInput
from ...ir.state import exporter_name
from ...ir.verify.findings import short
from ..transformation import UNLIMITED, Fuel, transformation
from .state import near_or_there

__all__ = ["exporter_names", "name_inputs", "word"]

ROOTS = ("L__self___", "self_")
"""How tracers call the root at the beginning of a name; the exporter leaves it out."""


def exporter_names(program: Program) -> list[str]:
    """Return the name of each input of the root, as the exporter would give it before it looks for clashes.

    >>> from purefx.ir import Graph, Input, ObjectType, Signature
    >>> signature = Signature((UserInput(ObjectType(), "batch['ids']"),))
    >>> exporter_names(Program.of({"": Graph((Input("l_batch_ids_"),), ())}, signature=signature))
    ['batch_ids']
    """
    signature = program.signature
    tree = ArgumentTree.of(signature.in_spec, signature.arg_names)
    leaves = ["_".join([word(tree.labels[number]), *map(_of_key, rest)]) for number, rest in tree.places]
    told = iter(leaves if len(leaves) == sum(type(spec) is UserInput for spec in signature.inputs) else ())
    found: list[str] = []
    for formal, spec in program.inputs:
        match spec:
            case StateInput(slot=slot):
                found.append(exporter_name(_below_root(slot), program.state[slot]))
            case UserInput(argument=argument):
                found.append(_identifier(next(told, word(argument) or formal.name)))
            case _:
                found.append("token")
    return [name.lower() for name in found]


def word(path: str) -> str:
    """Return a path as one word: ``_`` for whatever cannot be in a name.

    >>> word("batch['my ids'][0]"), word("lin.weight"), word("args[0]")
    ('batch_my_ids_0', 'lin_weight', 'args_0')
    """
    plain = path.replace("']", "").replace("['", ".").replace("]", "").replace("[", ".")
    return "".join([char if char.isascii() and char.isalnum() else "_" for char in plain])


def _of_key(key: Any) -> str:
    for field in ("key", "idx", "name"):
        if hasattr(key, field):
            return word(str(getattr(key, field)))
    return word(str(key))


def _below_root(slot: str) -> str:
    return next((slot[len(root) :] for root in ROOTS if slot.startswith(root)), slot)


def _identifier(name: str) -> str:
    if is_identifier(name):
        return name
    return f"{name}_" if is_identifier(f"{name}_") else f"_{name}"


@transformation(
    proven=True,
    laws=["nothing but names changes", "an input has the name of its argument, or that with a number where two would have it"],
)
def name_inputs(program: Program, names: Iterable[str] | Mapping[str, str] | None = None, *, fuel: Fuel = UNLIMITED) -> Program:
    """Call the inputs of the root what the caller calls the arguments, and what state they are.

    Before::

        inputs arg0_1 = state "lin.weight", l_batch_ids_ = batch['ids']

    After::

        inputs p_lin_weight = state "lin.weight", batch_ids = batch['ids']

    Without ``names`` they are those that ``torch.export`` gives: the path of each leaf as one word in small letters, ``p_``,
    ``b_``, ``c_`` and ``obj_`` before parameters, buffers, constants and other objects, ``token`` for tokens.  So a program of
    ``import_ep`` is left as it is.  Two inputs that would have one name are numbered in order.

    Args:
        program: a program at any stage.
        names: a name for each user input, in order, or for some by the name or the path that they have now.  Where such an
            input is a whole positional argument, callers of the lowered module call it that as well.
        fuel: a rewrite is one input, in order.

    Returns:
        The program whose root has these inputs.

    Raises:
        NamingError: a name is not an identifier, there is not one for each user input, two are equal, or there is no such input.
        TypeError: ``names`` is neither names nor a mapping.

    >>> import purefx as px
    >>> signature = px.ir.Signature((px.ir.UserInput(px.ir.ObjectType(), "batch['ids']"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("l_batch_ids_"),), ())}, signature=signature)
    >>> px.name_inputs(program).main.inputs[0].name, px.name_inputs(program, ["ids"]).main.inputs[0].name
    ('batch_ids', 'ids')
    """
    wanted = exporter_names(program)
    given = {} if names is None else _given(program, names)
    for position, name in given.items():
        wanted[position] = name
    found = _settled(program, wanted, given, fuel)
    signature = _signature(program.signature, given if not fuel.refused else {})
    if not found and signature is program.signature:
        return program
    return program.with_main(_renamed(program.main, found), signature=signature)


def _given(program: Program, names: Iterable[str] | Mapping[str, str]) -> dict[int, str]:
    # What the caller says, by position among the inputs of the root.
    users = [position for position, spec in enumerate(program.signature.inputs) if type(spec) is UserInput]
    if isinstance(names, str) or not isinstance(names, Iterable):
        said = f"not {short(names)}; write [{names!r}] for one input" if isinstance(names, str) else f"not {short(names)}"
        raise TypeError(f"name_inputs takes names, one for each user input, or a mapping from inputs to names, {said}")
    if isinstance(names, Mapping):
        pairs = {_position(program, users, key): name for key, name in names.items()}
    else:
        listed = list(names)
        if len(listed) != len(users):
            there = ", ".join([_shown(program, position) for position in users]) or "none"
            raise NamingError(f"{len(listed)} names for {len(users)} user inputs: {there}; give a mapping to name some of them")
        pairs = dict(zip(users, listed, strict=True))
    _check(pairs)
    return pairs


def _check(pairs: Mapping[int, str]) -> None:
    for name in pairs.values():
        if not is_identifier(name):
            raise NamingError(f"{short(name)} cannot be the name of an input: it is not an identifier of Python, or a keyword")
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
        raise NamingError(f"there is no user input {key!r}{near_or_there(key, [str(name) for name in known if name])}")
    return known[key]


def _shown(program: Program, position: int) -> str:
    spec = program.signature.inputs[position]
    return (spec.argument if type(spec) is UserInput else "") or program.main.inputs[position].name


def _settled(program: Program, wanted: list[str], first: Container[int], fuel: Fuel) -> dict[str, str]:
    # New names of inputs by their old ones: those that the caller gave come first, then those of the user inputs.
    inputs, specs = program.main.inputs, program.signature.inputs
    order = sorted(range(len(inputs)), key=lambda at: (at not in first, type(specs[at]) is not UserInput, at))
    taken: set[str] = set()
    moving: list[int] = []
    for at in order:
        name, wish = inputs[at].name, wanted[at]
        stays = name == wish or (wish in taken and _is_numbered(name, wish))
        if (stays and name not in taken) or not fuel.burn("name", name, "->", wish):
            taken.add(name)
        else:
            taken.add(wish)
            moving.append(at)
    left = set(order).difference(moving)
    names = Names([inputs[at].name for at in left])
    return {inputs[at].name: names.fresh(wanted[at]) for at in moving}


def _is_numbered(name: str, wish: str) -> bool:
    base, _, number = name.rpartition("_")
    return base == wish and number.isdecimal()


def _renamed(graph: Graph, found: dict[str, str]) -> Graph:
    # Nodes give way where an input takes their name.
    given = {found.get(one.name, one.name) for one in graph.inputs}
    names = Names([*given, *(node.name for node in graph.nodes)])
    known = {old: Ref(new) for old, new in found.items()}
    known.update({node.name: Ref(names.fresh(node.name)) for node in graph.nodes if found and node.name in given})
    return graph.renamed(known)


def _signature(signature: Signature, given: dict[int, str]) -> Signature:
    # Arguments that are one input each, by position, are called what the caller said.
    users = [position for position, spec in enumerate(signature.inputs) if type(spec) is UserInput]
    leaves = {users[number]: argument for argument, number in enumerate(_whole(signature, len(users))) if number is not None}
    names, inputs = list(signature.arg_names), list(signature.inputs)
    for position, name in given.items():
        spec, argument = inputs[position], leaves.get(position)
        if argument is None or type(spec) is not UserInput:
            continue
        names += [f"args_{number}" for number in range(len(names), argument + 1)]
        names[argument], inputs[position] = name, evolve(spec, argument=name)
    if tuple(inputs) == signature.inputs and tuple(names) == signature.arg_names:
        return signature
    if len(set(names)) < len(names):
        raise NamingError(f"two arguments would have one name: {', '.join(names)}; name both of them")
    return evolve(signature, inputs=tuple(inputs), arg_names=tuple(names))


def _whole(signature: Signature, users: int) -> list[int | None]:
    # For each positional argument the leaf that it is; None if it is several.
    if signature.in_spec is None:
        return list(range(users))
    specs = signature.in_spec.child(0).children()
    return [numbers.start if spec.is_leaf() else None for spec, numbers in zip(specs, leaf_ranges(specs), strict=True)]
