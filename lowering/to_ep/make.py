"""``make_ep``: convert a flat program to an exported program.

Outputs are made distinct and ordered as required, inputs get their ranges and guards; example inputs are the caller's, or
zeros of the exported sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from attrs import evolve
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
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

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.calls.argument_tree import ArgumentTree
from ...ir.effects.resolved import node_effects, slot_views, views_of
from ...ir.errors import InputError, UnsupportedProgram
from ...ir.expression import Apply, Expr, InputDim, InputValue
from ...ir.forks import collector_paused
from ...ir.graph import Frame, Graph, Node
from ...ir.inference import clone_value, shared_bodies
from ...ir.operators import CLONE
from ...ir.own_operators import GIVES, TAKES, is_boundary
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
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
from ...ir.torch_private import (
    SpecViolationError,
    TrainingIRVerifier,
    Verifier,
    device_of,
    pytree,
    ranges_in,
    script_class,
    set_guards,
    size_number,
    symbolic_range,
)
from ...ir.verify import check
from ...transforms.convert.devices import materialise
from ...transforms.expand import LIMIT, own_bodies
from .graphs import GraphMaker, Made, Values


def apart(program: Program) -> Program:
    """Make the outputs of a program distinct and ordered, as torch requires; return the same object if they are.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> apart(program) is program
    True
    """
    program = _with_literals(program)
    specs = program.signature.outputs
    order = sorted(range(len(specs)), key=lambda number: _rank(specs[number]))
    if order != sorted(order):
        output = tuple([program.main.output[number] for number in order])
        signature = evolve(program.signature, outputs=tuple([specs[number] for number in order]))
        program = program.with_main(evolve(program.main, output=output), signature=signature)
    return with_saved_values(program)


def _with_literals(program: Program) -> Program:
    # An input that is always None or a string cannot be the value of an output node.
    fixed = {
        formal.name: spec.type.value
        for formal, spec in program.inputs
        if type(spec) is UserInput
        and type(spec.type) is LiteralType
        and isinstance(spec.type.value, str | None)
    }
    if fixed.keys().isdisjoint(program.main.output_refs()):
        return program
    return program.with_main(evolve(program.main, output=replace_refs(program.main.output, fixed)))


def _rank(spec: object) -> int:
    return 0 if type(spec) is Token else 1 if type(spec) in (StateMutation, InputMutation) else 2


def with_saved_values(program: Program) -> Program:
    """Clone outputs so that new contents are distinct values, and no other output aliases the contents that they replace.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_saved_values(program) is program
    True
    """
    graph, specs = program.main, program.signature.outputs
    owner = {spec.slot: formal.name for formal, spec in program.inputs if type(spec) is StateInput}
    targets = {
        number: owner.get(spec.slot)
        for number, spec in enumerate(specs)
        if type(spec) is StateMutation
    }
    targets |= {
        number: graph.inputs[spec.index].name
        for number, spec in enumerate(specs)
        if type(spec) is InputMutation
    }
    if not targets:
        return program
    views = views_of(program, node_effects(program, graph))
    written: set[object] = {
        graph.inputs[spec.index].name for spec in specs if type(spec) is InputMutation
    }
    written.update(
        *[slot_views(program, spec.slot) for spec in specs if type(spec) is StateMutation]
    )
    names, clones, saved, used = graph.names(), list[Node](), dict[Arg, Ref](), set[Arg]()

    def clone(value: Ref, original: Ref) -> Ref:
        clones.append(
            Node(
                names.fresh("clone"), CLONE, (value,), meta=clone_value(graph.metas[original.name])
            )
        )
        return Ref(clones[-1].name)

    output: list[Arg] = []
    for number, arg in enumerate(graph.output):
        original, target = arg, targets.get(number)
        if type(original) is Ref and original.name != target:
            if not written.isdisjoint(views[original.name]):
                arg = saved[original] = saved.get(original) or clone(original, original)
            if target is not None and arg in used:
                arg = clone(arg, original)
        if target is not None:
            used.add(arg)
        output.append(arg)
    return (
        program.with_main(Graph(graph.inputs, (*graph.nodes, *clones), tuple(output)))
        if clones
        else program
    )


def range_constraints(program: Program, root: Made) -> dict[Any, Any]:
    """Return the bounds of all symbols: the constrained ones, then the free ones.

    Args:
        program: the program with its constraints.
        root: the graph, with the symbols in its fake values.
    """
    free = ranges_in([node.meta["val"] for node in root.nodes.values()])
    known = {str(symbol): symbol for symbol in free}
    made: dict[Any, Any] = {}
    for span in program.constraints.ranges:
        found = symbolic_range(span.expr, span.low, span.high)
        if found is not None:
            made[known.get(str(found[0]), found[0])] = found[1]
    stated = {str(symbol) for symbol in made}
    return made | {symbol: bounds for symbol, bounds in free.items() if str(symbol) not in stated}


def guard_texts(program: Program) -> list[str]:
    """Return the guards as Python text.

    Inputs are numbered, as in a strict export: torch then finds the paths of the example itself.

    Args:
        program: the program with the guards in its constraints.

    Raises:
        UnsupportedProgram: a guard refers to something other than an input.
    """
    pairs = [(guard, _written(guard)) for guard in program.constraints.guards]
    return [
        text[1:-1] if isinstance(guard, Apply) and text.startswith("(") else text
        for guard, text in pairs
    ]


TEXTS = {
    "neg": "(-{0})",
    "not": "(not {0})",
    "if": "({1} if {0} else {2})",
    "ceildiv": "(-((-{0}) // {1}))",
}
"""Operators that Python writes differently; ``max``, ``min`` and ``abs`` are called, and others are infix."""


def _written(expr: Expr) -> str:
    match expr:
        case Apply(op=op, args=args):
            parts = [_written(arg) for arg in args]
            if op in TEXTS:
                return TEXTS[op].format(*parts)
            return (
                f"{op}({', '.join(parts)})"
                if op in ("max", "min", "abs")
                else f"({f' {op} '.join(parts)})"
            )
        case InputDim(index=index, dim=dim, of=of):
            return f"L['flat_args'][{index}].{of}()[{dim}]"
        case InputValue(index=index):
            return f"L['flat_args'][{index}]"
        case bool() | int() | float():
            return repr(expr)
        case _:
            raise UnsupportedProgram(
                f"a guard refers to {expr}, which is not an input; write it over sizes of inputs"
            )


Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


def checked_inputs(inputs: Any, in_spec: Any) -> Inputs:
    """Check the caller's example inputs, and return them.

    Args:
        inputs: ``(args, kwargs)``.
        in_spec: their expected pytree.

    Raises:
        InputError: they are not such a pair, or have another pytree.
    """
    if not (
        isinstance(inputs, tuple)
        and len(inputs) == 2
        and isinstance(inputs[0], tuple)
        and isinstance(inputs[1], dict)
    ):
        raise InputError(
            f"example_inputs must be a pair (args, kwargs) of a tuple and a dict, not {type(inputs).__name__}"
        )
    args, kwargs = inputs
    kwargs = {
        key: kwargs[key] for key in ArgumentTree.of(in_spec).keyword if key in kwargs
    } | kwargs
    found = pytree.tree_structure((args, kwargs))
    if found != in_spec:
        raise InputError(
            f"example_inputs are structured as {found}, but the program takes {in_spec}"
        )
    return args, kwargs


def made_up_inputs(program: Program, root: Made, in_spec: Any) -> Inputs | None:
    """Return zeros of the exported sizes; None if a size, an object or a device is not available.

    Args:
        program: the program.
        root: its graph, with fake values.
        in_spec: the pytree of the arguments.
    """
    users: Iterable[Any] = [
        root.nodes[formal.name].meta["val"]
        for formal, spec in program.inputs
        if type(spec) is UserInput
    ]
    try:
        args, kwargs = pytree.tree_unflatten([_example(value) for value in users], in_spec)
    except Exception:  # noqa: BLE001  # a missing device, a class that rejects zeros
        return None
    return args, kwargs


def _example(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes, strides = (
            [_number(size) for size in each] for each in (value.shape, value.stride())
        )
        return torch.empty_strided(
            sizes, strides, dtype=value.dtype, device=device_of(value)
        ).zero_()
    return _number(value)


def _number(value: Any) -> Any:
    found = size_number(value) if isinstance(value, SYMBOLIC) else value
    if not isinstance(found, bool | int | float | str) and value is not None:
        raise ValueError("no example available")
    return found


DIALECTS: Mapping[str, Any] = {"TRAINING": TrainingIRVerifier, "ATEN": Verifier}
"""The verifiers of exported programs by dialect; only the first allows operators that write."""


def make_ep(
    program: Program,
    *,
    state: Literal["copy", "share"] = "copy",
    dialect: Literal["TRAINING", "ATEN"] | None = None,
    example_inputs: Inputs | None = None,
) -> ExportedProgram:
    """Convert a flat program to an exported program.

    Args:
        program: a program without module calls, with its state as inputs.
        state: ``"copy"`` copies the tensors of the program, ``"share"`` shares them.
        dialect: the dialect to verify and declare.
        example_inputs: positional and keyword arguments to store; zeros by default.

    Raises:
        InvalidProgram: the program breaks invariants.
        UnsupportedProgram: something cannot be represented in an exported program; the message names it.
        InputError: the nesting of the example inputs is wrong.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> make_ep(program).graph_signature.user_outputs
    ('relu',)
    """
    with collector_paused():
        program = apart(_with_typed_bodies(check(program)))
        return _make(program, state == "copy", dialect, example_inputs)


def _with_typed_bodies(program: Program) -> Program:
    # A shared body without fake values serves operands of several types; an exported graph has one type.
    typed = {
        name
        for name, graph in program.graphs.items()
        if all("val" in formal.meta for formal in graph.inputs)
    }
    if typed >= shared_bodies(program):
        return program
    return own_bodies(program, at_most=LIMIT, keep=frozenset(typed))


def _make(
    program: Program,
    copy: bool,  # noqa: FBT001
    dialect: str | None,
    example_inputs: Inputs | None,
) -> ExportedProgram:
    root = GraphMaker(program, Values(program)).root()
    signature = graph_signature(program, root)
    calls = module_calls(program, root)
    assert calls[0].signature is not None
    in_spec = calls[0].signature.in_spec
    guards = guard_texts(program)
    examples = (
        checked_inputs(example_inputs, in_spec)
        if example_inputs is not None
        else made_up_inputs(program, root, in_spec)
    )
    saved, constants = state_of_ep(program, copy=copy)
    specs = (*program.signature.inputs, *program.signature.outputs)
    try:
        made = ExportedProgram(
            root=root.attributes,
            graph=root.graph,
            graph_signature=signature,
            state_dict=saved,
            range_constraints=range_constraints(program, root),
            module_call_graph=calls,
            example_inputs=examples,
            constants=constants,
            # `ep.module()` removes tokens in one dialect only; the other accepts everything that torch exports.
            verifiers=[
                DIALECTS[
                    dialect
                    or ("ATEN" if any(type(spec) is Token for spec in specs) else "TRAINING")
                ]
            ],
        )
    except SpecViolationError as error:
        raise UnsupportedProgram(f"torch rejects the exported program: {error}") from error
    set_guards(made, guards)
    return made


def state_of_ep(program: Program, *, copy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``state_dict`` of an exported program, and its constants, which include non-persistent buffers.

    Args:
        program: the program.
        copy: whether to copy the tensors of the program.

    Raises:
        UnsupportedProgram: a name would break the code that torch generates.

    >>> state_of_ep(Program.of({}), copy=True)
    ({}, {})
    """
    cells = materialise(program, copy=copy)
    saved: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, slot in program.state.pairs:
        if not name.isprintable() or any(mark in name for mark in "'\"\\"):
            raise UnsupportedProgram(
                f"the state {name!r} has a name that would break the code that torch generates; rename it"
            )
        value = cells[slot.cell]
        if slot.kind is not SlotKind.CONSTANT and slot.persistent:
            saved[name] = value
        else:  # torch looks up constants that are parameters among the buffers, where they are missing
            constants[name] = value.detach() if isinstance(value, torch.nn.Parameter) else value
    return saved, constants


def graph_signature(program: Program, root: Made) -> ExportGraphSignature:
    """Return the signature of the root graph.

    Raises:
        UnsupportedProgram: two inputs are the same non-tensor state, or an argument is a tangent, or of a type that torch
            cannot name.
    """
    names = [root.nodes[formal.name].name for formal in program.main.inputs]
    users = [
        name
        for name, spec in zip(names, program.signature.inputs, strict=True)
        if type(spec) is UserInput
    ]
    inputs = [_input(program, root.nodes[formal.name], spec) for formal, spec in program.inputs]
    pairs = zip(program.main.output, program.signature.outputs, strict=True)
    return ExportGraphSignature(
        inputs, [_output(program, root.leaf(arg), spec, names, users) for arg, spec in pairs]
    )


def _input(program: Program, node: torch.fx.Node, spec: Any) -> InputSpec:
    match spec:
        case StateInput(slot=name):
            slot = program.state[name]
            if not isinstance(slot.value, torch.Tensor):
                return InputSpec(InputKind.CUSTOM_OBJ, _object(node, slot.value), name)
            kind = STATE_KINDS.get(slot.kind, InputKind.CONSTANT_TENSOR)
            return InputSpec(
                kind,
                TensorArgument(node.name),
                name,
                slot.persistent if kind is InputKind.BUFFER else None,
            )
        case Token():
            return InputSpec(InputKind.TOKEN, TokenArgument(node.name), None)
        case UserInput(argument=path, tangent_of=int()):
            raise UnsupportedProgram(
                f"the argument {path} is a tangent, which exported programs do not support; export the forward program "
                "(training.partition_joint), or capture a module that returns its loss"
            )
        case UserInput(type=LiteralType(value=value)):
            return InputSpec(InputKind.USER_INPUT, ConstantArgument(node.name, value), None)  # type: ignore[arg-type]
        case _:
            return InputSpec(InputKind.USER_INPUT, _argument(node), None)


STATE_KINDS = {SlotKind.PARAMETER: InputKind.PARAMETER, SlotKind.BUFFER: InputKind.BUFFER}


def _object(node: torch.fx.Node, value: Any) -> CustomObjArgument:
    # The fake value of an object contains the name of the node, so make one for each node.
    known = node.meta.get("val")
    kind, fake = (
        (known.class_fqn, known.fake_val)
        if isinstance(known, CustomObjArgument)
        else (script_class(value), None)
    )
    node.meta["val"] = made = CustomObjArgument(node.name, kind, fake)
    return made


def _output(
    program: Program, leaf: Any, spec: Any, inputs: list[str], users: list[str]
) -> OutputSpec:
    match spec:
        case Token():
            return OutputSpec(OutputKind.TOKEN, TokenArgument(leaf.name), None)
        case StateMutation(slot=slot):
            is_parameter = program.state[slot].kind is SlotKind.PARAMETER
            return OutputSpec(
                OutputKind.PARAMETER_MUTATION if is_parameter else OutputKind.BUFFER_MUTATION,
                _argument(leaf),
                slot,
            )
        case InputMutation(index=index):
            return OutputSpec(OutputKind.USER_INPUT_MUTATION, _argument(leaf), inputs[index])
        case LossOutput():
            return OutputSpec(OutputKind.LOSS_OUTPUT, _argument(leaf), None)
        case StateGradient(slot=slot):
            return OutputSpec(OutputKind.GRADIENT_TO_PARAMETER, _argument(leaf), slot)
        case InputGradient(leaf=number):
            return OutputSpec(OutputKind.GRADIENT_TO_USER_INPUT, _argument(leaf), users[number])
        case _:
            return OutputSpec(OutputKind.USER_OUTPUT, _argument(leaf), None)


KINDS: tuple[tuple[Any, Callable[[str], Any]], ...] = (
    (torch.Tensor, TensorArgument),
    ((torch.SymBool, bool), SymBoolArgument),
    ((torch.SymInt, int), SymIntArgument),
    ((torch.SymFloat, float), SymFloatArgument),
)
"""The argument classes of torch by type of the fake value; bool is an int, so it comes first."""


def _argument(leaf: Any) -> ArgumentSpec:
    # By type of the fake value, with the name of the node; literals are unchanged.
    is_node = isinstance(leaf, torch.fx.Node)
    name, value = (leaf.name, leaf.meta.get("val")) if is_node else ("", leaf)
    kind = next((kind for kinds, kind in KINDS if isinstance(value, kinds)), None)
    if kind is not None and (is_node or kind is TensorArgument):
        return kind(name)
    if value is None or isinstance(value, bool | int | float | str):
        return ConstantArgument(name, value)
    if is_node and isinstance(value, CustomObjArgument):
        return CustomObjArgument(name, value.class_fqn, value.fake_val)
    where = f"the value {name!r}" if name else "an output"
    raise UnsupportedProgram(
        f"{where} is a {type(value).__name__}, but exported programs take and return only tensors, numbers, strings and None; "
        "extract its parts with operator.getitem"
    )


def module_calls(program: Program, root: Made) -> list[ModuleCallEntry]:
    """Return the entries of all modules in order, then of further calls with preserved signatures."""
    ends: dict[Frame, dict[str, tuple[Arg, ...]]] = {}
    for node in filter(is_boundary, program.main.nodes):
        ends.setdefault(node.stack[-1] if node.stack else Frame(""), {})[node.do.name] = node.args  # type: ignore[union-attr]
    entries: dict[str, ModuleCallSignature | None] = dict.fromkeys(
        ["", *[module.path for module in program.modules]]
    )
    for frame in sorted(program.call_signatures, key=str):
        found, markers = program.call_signatures[frame], ends.get(frame, {})
        if TAKES.name in markers and GIVES.name in markers:
            inputs, outputs = (
                [_argument(root.leaf(arg)) for arg in markers[op.name]] for op in (TAKES, GIVES)
            )
            names = list(found.arg_names) or None
            entries[str(frame)] = ModuleCallSignature(
                inputs, outputs, found.in_spec, found.out_spec, names
            )
    entries[""] = _root_signature(program)
    return [ModuleCallEntry(path, signature) for path, signature in entries.items()]


def _root_signature(program: Program) -> ModuleCallSignature:
    signature = program.signature
    in_spec, out_spec, names = signature.in_spec, signature.out_spec, list(signature.arg_names)
    if in_spec is None:
        in_spec = pytree.tree_structure(
            ((0,) * sum(type(spec) is UserInput for spec in signature.inputs), {})
        )
    if out_spec is None:
        out_spec = pytree.tree_structure(
            (0,) * sum(type(spec) in GIVEN for spec in signature.outputs)
        )
    return ModuleCallSignature([], [], in_spec, out_spec, names or None)
