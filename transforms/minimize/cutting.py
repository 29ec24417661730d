"""``without``: remove some nodes of the root; their results become inputs, their operands become outputs.

The result is valid, but may compute something else: an input does not alias another one, even if the value that it replaces
did.  The caller tests whether that matters.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import Arg, Ref
from ...ir.calls.parts import part_names
from ...ir.expression import symbols_in
from ...ir.graph import Get, Graph, Input, Node
from ...ir.importing.constraints import read_size
from ...ir.program import Program
from ...ir.signature import (
    ArgumentType,
    Constraints,
    InputMutation,
    InputSpec,
    ObjectType,
    OutputSpec,
    StateInput,
    StateMutation,
    TensorType,
    UserInput,
    UserOutput,
)
from ...ir.state_changes import state_uses, without_slots
from ...ir.torch_private import device_of, size_number
from ..transformation import observed

__all__ = ["claiming_less", "type_of", "with_interface", "without", "without_unused"]

STAYS = (UserOutput, StateMutation, InputMutation)
"""Outputs that keep their kind; gradients and losses become plain values, and tokens order nothing."""


def type_of(value: Any) -> TensorType | None:
    """Return the type of an input for a tensor, fake or not; None for other values.

    >>> type_of(torch.ones(2, 3))
    TensorType(dtype=torch.float32, shape=(2, 3), device='cpu')
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return TensorType(value.dtype, tuple([read_size(size) for size in value.shape]), str(device_of(value)))


def without(program: Program, gone: Collection[str]) -> Program | None:
    """Return a program without some nodes of its root; None if no input can replace one of their results.

    New inputs have types, but no fake values; ``infer`` computes those.

    Args:
        program: any valid program; its root may call modules.
        gone: nodes of the root.  Their projections are removed as well, and reads of state that are then unused.

    >>> from purefx.ir import Op, Signature
    >>> nodes = (Node("y", Op("toy.neg"), (Ref("x"),), meta={"val": torch.ones(2)}), Node("z", Op("toy.exp"), (Ref("y"),)))
    >>> signature = Signature((UserInput(TensorType(torch.float32, (2,))),), (UserOutput(),))
    >>> program = Program.of({"": Graph((Input("x"),), nodes, (Ref("z"),))}, signature=signature)
    >>> print(without(program, ["y"]).main)
    graph @""(y) {
      z = toy.exp(y) ! pure
      return (z,)
    }
    """
    graph, lost = program.main, set(gone)
    for node in graph.nodes:
        if node.projection is not None and node.projection[0] in lost:
            lost.add(node.name)
    nodes = [node for node in graph.nodes if node.name not in lost]
    inputs: dict[str, ArgumentType] = {}
    literals: dict[str, Arg] = {}
    for name in dict.fromkeys([name for node in nodes for name in node.refs() if name in lost]):
        found = _replacement(program, graph.by_name[name])
        if found is None:
            return None
        if isinstance(found, TensorType | ObjectType):
            inputs[name] = found
        else:
            literals[name] = found
    pairs = zip(graph.output, program.signature.outputs, strict=True)
    outputs: list[tuple[Arg, OutputSpec]] = [
        (arg, spec if type(spec) in STAYS else UserOutput())
        for arg, spec in pairs
        if type(arg) is not Ref or arg.name not in lost
    ]
    # Operands of the removed nodes are returned.
    used = {name for node in graph.nodes if node.name in lost for name in node.refs()}
    for node in nodes:
        is_tensor = "val" not in node.meta or isinstance(node.meta["val"], torch.Tensor)
        if node.name in used and type(node.do) is not Get and is_tensor and Ref(node.name) not in [arg for arg, _ in outputs]:
            outputs.append((Ref(node.name), UserOutput()))
    formals = (*graph.inputs, *[Input(name) for name in inputs])
    specs = [*program.signature.inputs, *[UserInput(kind, name) for name, kind in inputs.items()]]
    main = Graph(formals, tuple([node.using(literals) for node in nodes]), tuple([arg for arg, _ in outputs]))
    made = with_interface(program, main, specs, [spec for _, spec in outputs])
    return without_unused(made, only=frozenset([*graph.users, *graph.output_refs()]))


def _replacement(program: Program, node: Node) -> TensorType | ObjectType | float | None:
    # The number or the type of the input that can replace a node.
    value: Any = node.meta.get("val")
    if "val" not in node.meta and type(node.do) is Get and node.do.slot in program.state:
        value = program.state[node.do.slot].value
    elif "val" not in node.meta and any(
        type(spec) is UserInput and type(spec.type) is ObjectType for spec in program.signature.inputs
    ):
        return ObjectType()  # traced without examples: types of values are unknown
    number = size_number(value) if isinstance(value, SYMBOLIC) else value
    return number if type(number) in (int, float, bool) else type_of(value)


def with_interface(program: Program, main: Graph, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec]) -> Program:
    """Return a program with another root and signature, called without pytrees; guards count the inputs, so they are dropped.

    Args:
        program: the source of the rest.
        main: the root.
        inputs: the specs of its inputs.
        outputs: the specs of its outputs; mutations count the inputs of the original program.
    """
    users = [evolve(spec, default=None) if type(spec) is UserInput and spec.default is not None else spec for spec in inputs]
    made = program.with_boundary(main, users, outputs, in_spec=None, out_spec=None, arg_names=(), lifted=())
    kinds = [spec.type for spec in users if type(spec) is UserInput]
    names = {name for kind in kinds if type(kind) is TensorType for size in kind.shape for name in symbols_in(size)}
    ranges = tuple([span for span in program.constraints.ranges if names.issuperset(symbols_in(span.expr))])
    return claiming_less(made.evolve(constraints=Constraints(ranges)))


def claiming_less(program: Program) -> Program:
    """Return a program without history, with the facts that can be observed.

    >>> claiming_less(Program.of({"": Graph((), ())}, facts=frozenset({"outlined"}))).facts >= {"outlined"}
    False
    """
    facts = observed(program) | (program.facts & {"split"} if part_names(program) else frozenset())
    return program.evolve(facts=facts, trail=())


def without_unused(program: Program, *, only: Collection[str] | None = None) -> Program:
    """Return a program without unused reads, inputs, state and bodies; the same object if all are used.

    Args:
        program: any valid program.
        only: the inputs that may be dropped; by default all.
    """
    for name in program.order:
        graph = program.graphs[name]
        used = {*graph.users, *graph.output_refs()}
        nodes = [node for node in graph.nodes if type(node.do) is not Get or node.name in used]
        program = program.with_graphs({name: graph.with_nodes(nodes)})
    graph, specs = program.main, program.signature
    used = {*graph.users, *graph.output_refs()}
    mutated = {graph.inputs[spec.index].name for spec in specs.outputs if type(spec) is InputMutation}
    kept = {*used, *mutated, *([] if only is None else {formal.name for formal in graph.inputs} - set(only))}
    pairs = [pair for pair in program.inputs if pair[0].name in kept]
    if len(pairs) < len(graph.inputs):
        main = graph.with_nodes(graph.nodes, inputs=tuple([formal for formal, _ in pairs]))
        program = with_interface(program, main, [spec for _, spec in pairs], specs.outputs)
    left = program.pruned()
    inputs = {spec.slot for spec in left.signature.inputs if type(spec) is StateInput}
    return without_slots(left, [name for name in left.state if name not in inputs.union(state_uses(left))])
