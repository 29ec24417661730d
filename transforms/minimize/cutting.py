"""``without``: a program without some nodes of its root: what they gave becomes inputs, what they took becomes outputs.

What is cut off may have meant something else than what stands in its place: an input shares no memory with another one, whatever
the value that it stands for did.  Whether that matters is for the caller to find out; here a valid program is made, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""Outputs that mean the same of a part; gradients and losses are values like others there, and tokens order nothing."""


class _NoValue(Exception):
    """Nothing can stand for a value."""


def type_of(value: Any) -> TensorType | None:
    """Return the type of an input that takes such a tensor; None for what no input can stand for.

    Args:
        value: a tensor, fake or not.

    >>> type_of(torch.ones(2, 3))
    TensorType(dtype=torch.float32, shape=(2, 3), device='cpu')
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return TensorType(value.dtype, tuple([read_size(size) for size in value.shape]), str(device_of(value)))


def without(program: Program, gone: Collection[str]) -> Program | None:
    """Return a program without some nodes of its root, or None if nothing can stand for what they gave.

    Of new inputs the type is said, and no fake value; ``infer`` works those out, and whether others still hold.

    Args:
        program: any valid program; its root may call modules.
        gone: nodes of the root.  Results that are taken of them one by one go as well, and reads of state that nothing uses then.

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
    try:
        return _Cut(program, gone).program()
    except _NoValue:
        return None


class _Cut:
    def __init__(self, source: Program, gone: Iterable[str]) -> None:
        self.source = source
        self.graph = source.main
        self.gone = set(gone)
        for node in self.graph.nodes:
            if node.projection is not None and node.projection[0] in self.gone:
                self.gone.add(node.name)
        self.inputs: dict[str, ArgumentType] = {}
        """What stands for values that are gone, by name."""
        self.literals: dict[str, Arg] = {}

    def program(self) -> Program:
        """Return what is left."""
        nodes = [node for node in self.graph.nodes if node.name not in self.gone]
        for node in nodes:
            for name in node.refs():
                if name in self.gone and name not in self.inputs and name not in self.literals:
                    self._stand_in(self.graph.by_name[name])
        nodes = [node.using(self.literals) for node in nodes] if self.literals else nodes
        kept, exits = self._outputs(nodes)
        formals = (*self.graph.inputs, *[Input(name) for name in self.inputs])
        specs = [*self.source.signature.inputs, *[UserInput(kind, name) for name, kind in self.inputs.items()]]
        main = Graph(formals, tuple(nodes), tuple([arg for arg, _ in (*kept, *exits)]))
        made = with_interface(self.source, main, specs, [spec for _, spec in (*kept, *exits)])
        return without_unused(made, only=frozenset([*self.graph.users, *self.graph.output_refs()]))

    def _stand_in(self, node: Node) -> None:
        if "val" not in node.meta and type(node.do) is not Get and self._is_untyped():
            self.inputs[node.name] = ObjectType()
            return
        value = self._value(node)
        kind = type_of(value)
        if kind is not None:
            self.inputs[node.name] = kind
            return
        number = size_number(value) if isinstance(value, SYMBOLIC) else value
        if type(number) not in (int, float, bool):
            raise _NoValue
        self.literals[node.name] = number

    def _is_untyped(self) -> bool:
        # A graph that was traced without examples: nothing says what its values are, those of its inputs neither.
        specs = self.source.signature.inputs
        return any(type(spec) is UserInput and type(spec.type) is ObjectType for spec in specs)

    def _value(self, node: Node) -> Any:
        if "val" not in node.meta and type(node.do) is Get and node.do.slot in self.source.state:
            return self.source.state[node.do.slot].value
        return node.meta.get("val")

    def _outputs(self, nodes: Sequence[Node]) -> tuple[list[tuple[Arg, OutputSpec]], list[tuple[Arg, OutputSpec]]]:
        # Those that are left, and what the nodes that are gone used of the others.
        pairs = zip(self.graph.output, self.source.signature.outputs, strict=True)
        kept = [
            (arg, spec if type(spec) in STAYS else UserOutput())
            for arg, spec in pairs
            if type(arg) is not Ref or arg.name not in self.gone
        ]
        given = {arg.name for arg, _ in kept if type(arg) is Ref}
        used = {name for node in self.graph.nodes if node.name in self.gone for name in node.refs()} - given
        exits = [node.name for node in nodes if node.name in used and type(node.do) is not Get]
        return kept, [(Ref(name), UserOutput()) for name in exits if _is_visible(self.graph.by_name[name])]


def _is_visible(node: Node) -> bool:
    return "val" not in node.meta or isinstance(node.meta["val"], torch.Tensor)


def with_interface(program: Program, main: Graph, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec]) -> Program:
    """Return a program with another root and what its inputs and outputs are for, called without pytrees.

    Args:
        program: where the rest comes from; guards, which count the inputs, go.
        main: the root.
        inputs: for each of its inputs what it is for.
        outputs: for each of its outputs; mutations count the inputs of the program as it was.
    """
    users = [evolve(spec, default=None) if type(spec) is UserInput and spec.default is not None else spec for spec in inputs]
    made = program.with_boundary(main, users, outputs, in_spec=None, out_spec=None, arg_names=(), lifted=())
    kinds = [spec.type for spec in users if type(spec) is UserInput]
    names = {name for kind in kinds if type(kind) is TensorType for size in kind.shape for name in symbols_in(size)}
    ranges = tuple([span for span in program.constraints.ranges if names.issuperset(symbols_in(span.expr))])
    return claiming_less(made.evolve(constraints=Constraints(ranges)))


def claiming_less(program: Program) -> Program:
    """Return a program that has no history, and says of itself only what can be looked up.

    Args:
        program: any program.

    >>> claiming_less(Program.of({"": Graph((), ())}, facts=frozenset({"outlined"}))).facts >= {"outlined"}
    False
    """
    facts = observed(program) | (program.facts & {"split"} if part_names(program) else frozenset())
    return program.evolve(facts=facts, trail=())


def without_unused(program: Program, *, only: Collection[str] | None = None) -> Program:
    """Return a program without reads, inputs, state and bodies that nothing uses; the same object if all is used.

    Args:
        program: any valid program.
        only: the inputs that may go; by default all.
    """
    program = program.with_graphs({name: _without_unused_reads(program.graphs[name]) for name in program.order})
    graph, specs = program.main, program.signature
    used = {*graph.users, *graph.output_refs()}
    mutated = {graph.inputs[spec.index].name for spec in specs.outputs if type(spec) is InputMutation}
    pairs = [
        (formal, spec)
        for formal, spec in program.inputs
        if formal.name in used or formal.name in mutated or not (only is None or formal.name in only)
    ]
    if len(pairs) < len(graph.inputs):
        main = graph.with_nodes(graph.nodes, inputs=tuple([formal for formal, _ in pairs]))
        program = with_interface(program, main, [spec for _, spec in pairs], specs.outputs)
    left = program.pruned()
    return without_slots(left, _unused_slots(left))


def _without_unused_reads(graph: Graph) -> Graph:
    used = {*graph.users, *graph.output_refs()}
    return graph.with_nodes([node for node in graph.nodes if type(node.do) is not Get or node.name in used])


def _unused_slots(program: Program) -> list[str]:
    uses: Mapping[str, Any] = state_uses(program)
    taken = {spec.slot for spec in program.signature.inputs if type(spec) is StateInput}
    return [name for name in program.state if name not in uses and name not in taken]
