"""The graph signature, the module call graph and the state of an exported program.

Each refers to the nodes by their new names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    TensorArgument,
    TokenArgument,
)

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Frame
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
    LiteralType,
    StateInput,
    Token,
    UserInput,
)
from ...ir.state import Slot, SlotKind
from ...ir.torch_private import pytree, script_class
from ...transforms.convert.devices import materialise
from ..code.contract import call_entries, kind_of, written_signature
from .graphs import Made

__all__ = ["argument", "graph_signature", "module_calls", "state_of_ep"]


def state_of_ep(program: Program, *, copy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``state_dict`` of an exported program, and its constants: buffers that are not saved among them.

    Args:
        program: whose state it is.
        copy: make new tensors; otherwise the program's own are used.

    Raises:
        UnsupportedProgram: a name would break the code that torch writes for a module that has the state.

    >>> state_of_ep(Program.of({}), copy=True)
    ({}, {})
    """
    cells = materialise(program, copy=copy)
    saved: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, slot in program.state.pairs:
        if not name.isprintable() or any(mark in name for mark in "'\"\\"):
            raise UnsupportedProgram(f"the state {name!r} has a name that torch would write into code; rename it")
        value = cells[slot.cell]
        if _is_saved(slot):
            saved[name] = value
        else:  # torch looks for constants that are parameters among the buffers, and does not find them
            constants[name] = value.detach() if isinstance(value, torch.nn.Parameter) else value
    return saved, constants


def _is_saved(slot: Slot) -> bool:
    return slot.kind is not SlotKind.CONSTANT and slot.persistent


def graph_signature(program: Program, root: Made) -> ExportGraphSignature:
    """Return the signature of the root graph.

    Raises:
        UnsupportedProgram: two inputs are one piece of state that is not a tensor, or an argument has a value that torch
            cannot name, or is a tangent.
    """
    formals, signature = program.main.inputs, program.signature
    nodes = [root.nodes[formal.name] for formal in formals]
    inputs = [(spec, _input(program, node, spec)) for node, spec in zip(nodes, signature.inputs, strict=True)]
    leaves = [(spec, root.leaf(arg)) for arg, spec in zip(program.main.output, signature.outputs, strict=True)]
    outputs = [(spec, TensorArgument(leaf.name) if type(spec) is Token else argument(leaf)) for spec, leaf in leaves]
    slots = {name: (slot.kind, slot.persistent) for name, slot in program.state.pairs}
    return written_signature(inputs, outputs, slots)


def _input(program: Program, node: torch.fx.Node, spec: Any) -> ArgumentSpec:
    match spec:
        case StateInput(slot=name):
            value = program.state[name].value
            return TensorArgument(node.name) if isinstance(value, torch.Tensor) else _object(node, value)
        case Token():
            return TokenArgument(node.name)
        case UserInput(argument=path, tangent_of=int()):
            raise UnsupportedProgram(
                f"the argument {path} is a tangent, which an exported program does not have; take the forward of the program "
                "(training.partition_joint), or make the joint program of a module that returns its loss"
            )
        case UserInput(type=LiteralType(value=value)):
            return ConstantArgument(node.name, value)
        case _:
            return argument(node)


def _object(node: torch.fx.Node, value: Any) -> CustomObjArgument:
    # What stands for an object among the fake values has the node's name in it, so it is made for each node.
    said = node.meta.get("val")
    fake = said.fake_val if isinstance(said, CustomObjArgument) else None
    made = CustomObjArgument(node.name, said.class_fqn if isinstance(said, CustomObjArgument) else script_class(value), fake)
    node.meta["val"] = made
    return made


def argument(leaf: Any) -> ArgumentSpec:
    """Return how torch names a value: by the kind of its fake value, with the name of its node; a literal as it is.

    Args:
        leaf: an fx node or a literal.

    Raises:
        UnsupportedProgram: it is nothing that an exported program can take or give.

    >>> argument(1.5)
    ConstantArgument(name='', value=1.5)
    """
    is_node = isinstance(leaf, torch.fx.Node)
    name, value = (leaf.name, leaf.meta.get("val")) if is_node else ("", leaf)
    kind = kind_of(value)
    if kind is not None and (is_node or kind is TensorArgument):
        return kind(name)
    if value is None or isinstance(value, bool | int | float | str):
        return ConstantArgument(name, value)
    if is_node and isinstance(value, CustomObjArgument):
        return CustomObjArgument(name, value.class_fqn, value.fake_val)
    where = f"the value {name!r}" if name else "an output"
    raise UnsupportedProgram(
        f"{where} is a {type(value).__name__}, and an exported program takes and gives tensors, numbers, strings and None; "
        "take the parts out of it with operator.getitem"
    )


def module_calls(program: Program, root: Made) -> list[ModuleCallEntry]:
    """Return the entries of all modules in their order, then those of further calls with a signature of their own.

    Args:
        program: the program.
        root: its graph.
    """
    calls = [(Frame(""), program.root)]
    return call_entries(program, calls, _root_signature(program), lambda arg: argument(root.leaf(arg)))


def _root_signature(program: Program) -> ModuleCallSignature:
    signature = program.signature
    in_spec, out_spec, names = signature.in_spec, signature.out_spec, list(signature.arg_names)
    if in_spec is None:
        users = sum(type(spec) is UserInput for spec in signature.inputs)
        in_spec = pytree.tree_structure(((0,) * users, {}))
    if out_spec is None:
        given = sum(type(spec) in GIVEN for spec in signature.outputs)
        out_spec = pytree.tree_structure((0,) * given)
    return ModuleCallSignature([], [], in_spec, out_spec, names or None)
