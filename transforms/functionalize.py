"""``functionalize``: last writes to inputs become mutations that are returned, the opposite of ``inplace_mutations``.

One idea: one walk from the end to the beginning.  A ``copy_`` into an input is a returned value when nothing that stays
after it looks at the old or new contents, and the value is still what was copied.  Every other write stays in place.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve, frozen

from ..ir.arguments import Arg, Ref, replace_refs
from ..ir.effects.happenings import happenings
from ..ir.effects.resolved import Happening
from ..ir.effects.storages import slot_storage, storages
from ..ir.effects.unions import Unions
from ..ir.graph import Graph
from ..ir.node import Node, Op
from ..ir.program import Program
from ..ir.signature import InputMutation, OutputSpec, StateInput, StateMutation, Token, UserInput
from .fuel import UNLIMITED, Fuel
from .inplace_mutations import CLONE, COPY, SAVED
from .metas import alike
from .transformation import transformation

__all__ = ["functionalize"]


@frozen
class Returned:
    """One write that becomes a returned value: the position of the root input, and the value."""

    index: int
    value: str


@transformation(
    proven=True,
    requires={"flat", "state as inputs"},
    forgets={"mutations in place"},
    inverse="inplace_mutations",
    laws=["only copy_ and the clones of inplace_mutations are removed", "no operator moves"],
)
def functionalize(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn last writes to inputs into mutations that the program returns.

    Before::

        add = aten.add.Tensor(b_count, 1)
        copy_ = aten.copy_.default(b_count, add)
        mul = aten.mul.Tensor(x, 2)
        return mul

    After::

        add = aten.add.Tensor(b_count, 1)
        mul = aten.mul.Tensor(x, 2)
        return add, mul            # add is the new value of the buffer "count"

    Only a ``copy_`` into a whole input, of one shape and dtype, after which nothing reads or writes that memory, is such a
    write.  Others (``add_``, ``batch_norm`` in training, a ``copy_`` whose result is read) stay as they are.  Mutations
    stand where the exporter puts them: before the user outputs, state first, each in the order of the inputs.

    Args:
        program: a flat program that takes its state as inputs.
        fuel: a rewrite is one write that becomes a returned value, the last one first.

    Returns:
        The program with those writes in its signature; clones that ``inplace_mutations`` made for them are gone too.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())}, facts=frozenset({"flat"}))
    >>> px.functionalize(program) is program
    True
    """
    if not any(node.do == COPY for node in program.main.nodes):
        return program
    found = _Backwards(program, fuel)
    found.walk()
    return found.program() if found.returned else program


class _Backwards:
    """One walk from the last node to the first; what stays is noted as it is passed."""

    def __init__(self, program: Program, fuel: Fuel) -> None:
        self.source = program
        self.fuel = fuel
        self.graph = program.main
        self.done: list[Happening] = happenings(program, self.graph)
        self.memory: Unions = storages(program, self.graph, self.done)
        self.index = {formal.name: number for number, formal in enumerate(self.graph.inputs)}
        self.values: dict[str, Any] = {formal.name: formal.meta.get("val") for formal in self.graph.inputs}
        self.values.update((node.name, node.meta.get("val")) for node in self.graph.nodes)
        self.returned: list[Returned] = []
        self.removed: set[str] = set()
        self.instead: dict[str, Ref] = {}
        """What stands for the clones that go."""
        self.used: set[str] = set()
        """Values that nodes which stay use."""
        self.written: set[object] = set()
        """Memory that nodes which stay write, after the point of the walk."""
        self.touched: set[object] = {self.memory.find(name) for name in self.graph.output_refs()}
        """Memory that is read or written after the point of the walk."""
        for spec in program.signature.outputs:
            if type(spec) is StateMutation:
                self.touched.add(self.memory.find(slot_storage(program, spec.slot)))
            elif type(spec) is InputMutation:
                self.touched.add(self.memory.find(self.graph.inputs[spec.index].name))

    def walk(self) -> None:
        """Decide for every node whether it stays."""
        for node, happening in zip(reversed(self.graph.nodes), reversed(self.done), strict=True):
            if self._is_last_write(node) and self.fuel.burn("return", node.args[1].name, "instead of", node.name):
                target, value = node.args[0].name, node.args[1].name
                self.returned.append(Returned(self.index[target], value))
                self.removed.add(node.name)
                self.touched.update((self.memory.find(target), self.memory.find(value)))
            elif self._only_saves(node):
                self.removed.add(node.name)
                self.instead[node.name] = node.args[0]
                self.touched.add(self.memory.find(node.args[0].name))
            else:
                self._stays(node, happening)

    def _is_last_write(self, node: Node) -> bool:
        match node:
            case Node(do=Op() as do, args=(Ref(name=target), Ref(name=value)), kwargs=()) if do == COPY and target in self.index:
                mine, theirs = self.memory.find(target), self.memory.find(value)
                takes = type(self.source.signature.inputs[self.index[target]]) in (StateInput, UserInput)
                free = mine not in self.touched and mine != theirs and theirs not in self.written
                return takes and free and self._same_kind(self.values[target], self.values.get(value))
            case _:
                return False

    def _same_kind(self, target: Any, value: Any) -> bool:
        # copy_ broadcasts and converts, a returned mutation does not.
        known = isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor)
        return not known or alike(target, value)

    def _only_saves(self, node: Node) -> bool:
        # A clone that kept contents from a write which is gone now; one that the user wrote is not marked.
        match node:
            case Node(do=Op() as do, args=(Ref(name=value),)) if do == CLONE and node.meta.get(SAVED) is True:
                return node.name not in self.used and self.memory.find(value) not in self.written
            case _:
                return False

    def _stays(self, node: Node, happening: Happening) -> None:
        find, source = self.memory.find, self.source
        refs = node.refs()
        self.used.update(refs)
        written = {find(name) for name in happening.writes}
        written.update(find(slot_storage(source, slot)) for slot in happening.writes_slots)
        self.written |= written
        self.touched |= written
        self.touched.update(find(name) for name in refs)
        self.touched.update(find(slot_storage(source, slot)) for slot in (*happening.reads_slots, *happening.aliases_slots))

    def program(self) -> Program:
        """Return the program with the writes in its signature."""
        signature = self.source.signature
        outputs = list(zip(map(self._value, self.graph.output), signature.outputs, strict=True))
        outputs += [(self._value(Ref(write.value)), self._spec(write.index)) for write in self.returned]
        position = {spec.slot: number for number, spec in enumerate(signature.inputs) if type(spec) is StateInput}
        outputs.sort(key=lambda entry: _rank(entry[1], position))
        nodes = tuple([node for node in self.graph.nodes if node.name not in self.removed])
        graph = Graph(self.graph.inputs, nodes, tuple([value for value, _ in outputs]))
        return self.source.with_main(graph, signature=evolve(signature, outputs=tuple([spec for _, spec in outputs])))

    def _value(self, arg: Arg) -> Arg:
        return replace_refs(arg, self.instead)

    def _spec(self, index: int) -> OutputSpec:
        spec = self.source.signature.inputs[index]
        return StateMutation(spec.slot) if type(spec) is StateInput else InputMutation(index)


def _rank(spec: OutputSpec, position: dict[str, int]) -> tuple[int, int]:
    # Tokens, state, inputs, the user's: sorting is stable, so the user's outputs keep their order.
    match spec:
        case Token():
            return 0, 0
        case StateMutation(slot=slot):
            return 1, position.get(slot, -1)
        case InputMutation(index=index):
            return 2, index
        case _:
            return 3, 0
