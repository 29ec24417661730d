"""A program at any stage becomes one that can be run: user inputs in, user outputs out.

One idea: what the signature of a flat program says in words (this input is state, that output is its new value) is
written as nodes, reads before and copies after, which is what ``ep.module()`` means too.  A program that went
through the default pipeline is returned as it is.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ..ir.arguments import Arg, Items, Ref
from ..ir.effects.happenings import happenings
from ..ir.effects.storages import slot_storage, storages
from ..ir.graph import Graph
from ..ir.names import Names, word_of
from ..ir.node import Get, Node
from ..ir.operators import op_of
from ..ir.program import Program
from ..ir.signature import GIVEN, InputMutation, StateInput, StateMutation, Token, UserInput

__all__ = ["executable"]


def executable(program: Program) -> Program:
    """Return a program whose root takes user inputs and gives user outputs.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> executable(program) is program
    True
    """
    signature = program.signature
    plain = all(type(spec) is UserInput for spec in signature.inputs) and all(type(spec) in GIVEN for spec in signature.outputs)
    if plain:
        return program
    graph = program.main
    reads: list[Node] = []
    inputs = []
    for formal, spec in zip(graph.inputs, signature.inputs, strict=True):
        match spec:
            case StateInput(slot=slot):
                reads.append(Node(formal.name, Get(slot), meta=formal.meta))
            case Token():
                reads.append(Node(formal.name, op_of(torch.ops.aten.empty.memory_format), (Items([0]),), meta=formal.meta))
            case UserInput():
                inputs.append(formal)
    writes, output = _writes(program)
    nodes = (*reads, *graph.nodes, *writes)
    kept = tuple(spec for spec in signature.inputs if type(spec) is UserInput)
    outputs = tuple(spec for spec in signature.outputs if type(spec) in GIVEN)
    return program.with_main(Graph(tuple(inputs), nodes, output), signature=evolve(signature, inputs=kept, outputs=outputs))


def _writes(program: Program) -> tuple[list[Node], tuple[Arg, ...]]:
    # All new values are there before the first is stored; what shares memory with a target is saved first.
    graph, signature = program.main, program.signature
    owner = {
        spec.slot: formal.name for formal, spec in zip(graph.inputs, signature.inputs, strict=True) if type(spec) is StateInput
    }
    memory = storages(program, graph, happenings(program, graph))
    names = Names([*(formal.name for formal in graph.inputs), *(node.name for node in graph.nodes)])
    # State that is written and is no input is read for that.
    unread = [spec.slot for spec in signature.outputs if type(spec) is StateMutation and spec.slot not in owner]
    reads = [Node(names.fresh(word_of(slot)), Get(slot)) for slot in unread]
    for slot, node in zip(unread, reads, strict=True):
        owner[slot] = node.name
        memory.join(node.name, slot_storage(program, slot))
    pairs: list[tuple[str, Arg]] = []
    given: list[Arg] = []
    for arg, spec in zip(graph.output, signature.outputs, strict=True):
        match spec:
            case StateMutation(slot=slot):
                pairs.append((owner[slot], arg))
            case InputMutation(index=index):
                pairs.append((graph.inputs[index].name, arg))
            case Token():
                pass
            case _:
                given.append(arg)
    written = {memory.find(target) for target, _ in pairs}
    clones: dict[str, Node] = {}

    def saved(arg: Arg) -> Arg:
        if type(arg) is not Ref or memory.find(arg.name) not in written:
            return arg
        if arg.name not in clones:
            clones[arg.name] = Node(names.fresh("clone"), op_of(torch.ops.aten.clone.default), (arg,))
        return Ref(clones[arg.name].name)

    copy_ = op_of(torch.ops.aten.copy_.default)
    copies = [Node(names.fresh("copy_"), copy_, (Ref(target), saved(arg))) for target, arg in pairs if arg != Ref(target)]
    output = tuple(saved(arg) for arg in given)
    return [*reads, *clones.values(), *copies], output
