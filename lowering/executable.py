"""``executable``: a root with only user inputs and user outputs; state is read, and new contents are written at the end.

What those writes would change is cloned first (``with_saved_values``), which the outputs of exported programs need too.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve

from ..ir.arguments import Arg, Items, Ref
from ..ir.effects.resolved import node_effects, slot_storage, storages
from ..ir.graph import Get, Graph, Node
from ..ir.inference import running
from ..ir.names import word_of
from ..ir.operators import op_of
from ..ir.program import Program
from ..ir.signature import GIVEN, InputMutation, OutputSpec, StateInput, StateMutation, Token, UserInput
from ..ir.torch_private import FakeTensor

__all__ = ["executable", "with_saved_values"]

CLONE, COPY = op_of(torch.ops.aten.clone.default), op_of(torch.ops.aten.copy_.default)

EMPTY = op_of(torch.ops.aten.empty.memory_format)


def executable(program: Program) -> Program:
    """Return a program whose root has only user inputs and user outputs.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> executable(program) is program
    True
    """
    inputs, outputs = program.signature.inputs, program.signature.outputs
    if all(type(spec) is UserInput for spec in inputs) and all(type(spec) in GIVEN for spec in outputs):
        return program
    program = with_saved_values(program)
    graph, signature = program.main, program.signature
    reads: list[Node] = []
    for formal, spec in program.inputs:
        match spec:
            case StateInput(slot=slot):
                reads.append(Node(formal.name, Get(slot), meta=formal.meta))
            case Token():
                reads.append(Node(formal.name, EMPTY, (Items([0]),), meta=formal.meta))
            case UserInput():
                pass
    writes, given = _writes(program)
    users = tuple([formal for formal, spec in program.inputs if type(spec) is UserInput])
    signature = evolve(
        signature,
        inputs=tuple([spec for spec in inputs if type(spec) is UserInput]),
        outputs=tuple([spec for spec in outputs if type(spec) in GIVEN]),
    )
    return program.with_main(Graph(users, (*reads, *graph.nodes, *writes), given), signature=signature)


def _cloned(value: Any) -> Any:
    # A clone of a view that leaves gaps in memory has none.
    if not isinstance(value, FakeTensor):
        return value
    with running(value.fake_mode):
        return value.clone()


def _writes(program: Program) -> tuple[list[Node], tuple[Arg, ...]]:
    # The writes at the end, and what the caller gets.
    graph, names, owner = program.main, program.main.names(), _owners(program)
    writes: list[Node] = []
    given: list[Arg] = []
    for arg, spec in zip(graph.output, program.signature.outputs, strict=True):
        if type(spec) is StateMutation and spec.slot not in owner:  # state that is not an input is read for that
            owner[spec.slot] = names.fresh(word_of(spec.slot))
            writes.append(Node(owner[spec.slot], Get(spec.slot)))
        target = _target(graph, owner, spec)
        if target is None:
            given += [arg] if type(spec) in GIVEN else []
        elif arg != Ref(target):
            writes.append(Node(names.fresh("copy_"), COPY, (Ref(target), arg)))
    return writes, tuple(given)


def _owners(program: Program) -> dict[str, str]:
    return {spec.slot: formal.name for formal, spec in program.inputs if type(spec) is StateInput}


def _target(graph: Graph, owner: dict[str, str], spec: OutputSpec) -> str | None:
    # The value that an output is the new contents of.
    match spec:
        case StateMutation(slot=slot):
            return owner.get(slot)
        case InputMutation(index=index):
            return graph.inputs[index].name
        case _:
            return None


def with_saved_values(program: Program, *, distinct: bool = False) -> Program:
    """Return a program in which outputs share no memory with what others are the new contents of: such values are cloned.

    All new values are there before the first is stored.

    Args:
        program: its outputs may be new contents of inputs and of state.
        distinct: no value may be the new contents of two.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_saved_values(program) is program
    True
    """
    graph, specs = program.main, program.signature.outputs
    if not any(type(spec) in (StateMutation, InputMutation) for spec in specs):
        return program
    owner, memory = _owners(program), storages(program, graph, node_effects(program, graph))
    written = {memory.find(slot_storage(program, spec.slot)) for spec in specs if type(spec) is StateMutation}
    written |= {memory.find(graph.inputs[spec.index].name) for spec in specs if type(spec) is InputMutation}
    names, clones, saved, taken = graph.names(), list[Node](), dict[Arg, Ref](), set[Arg]()

    def clone(value: Ref, original: Ref) -> Ref:
        meta = graph.metas[original.name]
        clones.append(Node(names.fresh("clone"), CLONE, (value,), meta={"val": _cloned(meta["val"])} if "val" in meta else {}))
        return Ref(clones[-1].name)

    output: list[Arg] = []
    for given, spec in zip(graph.output, specs, strict=True):
        arg, target = given, _target(graph, owner, spec)
        if type(given) is Ref and given.name != target:
            if memory.find(given.name) in written:
                arg = saved[given] = saved.get(given) or clone(given, given)
            if distinct and target is not None and arg in taken:
                arg = clone(arg, given)
        if target is not None:
            taken.add(arg)
        output.append(arg)
    return program.with_main(Graph(graph.inputs, (*graph.nodes, *clones), tuple(output))) if clones else program
