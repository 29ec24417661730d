"""Outputs in the order and with the distinctness that an exported program needs.

One idea: torch finds the mutations by their place before what the user gets, keys them by the name of the value, and
``ep.module()`` performs them one by one before it gives anything back (2.13): two that are one value are told apart, and a
value that shares memory with what is written, an old content that is returned or swapped, is saved first.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.effects.happenings import happenings
from ...ir.effects.storages import storages
from ...ir.graph import Graph
from ...ir.meta import Meta
from ...ir.names import Names
from ...ir.node import Node
from ...ir.operators import op_of
from ...ir.program import Program
from ...ir.signature import InputMutation, LiteralType, StateInput, StateMutation, Token, UserInput

__all__ = ["apart"]

CLONE = op_of(torch.ops.aten.clone.default)


def apart(program: Program) -> Program:
    """Return a program whose outputs torch can tell apart; the same object where it can already.

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
    if not any(type(spec) in (StateMutation, InputMutation) for spec in specs):
        return program
    return _with_clones(program)


def _with_literals(program: Program) -> Program:
    # An input that is None or a text in every call is no value that a node can give back.
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    fixed = {
        formal.name: spec.type.value
        for formal, spec in pairs
        if type(spec) is UserInput and type(spec.type) is LiteralType and isinstance(spec.type.value, str | None)
    }
    if fixed.keys().isdisjoint(program.main.output_refs()):
        return program
    return program.with_main(evolve(program.main, output=replace_refs(program.main.output, fixed)))


def _rank(spec: object) -> int:
    return 0 if type(spec) is Token else 1 if type(spec) in (StateMutation, InputMutation) else 2


def _with_clones(program: Program) -> Program:
    graph, specs = program.main, program.signature.outputs
    pairs = zip(graph.inputs, program.signature.inputs, strict=True)
    owner = {spec.slot: formal.name for formal, spec in pairs if type(spec) is StateInput}
    targets = [_target(graph, owner, spec) for spec in specs]
    memory = storages(program, graph, happenings(program, graph))
    written = {memory.find(target) for target in targets if target is not None}
    clones = _Clones(graph)
    taken: set[Arg] = set()
    output: list[Arg] = []
    for arg, target in zip(graph.output, targets, strict=True):
        if type(arg) is Ref and arg.name != target:
            if memory.find(arg.name) in written:
                arg = clones.once(arg.name)
            if target is not None and arg in taken:
                arg = clones.another(arg)
        if target is not None:
            taken.add(arg)
        output.append(arg)
    if not clones.nodes:
        return program
    return program.with_main(Graph(graph.inputs, (*graph.nodes, *clones.nodes), tuple(output)))


def _target(graph: Graph, owner: dict[str, str], spec: object) -> str | None:
    # The input that an output is the new contents of.
    match spec:
        case StateMutation(slot=slot):
            return owner.get(slot)
        case InputMutation(index=index):
            return graph.inputs[index].name
        case _:
            return None


class _Clones:
    """The clones at the end of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.metas: dict[str, Meta] = {formal.name: formal.meta for formal in graph.inputs}
        self.metas.update((node.name, node.meta) for node in graph.nodes)
        self.names = Names(self.metas)
        self.nodes: list[Node] = []
        self._saved: dict[str, Ref] = {}

    def once(self, name: str) -> Ref:
        """Return the one clone of a value."""
        if name not in self._saved:
            self._saved[name] = self.another(Ref(name))
        return self._saved[name]

    def another(self, ref: Ref) -> Ref:
        """Return a new clone of a value."""
        value = self.metas[ref.name].get("val")
        node = Node(self.names.fresh("clone"), CLONE, (ref,), (), (), {} if value is None else {"val": value})
        self.metas[node.name] = node.meta
        self.nodes.append(node)
        return Ref(node.name)
