"""The graph signature: what each input and output of the graph is for, said with the names of the made nodes.

One idea: ``program.signature`` speaks of positions, so every name here is asked of the node that stands in the position.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
    TokenArgument,
)

from ...ir.errors import UnsupportedProgram
from ...ir.program import Program
from ...ir.signature import (
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    StateGradient,
    StateInput,
    StateMutation,
    Token,
    UserInput,
)
from ...ir.state import SlotKind
from ...ir.torch_private import script_class
from .graphs import Made

__all__ = ["argument", "graph_signature"]

NUMBERS: tuple[tuple[Any, Any], ...] = (
    ((torch.SymBool, bool), SymBoolArgument),
    ((torch.SymInt, int), SymIntArgument),
    ((torch.SymFloat, float), SymFloatArgument),
)
"""How torch names the number that a node gives; bool is an int, so it comes first."""

KINDS = {SlotKind.PARAMETER: InputKind.PARAMETER, SlotKind.BUFFER: InputKind.BUFFER}


def graph_signature(program: Program, root: Made) -> ExportGraphSignature:
    """Return the signature of the root graph.

    Raises:
        UnsupportedProgram: two inputs are one piece of state that is no tensor, or an argument has a value that torch
            can not name.
    """
    formals, signature = program.main.inputs, program.signature
    nodes = [root.nodes[formal.name] for formal in formals]
    inputs = [_input(program, node, spec) for node, spec in zip(nodes, signature.inputs, strict=True)]
    users = [node.name for node, spec in zip(nodes, signature.inputs, strict=True) if type(spec) is UserInput]
    outputs: list[OutputSpec] = []
    for arg, spec in zip(program.main.output, signature.outputs, strict=True):
        leaf = root.leaf(arg)
        match spec:
            case Token():
                outputs.append(OutputSpec(OutputKind.TOKEN, TokenArgument(leaf.name), None))
            case StateMutation(slot=slot):
                is_parameter = program.state[slot].kind is SlotKind.PARAMETER
                kind = OutputKind.PARAMETER_MUTATION if is_parameter else OutputKind.BUFFER_MUTATION
                outputs.append(OutputSpec(kind, argument(leaf), slot))
            case InputMutation(index=index):
                outputs.append(OutputSpec(OutputKind.USER_INPUT_MUTATION, argument(leaf), nodes[index].name))
            case LossOutput():
                outputs.append(OutputSpec(OutputKind.LOSS_OUTPUT, argument(leaf), None))
            case StateGradient(slot=slot):
                outputs.append(OutputSpec(OutputKind.GRADIENT_TO_PARAMETER, argument(leaf), slot))
            case InputGradient(leaf=number):
                outputs.append(OutputSpec(OutputKind.GRADIENT_TO_USER_INPUT, argument(leaf), users[number]))
            case _:
                outputs.append(OutputSpec(OutputKind.USER_OUTPUT, argument(leaf), None))
    return ExportGraphSignature(inputs, outputs)


def _input(program: Program, node: torch.fx.Node, spec: Any) -> InputSpec:
    match spec:
        case StateInput(slot=name):
            slot = program.state[name]
            if not isinstance(slot.value, torch.Tensor):
                return InputSpec(InputKind.CUSTOM_OBJ, _object(node, slot.value), name)
            persistent = slot.persistent if slot.kind is SlotKind.BUFFER else None
            kind = KINDS.get(slot.kind, InputKind.CONSTANT_TENSOR)
            return InputSpec(kind, TensorArgument(node.name), name, persistent)
        case Token():
            return InputSpec(InputKind.TOKEN, TokenArgument(node.name), None)
        case UserInput(type=LiteralType(value=value)):
            return InputSpec(InputKind.USER_INPUT, ConstantArgument(node.name, value), None)
        case _:
            return InputSpec(InputKind.USER_INPUT, argument(node), None)


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
    if isinstance(value, torch.Tensor):
        return TensorArgument(name)
    for kinds, spec in NUMBERS if is_node else ():
        if isinstance(value, kinds):
            return spec(name)
    if value is None or isinstance(value, bool | int | float | str):
        return ConstantArgument(name, value)
    if is_node and isinstance(value, CustomObjArgument):
        return CustomObjArgument(name, value.class_fqn, value.fake_val)
    where = f"the value {name!r}" if name else "an output"
    raise UnsupportedProgram(
        f"{where} is a {type(value).__name__}, and an exported program takes and gives tensors, numbers, strings and None; "
        "take the parts out of it with operator.getitem"
    )
