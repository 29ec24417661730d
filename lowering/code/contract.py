"""The records of the exported program on a lowered root: ``graph_signature``, ``module_call_graph``, ``range_constraints``.

They are written again from the program on demand, as torch's own classes, so no part of the exported program is kept for them.
Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
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

from ...ir.arguments import Arg, Ref
from ...ir.graph import Frame, Node, Op
from ...ir.names import join, word_of
from ...ir.own_operators import GIVES, TAKES
from ...ir.signature import (
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    Token,
    UserInput,
    UserOutput,
)
from ...ir.state import SlotKind
from ...ir.torch_private import symbolic_range
from ..modules.context import LoweringContext

__all__ = ["CONTRACT", "graph_signature", "module_call_graph", "output_record", "range_constraints", "state_input"]

NUMBERS: Mapping[str, Any] = {"int": SymIntArgument, "float": SymFloatArgument, "bool": SymBoolArgument}


def graph_signature(family: LoweringContext) -> ExportGraphSignature:
    """Return the signature of the flat program, as ``ep.graph_signature`` has it."""
    names, outputs, signature = family.exported
    kinds = {name: (kind, persistent) for name, kind, persistent in family.slots}
    inputs = [_input(spec, name, kinds) for spec, name in _named_inputs(signature, names)]
    given = iter(_given(family))
    users = [name for spec, name in zip(signature.inputs, names, strict=False) if type(spec) is UserInput]
    pairs = zip(signature.outputs, outputs, strict=False)
    return ExportGraphSignature(inputs, [_output(spec, arg, names, users, kinds, given) for spec, arg in pairs])


def _named_inputs(signature: Signature, names: tuple[str, ...]) -> list[tuple[Any, str]]:
    pairs: list[tuple[Any, str]] = list(zip(signature.inputs, names, strict=False))
    # A program that never was flat here: its state inputs are listed first, named like their slots.
    lifted = [(StateInput(place.slot), word_of(place.slot)) for place in signature.lifted]
    return lifted + pairs


def _input(spec: Any, name: str, kinds: Mapping[str, tuple[SlotKind, bool]]) -> InputSpec:
    match spec:
        case StateInput(slot=slot):
            return state_input(slot, TensorArgument(name), *kinds.get(slot, (SlotKind.CONSTANT, False)))
        case Token():
            return InputSpec(InputKind.TOKEN, TokenArgument(name), None)
        case _:
            return InputSpec(InputKind.USER_INPUT, _argument(spec, name), None)


def state_input(slot: str, argument: Any, kind: SlotKind, persistent: bool) -> InputSpec:  # noqa: FBT001  as the slot has them
    """Return torch's record of an input that is a tensor of the state.

    >>> state_input("n", TensorArgument("b_n"), SlotKind.BUFFER, True).kind.name
    'BUFFER'
    """
    return InputSpec(
        STATE_KINDS.get(kind, InputKind.CONSTANT_TENSOR), argument, slot, persistent if kind is SlotKind.BUFFER else None
    )


STATE_KINDS = {SlotKind.PARAMETER: InputKind.PARAMETER, SlotKind.BUFFER: InputKind.BUFFER}


def _argument(spec: UserInput, name: str) -> Any:
    match spec.type:
        case LiteralType(value=value):
            return ConstantArgument(name, value)  # type: ignore[arg-type]
        case NumberType(kind=kind):
            return NUMBERS[kind](name)
        case ObjectType(description=description):
            return CustomObjArgument(name, description)
        case _:
            return TensorArgument(name)


def _output(spec: Any, arg: Arg, names: tuple[str, ...], users: list[str], kinds: Any, given: Any) -> OutputSpec:
    name = arg.name if type(arg) is Ref else ""
    argument: Any = TensorArgument(name)
    if type(spec) is UserOutput:
        argument = next(given)(name) if name else ConstantArgument(name, arg)  # type: ignore[arg-type]
    is_buffer = type(spec) is not StateMutation or kinds.get(spec.slot, (SlotKind.BUFFER, True))[0] is SlotKind.BUFFER
    return output_record(spec, argument, names, users, is_buffer=is_buffer)


def output_record(spec: Any, argument: Any, inputs: Sequence[str], users: Sequence[str], *, is_buffer: bool) -> OutputSpec:
    """Return torch's record of an output.

    Args:
        spec: what the output is for.
        argument: torch's record of its value.
        inputs: the names of all inputs.
        users: those of the user's inputs.
        is_buffer: for new contents of state, whether they are those of a buffer.

    >>> output_record(StateGradient("w"), TensorArgument("g"), (), (), is_buffer=False).kind.name
    'GRADIENT_TO_PARAMETER'
    """
    match spec:
        case Token():
            return OutputSpec(OutputKind.TOKEN, TokenArgument(argument.name), None)
        case StateMutation(slot=slot):
            return OutputSpec(OutputKind.BUFFER_MUTATION if is_buffer else OutputKind.PARAMETER_MUTATION, argument, slot)
        case InputMutation(index=index):
            return OutputSpec(OutputKind.USER_INPUT_MUTATION, argument, inputs[index])
        case LossOutput():
            return OutputSpec(OutputKind.LOSS_OUTPUT, argument, None)
        case StateGradient(slot=slot):
            return OutputSpec(OutputKind.GRADIENT_TO_PARAMETER, argument, slot)
        case InputGradient(leaf=leaf):
            return OutputSpec(OutputKind.GRADIENT_TO_USER_INPUT, argument, users[leaf])
        case _:
            return OutputSpec(OutputKind.USER_OUTPUT, argument, None)


def _given(family: LoweringContext) -> Iterable[Callable[[str], Any]]:
    # What kind of argument each user output is: the fake values of the root's results say.
    graph = family.program.main
    values = {formal.name: formal.meta.get("val") for formal in graph.inputs}
    values.update({node.name: node.meta.get("val") for node in graph.nodes})
    output = graph.output if type(graph.output) is tuple else (graph.output,)
    for arg in output:
        yield _kind_of(values.get(arg.name) if type(arg) is Ref else None)
    while True:
        yield TensorArgument


def _kind_of(value: Any) -> Callable[[str], Any]:
    for symbolic, kind in ((torch.SymInt, SymIntArgument), (torch.SymFloat, SymFloatArgument), (torch.SymBool, SymBoolArgument)):
        if isinstance(value, symbolic):
            return kind
    return TensorArgument


def module_call_graph(family: LoweringContext) -> list[ModuleCallEntry]:
    """Return an entry for each module and each call with a preserved signature, as ``ep.module_call_graph`` has them."""
    program = family.program
    signature = program.signature
    root = ModuleCallSignature([], [], signature.in_spec, signature.out_spec, list(signature.arg_names))
    leaves = _leaves(family) if len(program.call_signatures) else {}
    preserved: dict[str, ModuleCallSignature] = {}
    for frame in sorted(program.call_signatures, key=str):
        found = program.call_signatures[frame]
        inputs, outputs = leaves.get(frame, ([], []))
        preserved[str(frame)] = ModuleCallSignature(inputs, outputs, found.in_spec, found.out_spec, list(found.arg_names))
    paths = dict.fromkeys(["", *(module.path for module in program.modules), *preserved])
    return [ModuleCallEntry(path, preserved.get(path) if path else root) for path in paths]


def _leaves(family: LoweringContext) -> dict[Frame, tuple[list[Any], list[Any]]]:
    # The leaves of the preserved calls stand in boundary nodes, which are inside the bodies or, in a flat program, in stacks.
    found: dict[Frame, tuple[list[Any], list[Any]]] = {}
    for frame, node in _boundaries(family):
        pair = found.setdefault(frame, ([], []))
        if type(node.do) is Op and not pair[node.do.name == GIVES.name]:
            pair[node.do.name == GIVES.name].extend([_leaf(arg) for arg in node.args])
    return found


def _boundaries(family: LoweringContext) -> Iterable[tuple[Frame, Node]]:
    for frame, name in family.calls:
        for node in family.program.graphs[name].nodes:
            if type(node.do) is Op and node.do.name in (TAKES.name, GIVES.name):
                inner = node.stack[-1] if node.stack else None
                yield (Frame(join(frame.path, inner.path), inner.call) if inner else frame), node


def _leaf(arg: Arg) -> Any:
    return TensorArgument(arg.name) if type(arg) is Ref else ConstantArgument("", arg)  # type: ignore[arg-type]


def range_constraints(family: LoweringContext) -> dict[Any, Any]:
    """Return the bounds of the symbols, as ``ep.range_constraints`` has them; expressions and unbounded symbols are left out."""
    pairs = (symbolic_range(bounds.expr, bounds.low, bounds.high) for bounds in family.program.constraints.ranges)
    return dict([pair for pair in pairs if pair is not None])


CONTRACT: Mapping[str, Callable[[LoweringContext], Any]] = {
    "graph_signature": graph_signature,
    "module_call_graph": module_call_graph,
    "range_constraints": range_constraints,
    "equality_constraints": lambda _: [],  # torch has it, always empty
}
"""Attributes of a root that are made when they are first read."""
