"""The records of the exported program on a lowered root: ``graph_signature``, ``module_call_graph``, ``range_constraints``.

They are written again from the program on demand, as torch's own classes, so no part of the exported program is kept for them.
Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ...ir.graph import Frame
from ...ir.names import join, word_of
from ...ir.own_operators import GIVES, TAKES, is_boundary
from ...ir.program import Program
from ...ir.signature import (
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
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

__all__ = [
    "CONTRACT",
    "call_entries",
    "graph_signature",
    "kind_of",
    "module_call_graph",
    "range_constraints",
    "written_signature",
]

NUMBERS: Mapping[str, Any] = {"int": SymIntArgument, "float": SymFloatArgument, "bool": SymBoolArgument}


Slots = Mapping[str, tuple[SlotKind, bool]]
"""What the slots of a program are, and whether they are saved."""


def graph_signature(family: LoweringContext) -> ExportGraphSignature:
    """Return the signature of the flat program, as ``ep.graph_signature`` has it."""
    names, outputs, signature = family.exported
    # A program that never was flat here: its state inputs are listed first, named like their slots.
    lifted = [(StateInput(place.slot), word_of(place.slot)) for place in signature.lifted]
    inputs = [(spec, _argument(spec, name)) for spec, name in [*lifted, *zip(signature.inputs, names, strict=False)]]
    given = iter(_given(family))
    results = [(spec, _result(spec, arg, given)) for spec, arg in zip(signature.outputs, outputs, strict=False)]
    slots = {name: (kind, persistent) for name, kind, persistent in family.slots}
    return written_signature(inputs, results, slots, taken=len(lifted))


def written_signature(
    inputs: Sequence[tuple[Any, Any]], outputs: Sequence[tuple[Any, Any]], slots: Slots, *, taken: int = 0
) -> ExportGraphSignature:
    """Return torch's record of a signature.

    Args:
        inputs: what each input is for, with torch's record of its value.
        outputs: what each output is for, likewise.
        slots: the state.
        taken: how many inputs come before those that outputs count.

    >>> written_signature([(StateInput("n"), TensorArgument("b_n"))], [], {"n": (SlotKind.BUFFER, True)}).buffers
    ('n',)
    """
    own = inputs[taken:]
    names = [argument.name for _, argument in own]
    users = [argument.name for spec, argument in own if type(spec) is UserInput]
    return ExportGraphSignature(
        [_input(spec, argument, slots) for spec, argument in inputs],
        [_output(spec, argument, names, users, slots) for spec, argument in outputs],
    )


def _input(spec: Any, argument: Any, slots: Slots) -> InputSpec:
    match spec:
        case StateInput(slot=slot):
            kind, persistent = slots.get(slot, (SlotKind.CONSTANT, False))
            what = STATE_KINDS.get(kind, InputKind.CONSTANT_TENSOR)
            if type(argument) is CustomObjArgument:
                what = InputKind.CUSTOM_OBJ
            return InputSpec(what, argument, slot, persistent if what is InputKind.BUFFER else None)
        case Token():
            return InputSpec(InputKind.TOKEN, argument, None)
        case _:
            return InputSpec(InputKind.USER_INPUT, argument, None)


STATE_KINDS = {SlotKind.PARAMETER: InputKind.PARAMETER, SlotKind.BUFFER: InputKind.BUFFER}


def _argument(spec: Any, name: str) -> Any:
    match spec:
        case Token():
            return TokenArgument(name)
        case UserInput(type=LiteralType(value=value)):
            return ConstantArgument(name, value)  # type: ignore[arg-type]
        case UserInput(type=NumberType(kind=kind)):
            return NUMBERS[kind](name)
        case UserInput(type=ObjectType(description=description)):
            return CustomObjArgument(name, description)
        case _:
            return TensorArgument(name)


def _result(spec: Any, arg: Arg, given: Iterator[Any]) -> Any:
    name = arg.name if type(arg) is Ref else ""
    if type(spec) is not UserOutput:
        return TensorArgument(name)
    return next(given)(name) if name else ConstantArgument(name, arg)  # type: ignore[arg-type]


def _output(spec: Any, argument: Any, inputs: Sequence[str], users: Sequence[str], slots: Slots) -> OutputSpec:
    match spec:
        case Token():
            return OutputSpec(OutputKind.TOKEN, TokenArgument(argument.name), None)
        case StateMutation(slot=slot):
            is_parameter = slots.get(slot, (SlotKind.BUFFER, True))[0] is SlotKind.PARAMETER
            return OutputSpec(OutputKind.PARAMETER_MUTATION if is_parameter else OutputKind.BUFFER_MUTATION, argument, slot)
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
        yield kind_of(values.get(arg.name) if type(arg) is Ref else None) or TensorArgument
    while True:
        yield TensorArgument


SYMBOLIC: tuple[tuple[Any, Any], ...] = (
    ((torch.SymBool, bool), SymBoolArgument),
    ((torch.SymInt, int), SymIntArgument),
    ((torch.SymFloat, float), SymFloatArgument),
)
"""How torch names the number that a node returns; bool is an int, so it comes first."""


def kind_of(value: Any) -> Callable[[str], Any] | None:
    """Return what torch names a value of a node with, by its fake value: a tensor or a number; None for anything else.

    >>> kind_of(torch.ones(1)), kind_of(True), kind_of("a")
    (<class 'torch.export.graph_signature.TensorArgument'>, <class 'torch.export.graph_signature.SymBoolArgument'>, None)
    """
    known = ((torch.Tensor, TensorArgument), *SYMBOLIC)
    return next((kind for kinds, kind in known if isinstance(value, kinds)), None)


def module_call_graph(family: LoweringContext) -> list[ModuleCallEntry]:
    """Return an entry for each module and each call with a preserved signature, as ``ep.module_call_graph`` has them."""
    signature = family.program.signature
    root = ModuleCallSignature([], [], signature.in_spec, signature.out_spec, list(signature.arg_names))
    return call_entries(family.program, family.calls, root, _leaf)


def call_entries(
    program: Program, calls: Iterable[tuple[Frame, str]], root: ModuleCallSignature, leaf: Callable[[Arg], Any]
) -> list[ModuleCallEntry]:
    """Return the entries of all modules in their order, then those of further calls with a signature of their own.

    Args:
        program: the program.
        calls: every call of a module and the graph that it runs.
        root: the signature of the root.
        leaf: torch's record of a leaf of the arguments or of the result of a call.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> [entry.fqn for entry in call_entries(program, [], ModuleCallSignature([], [], None, None), _leaf)]
    ['']
    """
    leaves = boundary_leaves(program, calls) if len(program.call_signatures) else {}
    preserved: dict[str, ModuleCallSignature] = {}
    for frame in sorted(program.call_signatures, key=str):
        found, ends = program.call_signatures[frame], leaves.get(frame, {})
        if len(ends) == len((TAKES, GIVES)):
            inputs, outputs = ([leaf(arg) for arg in ends[op.name]] for op in (TAKES, GIVES))
            names = list(found.arg_names) or None
            preserved[str(frame)] = ModuleCallSignature(inputs, outputs, found.in_spec, found.out_spec, names)
    paths = dict.fromkeys(["", *(module.path for module in program.modules), *preserved])
    return [ModuleCallEntry(path, preserved.get(path) if path else root) for path in paths]


def boundary_leaves(program: Program, calls: Iterable[tuple[Frame, str]]) -> dict[Frame, dict[str, tuple[Arg, ...]]]:
    """Return what the boundary nodes of each preserved call hold, by their operator: inside of a body, or in a stack.

    Args:
        program: any program.
        calls: every call of a module and the graph that it runs.

    >>> from purefx.ir import Graph
    >>> boundary_leaves(Program.of({"": Graph((), (), ())}), [(Frame(""), "")])
    {}
    """
    found: dict[Frame, dict[str, tuple[Arg, ...]]] = {}
    for frame, name in calls:
        for node in filter(is_boundary, program.graphs[name].nodes):
            inner = node.stack[-1] if node.stack else None
            call = Frame(join(frame.path, inner.path), inner.call) if inner else frame
            found.setdefault(call, {}).setdefault(node.do.name, node.args)  # type: ignore[union-attr]
    return found


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
