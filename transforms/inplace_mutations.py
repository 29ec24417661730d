"""``inplace_mutations``: functional buffer and input mutations become ``copy_``.

One idea: a write must not overtake a read.  The exporter returns new values of state; each becomes a ``copy_`` into
the old tensor, placed after the value is final *and* after the last use of the old contents, wherever a legal
reordering has put those uses.  It does not touch writes that are in place already.
"""

from __future__ import annotations

from types import MappingProxyType

import torch
from attrs import evolve, frozen

from ..ir.arguments import Arg, Ref, map_refs
from ..ir.effects.happenings import happenings
from ..ir.effects.resolved import Happening
from ..ir.effects.storages import storages
from ..ir.effects.unions import Unions
from ..ir.graph import Graph
from ..ir.meta import EMPTY_META, Meta
from ..ir.names import Names
from ..ir.node import Node, Stack, common_prefix
from ..ir.operators import op_of
from ..ir.program import Program
from ..ir.signature import InputMutation, StateInput, StateMutation
from .fuel import UNLIMITED, Fuel
from .transformation import transformation

__all__ = ["inplace_mutations"]


COPY = op_of(torch.ops.aten.copy_.default)
CLONE = op_of(torch.ops.aten.clone.default)

SAVED = "saved_for_mutation"
"""The entry of meta that tells a clone made here from one that the user wrote: ``functionalize`` removes it again."""


@frozen
class Mutation:
    """One returned new value: the root input that it is for, and the value."""

    target: str
    value: str


@transformation(
    proven=True,
    requires={"flat", "state as inputs"},
    establishes={"mutations in place"},
    inverse="functionalize",
    laws=["there is one copy_ for each mutation of the signature", "no read of old contents comes after the write"],
)
def inplace_mutations(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn mutations that the program returns into writes.

    Before::

        add = aten.add.Tensor(b_count, 1)
        mul = aten.mul.Tensor(x, 2)
        return add, mul            # add is the new value of the buffer "count"

    After::

        add = aten.add.Tensor(b_count, 1)
        copy_ = aten.copy_.default(b_count, add)
        mul = aten.mul.Tensor(x, 2)
        return mul

    A value that shares memory with something that is written is cloned first, so that swapped buffers swap.

    Args:
        program: a program whose state is not sunk yet.
        fuel: a rewrite is one returned mutation that becomes a write, in the order of the outputs.

    Returns:
        The program without mutations in its signature.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.inplace_mutations(program) is program
    True
    """
    specs = program.signature.outputs
    if not any(type(spec) in (StateMutation, InputMutation) for spec in specs):
        return program
    graph = program.main
    mutations, kept = _mutations(program, fuel)
    if len(kept) == len(specs):
        return program
    output = tuple([graph.output[number] for number in kept])
    signature = evolve(program.signature, outputs=tuple([specs[number] for number in kept]))
    return program.with_main(_Writes(program, mutations, output).graph(), signature=signature)


def _mutations(program: Program, fuel: Fuel) -> tuple[list[Mutation], list[int]]:
    # What is written, and the numbers of the outputs that stay.
    graph = program.main
    owner = {
        spec.slot: formal.name
        for formal, spec in zip(graph.inputs, program.signature.inputs, strict=True)
        if type(spec) is StateInput
    }
    slots = frozenset(owner.values())
    found: list[Mutation] = []
    kept: list[int] = []
    for number, (arg, spec) in enumerate(zip(graph.output, program.signature.outputs, strict=True)):
        match spec:
            case StateMutation(slot=slot):
                target = owner[slot]
            case InputMutation(index=index):
                target = graph.inputs[index].name
            case _:
                kept.append(number)
                continue
        if not fuel.burn("copy", arg.name, "into", target):
            kept.append(number)
        elif arg.name != target:  # returning the old value changes nothing
            found.append(Mutation(target, arg.name))
    # Writes that may stand in any order stand in the exporter's, so that `functionalize` gives them back.
    rank = {formal.name: (formal.name not in slots, number) for number, formal in enumerate(graph.inputs)}
    return sorted(found, key=lambda mutation: rank[mutation.target]), kept


class _Writes:
    """Works out where each write goes; plain lists inside, frozen at the end."""

    def __init__(self, program: Program, mutations: list[Mutation], output: tuple[Arg, ...]) -> None:
        self.source = program.main
        self.mutations = mutations
        self.output = output
        self.done: list[Happening] = happenings(program, self.source)
        self.memory: Unions = storages(program, self.source, self.done)
        self.names = Names([*(formal.name for formal in self.source.inputs), *(node.name for node in self.source.nodes)])
        self.index = {node.name: number for number, node in enumerate(self.source.nodes)}
        self.meta: dict[str, Meta] = {formal.name: formal.meta for formal in self.source.inputs}
        self.meta.update((node.name, node.meta) for node in self.source.nodes)
        self.after: dict[int, list[Node]] = {}
        self.last_use, self.last_write = self._last_touches()

    def graph(self) -> Graph:
        written = {self.memory.find(mutation.target) for mutation in self.mutations}
        output = tuple(map_refs(arg, lambda ref: self._old_output(ref, written)) for arg in self.output)
        # Values that share memory with a written tensor are saved before the first write happens.
        saved = {m.value: self._saved(m) for m in self.mutations if self.memory.find(m.value) in written}
        for mutation in self.mutations:
            place, stack = self._place(mutation)
            value = saved.get(mutation.value, mutation.value)
            name = self.names.fresh("copy_")
            meta = self.meta.get(mutation.value, EMPTY_META)
            self.after.setdefault(place, []).append(Node(name, COPY, (Ref(mutation.target), Ref(value)), (), stack, meta))
        nodes = list(self.after.get(-1, ()))
        for number, node in enumerate(self.source.nodes):
            nodes.append(node)
            nodes.extend(self.after.get(number, ()))
        return Graph(self.source.inputs, tuple(nodes), output)

    def _last_touches(self) -> tuple[dict[object, int], dict[object, int]]:
        uses: dict[object, int] = {}
        writes: dict[object, int] = {}
        find = self.memory.find
        for number, (node, happening) in enumerate(zip(self.source.nodes, self.done, strict=True)):
            for name in node.refs():
                uses[find(name)] = number
            uses[find(node.name)] = number
            for name in happening.writes:
                writes[find(name)] = number
        return uses, writes

    def _final(self, value: str) -> int:
        return max(self.index.get(value, -1), self.last_write.get(self.memory.find(value), -1))

    def _place(self, mutation: Mutation) -> tuple[int, Stack]:
        final = self._final(mutation.value)
        place = max(final, self.last_use.get(self.memory.find(mutation.target), -1))
        if place < 0:
            return -1, ()
        nodes = self.source.nodes
        value = self.index.get(mutation.value)
        mine = nodes[value].stack if value is not None else nodes[place].stack
        return place, mine if place == value else common_prefix([mine, nodes[place].stack])

    def _saved(self, mutation: Mutation) -> str:
        place = self._final(mutation.value)
        return self._clone(mutation.value, place)

    def _old_output(self, ref: object, written: set[object]) -> object:
        # The caller gets the old contents of something that is overwritten: hand out a copy made before the write.
        if type(ref) is not Ref or self.memory.find(ref.name) not in written:
            return ref
        return Ref(self._clone(ref.name, self._final(ref.name)))

    def _clone(self, value: str, place: int) -> str:
        name = self.names.fresh("clone")
        stack = self.source.nodes[place].stack if place >= 0 else ()
        meta = MappingProxyType({**self.meta.get(value, EMPTY_META), SAVED: True})
        node = Node(name, CLONE, (Ref(value),), (), stack, meta)
        self.after.setdefault(place, []).insert(0, node)
        return name
