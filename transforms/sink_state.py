"""``sink_state``: state that the flat program takes as inputs becomes reads where it is used.

One idea: a read belongs to the innermost module call that owns the state under one of its names.  Tied weights have
several names; the one that lies below the module at hand is read.  State that no enclosing module owns is read in
the nearest one that does and handed down.  It works on the flat program, before ``outline``.
"""

from __future__ import annotations

from collections.abc import Container

from attrs import evolve

from ..ir.arguments import Arg, Ref, map_refs
from ..ir.borders import TAKES
from ..ir.graph import Graph, Input
from ..ir.names import Names
from ..ir.node import Frame, Get, Node, Op, Stack
from ..ir.program import Program
from ..ir.signature import InputMutation, InputSpec, StateInput, SunkInput, UserInput
from ..ir.state import reading_place
from .fuel import UNLIMITED, Fuel
from .transformation import transformation

__all__ = ["sink_state"]


@transformation(
    proven=True,
    requires={"flat"},
    establishes={"state sunk"},
    forgets={"state as inputs"},
    inverse="lift_state",
    laws=["only reads are added", "no input is state afterwards", "each read lies below the module call that makes it"],
)
def sink_state(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Read state where it is used instead of taking it as an input.

    Before::

        inputs p_lin_weight = state "lin.weight", x
        linear = aten.linear.default(x, p_lin_weight)      in lin

    After::

        inputs x
        p_lin_weight = get "lin.weight"                     in lin
        linear = aten.linear.default(x, p_lin_weight)      in lin

    Args:
        program: a flat program.
        fuel: a rewrite is one input that becomes reads, in the order of the inputs.

    Returns:
        The program with user inputs only.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.sink_state(program) is program
    True
    """
    specs = program.signature.inputs
    if not any(type(spec) is StateInput for spec in specs):
        return program
    graph = program.main
    state = {
        formal.name: (formal, spec.slot)
        for formal, spec in zip(graph.inputs, specs, strict=True)
        if type(spec) is StateInput and fuel.burn("sink", formal.name, "=", spec.slot)
    }
    if not state:
        return program
    walk = _Sinking(program, state)
    nodes, output = walk.run()
    kept = [index for index, formal in enumerate(graph.inputs) if formal.name not in state]
    moved = {old: new for new, old in enumerate(kept)}
    outputs = tuple(
        InputMutation(moved[spec.index]) if type(spec) is InputMutation and spec.index in moved else spec
        for spec in program.signature.outputs
    )
    lifted = (*program.signature.lifted, *_sunk_inputs(graph, specs, state, walk.used))
    signature = evolve(program.signature, inputs=tuple(specs[index] for index in kept), outputs=outputs, lifted=lifted)
    inputs = tuple(graph.inputs[index] for index in kept)
    return program.with_main(Graph(inputs, nodes, output), signature=signature)


def _sunk_inputs(graph: Graph, specs: tuple[InputSpec, ...], sunk: Container[str], used: Container[str]) -> list[SunkInput]:
    # Positions among the user inputs: tokens may go in the meantime, and nothing else stands between.
    found: list[SunkInput] = []
    users = 0
    for formal, spec in zip(graph.inputs, specs, strict=True):
        users += type(spec) is UserInput
        if type(spec) is StateInput and formal.name in sunk:
            found.append(SunkInput(spec.slot, users, formal.name in used))
    return found


class _Sinking:
    """One walk over the flat graph that puts a read before the first use in each module call."""

    def __init__(self, program: Program, state: dict[str, tuple[Input, str]]) -> None:
        self.program = program
        self.graph = program.main
        self.state = state
        self.names = Names([*(formal.name for formal in self.graph.inputs), *(node.name for node in self.graph.nodes)])
        self.readers: dict[tuple[str, Frame | None], Ref] = {}
        self.used: set[str] = set()
        """Inputs that something reads."""
        self.nodes: list[Node] = []

    def run(self) -> tuple[tuple[Node, ...], Arg]:
        state, nodes = self.state.keys(), self.nodes
        for node in self.graph.nodes:
            read = node if state.isdisjoint(node.refs()) else self._read_for(node)
            nodes.append(read)
        output = map_refs(self.graph.output, lambda ref: self._read(ref, ()))
        return tuple(nodes), output

    def _read_for(self, node: Node) -> Node:
        # What a call takes is read by its caller.
        stack = node.stack[:-1] if type(node.do) is Op and node.do.name == TAKES.name else node.stack
        return node.with_refs(lambda ref: self._read(ref, stack))

    def _read(self, ref: object, stack: Stack) -> object:
        if type(ref) is not Ref or ref.name not in self.state:
            return ref
        formal, slot = self.state[ref.name]
        depth, name = reading_place(self.program.state, slot, stack)
        # The innermost frame stands for the scope: a path and a call number name one call.
        key = (ref.name, stack[depth - 1] if depth else None)
        reader = self.readers.get(key)
        if reader is None:
            reader = Ref(self.names.fresh(ref.name)) if ref.name in self.used else ref
            self.used.add(ref.name)
            self.readers[key] = reader
            self.nodes.append(Node(reader.name, Get(name), (), (), stack[:depth], formal.meta))
        return ref if reader.name == ref.name else reader
