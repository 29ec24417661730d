"""``explicit``: a flat program as a function of tensors, state among them; and versions of it that compute less.

The backward of a training module runs on what the forward saved, the parameters as they were then included, so it reads no
module.  What nobody asked for, and what no gradient reaches, is left out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Get, Graph, Input
from ...ir.names import word_of
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
    InputMutation,
    InputSpec,
    ObjectType,
    OutputSpec,
    Signature,
    StateInput,
    StateMutation,
    UserInput,
    UserOutput,
)
from ...transforms.inline import inline
from ...transforms.simplify.dead_code import eliminate_dead_code
from ...transforms.state import lift_state

__all__ = ["Explicit", "explicit", "reached", "with_results"]


@frozen
class Explicit:
    """A program whose inputs are all that it needs.

    >>> explicit(Program.of({"": Graph((), (), ())})).state
    ()
    """

    program: Program
    """It takes what the caller passes, then the state; all are user inputs, and what it gives are user outputs."""
    state: tuple[str, ...]
    """The slots whose contents it takes, in order."""


def explicit(given: Program) -> Explicit:
    """Return a program as a function of what the caller passes and of the state that it reads or writes.

    Args:
        given: any program without effect tokens; calls of modules are inlined.

    Raises:
        UnsupportedProgram: the body of an operator reads state.
    """
    program = lift_state(inline(given))
    if any(type(node.do) is Get for _, node in program.nodes()):
        raise UnsupportedProgram(
            "the body of an operator reads state, which the backward of a training module takes as arguments"
        )
    graph = program.main
    users = [formal for formal, spec in program.inputs if type(spec) is UserInput]
    state = {spec.slot: formal for formal, spec in program.inputs if type(spec) is StateInput}
    names = graph.names()
    for spec in program.signature.outputs:
        if type(spec) is StateMutation and spec.slot not in state:
            state[spec.slot] = Input(names.fresh(word_of(spec.slot)))
    formals = (*users, *state.values())
    position = {formal.name: number for number, formal in enumerate(formals)}
    outputs: list[OutputSpec] = []
    for spec in program.signature.outputs:
        match spec:
            case StateMutation(slot=slot):
                outputs.append(InputMutation(position[state[slot].name]))
            case InputMutation(index=index):
                outputs.append(InputMutation(position[graph.inputs[index].name]))
            case _:
                outputs.append(UserOutput())
    inputs: list[InputSpec] = [UserInput(ObjectType(), formal.name) for formal in formals]
    made = Program.of(
        {**{name: program.graphs[name] for name in program.order}, program.root: Graph(formals, graph.nodes, graph.output)},
        root=program.root,
        signature=Signature(tuple(inputs), tuple(outputs)),
    )
    return Explicit(made, tuple(state))


def with_results(program: Program, wanted: Sequence[bool]) -> Program:
    """Return a program that computes some of its results only, and gives None for the others; its effects stay.

    Args:
        program: what ``explicit`` made.
        wanted: for each result whether it is computed.

    >>> with_results(Program.of({"": Graph((), (), ())}), []).main.output
    ()
    """
    answers = iter(wanted)
    specs = program.signature.outputs
    output = tuple(
        [arg if type(spec) not in GIVEN or next(answers) else None for arg, spec in zip(program.main.output, specs, strict=True)]
    )
    graph = program.main
    return eliminate_dead_code(program.with_main(Graph(graph.inputs, graph.nodes, output))).evolve(trail=())


def reached(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Return the values of a graph that depend on some of its values, those included.

    >>> from purefx.ir import Node, Op, Ref
    >>> sorted(reached(Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), ()), {"x"}))
    ['x', 'y']
    """
    found = set(names)
    for node in graph.nodes:
        if not found.isdisjoint(node.refs()):
            found.add(node.name)
    return frozenset(found)
