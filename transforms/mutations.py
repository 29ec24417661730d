"""``inplace_mutations`` and ``functionalize``: convert mutations between in-place writes and returned results.

They are inverses.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from attrs import evolve, frozen

from ..ir.arguments import Ref, map_refs
from ..ir.effects.declared import NodeEffects
from ..ir.effects.resolved import UnionFind, node_effects, slot_views, storages, views_of
from ..ir.graph import Graph, Node, Op, Stack, common_prefix
from ..ir.inference import clone_value, values_of
from ..ir.meta import EMPTY_META
from ..ir.operators import CLONE, COPY
from ..ir.origins import copied_meta
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from ..ir.signature import (
    InputMutation,
    OutputSpec,
    StateInput,
    StateMutation,
    Token,
    UserInput,
    UserOutput,
)
from .shared_bodies import alike
from .transformation import UNLIMITED, Fuel, transformation

SAVED = "saved_for_mutation"
"""The entry of meta that distinguishes a clone made here from one that the user wrote: ``functionalize`` removes it again."""


@frozen
class Mutation:
    """One new value of a root input: the input, and the value that is written or returned."""

    target: str
    value: str


@transformation(
    proven=True,
    requires={"flat", "state as inputs"},
    establishes={"mutations in place"},
    inverse="functionalize",
    laws=[
        "there is one copy_ for each mutation of the signature",
        "no read of old contents comes after the write",
    ],
)
def inplace_mutations(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn returned mutations into in-place writes.

    Before::

        add = aten.add.Tensor(b_count, 1)
        mul = aten.mul.Tensor(x, 2)
        return add, mul            # add is the new value of the buffer "count"

    After::

        add = aten.add.Tensor(b_count, 1)
        copy_ = aten.copy_.default(b_count, add)
        mul = aten.mul.Tensor(x, 2)
        return mul

    A value that shares memory with a written tensor is cloned first, so that swapped buffers swap.  If the caller gets the new
    value, too, it gets the written tensor, as from ``ep.module()``.

    Args:
        program: a flat program that takes its state as inputs.
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
    mutations, kept = _mutations(program, fuel)
    if len(kept) == len(specs):
        return program
    signature = evolve(program.signature, outputs=tuple([specs[number] for number in kept]))
    return program.with_main(_Writes(program, mutations, kept).graph(), signature=signature)


def _mutations(program: Program, fuel: Fuel) -> tuple[list[Mutation], list[int]]:
    # The mutations to write, and the numbers of the outputs that stay.
    graph = program.main
    owner = {slot: name for name, slot in program.state_inputs.items()}
    slots = frozenset(owner.values())
    found: list[Mutation] = []
    kept: list[int] = []
    for number, (arg, spec) in enumerate(program.outputs):
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
    # Independent writes are in the exporter's order, so that `functionalize` restores them.
    rank = {
        formal.name: (formal.name not in slots, number)
        for number, formal in enumerate(graph.inputs)
    }
    return sorted(found, key=lambda mutation: rank[mutation.target]), kept


class _Writes:
    """Computes the position of each write."""

    def __init__(self, program: Program, mutations: list[Mutation], kept: list[int]) -> None:
        self.source = program.main
        self.mutations = mutations
        self.output = [
            (self.source.output[number], type(program.signature.outputs[number]) is UserOutput)
            for number in kept
        ]
        """The other outputs, and whether the caller gets them."""
        self.effects: list[NodeEffects] = node_effects(program, self.source)
        self.memory: UnionFind = storages(program, self.source, self.effects)
        self.views = views_of(program, self.effects)
        self.edit = Rewriter(self.source)
        self.last_use, self.last_write = self._last_touches()

    def graph(self) -> Graph:
        written = {self.memory.find(mutation.target) for mutation in self.mutations}
        inputs = {self.memory.find(formal.name) for formal in self.source.inputs}
        overwritten = {view for mutation in self.mutations for view in self.views[mutation.target]}
        output = [
            map_refs(arg, lambda ref: self._old_output(ref, overwritten)) for arg, _ in self.output
        ]
        # Values that share memory with a written tensor are saved before the first write.
        saved = {
            m.value: self._clone(m.value)
            for m in self.mutations
            if self.memory.find(m.value) in written
        }
        for mutation in self.mutations:
            place, stack = self._place(mutation)
            args = (Ref(mutation.target), saved.get(mutation.value, Ref(mutation.value)))
            meta = copied_meta(self.source.metas.get(mutation.value, EMPTY_META))
            copy = Node(self.edit.names.fresh("copy_"), COPY, args, (), stack, meta)
            self.edit.after(place, copy)
            if (
                self.memory.find(mutation.value) not in inputs
            ):  # else the caller gets the other input
                same = Ref(mutation.value), True
                output = [
                    Ref(copy.name) if known == same else arg
                    for arg, known in zip(output, self.output, strict=True)
                ]
        return self.edit.graph(output=tuple(output))

    def _last_touches(self) -> tuple[dict[object, int], dict[object, int]]:
        uses: dict[object, int] = {}
        writes: dict[object, int] = {}
        find = self.memory.find
        for number, (node, node_effect) in enumerate(
            zip(self.source.nodes, self.effects, strict=True)
        ):
            for name in node.refs():
                uses[find(name)] = number
            uses[find(node.name)] = number
            for name in (*node_effect.writes, *node_effect.completes):
                writes[find(name)] = number
        return uses, writes

    def _final(self, value: str) -> int:
        return max(
            self.edit.position.get(value, -1), self.last_write.get(self.memory.find(value), -1)
        )

    def _place(self, mutation: Mutation) -> tuple[int, Stack]:
        place = max(
            self._final(mutation.value), self.last_use.get(self.memory.find(mutation.target), -1)
        )
        if place < 0:
            return -1, ()
        nodes = self.source.nodes
        value = self.edit.position.get(mutation.value, -1)
        mine = nodes[value].stack if value >= 0 else nodes[place].stack
        return place, mine if place == value else common_prefix([mine, nodes[place].stack])

    def _old_output(self, ref: object, overwritten: set[object]) -> object:
        # The caller gets the old contents of overwritten memory: return a copy made before the write.
        if type(ref) is not Ref or not self.views[ref.name] & overwritten:
            return ref
        return self._clone(ref.name)

    def _clone(self, value: str) -> Ref:
        place = self._final(value)
        stack = self.source.nodes[place].stack if place >= 0 else ()
        meta = copied_meta(self.source.metas.get(value, EMPTY_META))
        marked = MappingProxyType({**meta, **clone_value(meta), SAVED: True})
        node = Node(self.edit.names.fresh("clone"), CLONE, (Ref(value),), (), stack, marked)
        self.edit.after(place, node, first=True)
        return Ref(node.name)


@transformation(
    proven=True,
    requires={"flat", "state as inputs"},
    forgets={"mutations in place"},
    inverse="inplace_mutations",
    laws=["only copy_ and the clones of inplace_mutations are removed", "no operator moves"],
)
def functionalize(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn final writes to inputs into returned mutations.

    Before::

        add = aten.add.Tensor(b_count, 1)
        copy_ = aten.copy_.default(b_count, add)
        mul = aten.mul.Tensor(x, 2)
        return mul

    After::

        add = aten.add.Tensor(b_count, 1)
        mul = aten.mul.Tensor(x, 2)
        return add, mul            # add is the new value of the buffer "count"

    A final write is a ``copy_`` into a whole input of the same shape and dtype, after which nothing reads or writes that memory.
    Other writes (``add_``, ``batch_norm`` in training, a ``copy_`` whose result is read) stay.  Mutations are in the exporter's
    order: before the user outputs, state first, each in the order of the inputs.

    Where the caller gets the copied value itself, it is one value with the mutation afterwards, and the lowered program returns
    the written tensor for it, as ``ep.module()`` does.

    Args:
        program: a flat program that takes its state as inputs.
        fuel: a rewrite is one write that becomes a returned value, the last one first.

    Returns:
        The program with those writes in its signature, without the clones that ``inplace_mutations`` made for them.

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
    """One walk from the last node to the first, which records the nodes that stay."""

    def __init__(self, program: Program, fuel: Fuel) -> None:
        self.source = program
        self.fuel = fuel
        self.graph = program.main
        self.effects: list[NodeEffects] = node_effects(program, self.graph)
        self.views = views_of(program, self.effects)
        self.index = {formal.name: number for number, formal in enumerate(self.graph.inputs)}
        self.values = values_of(self.graph)
        self.returned: list[Mutation] = []
        self.edit = Rewriter(self.graph)
        self.used: set[str] = set()
        """Values used by nodes that stay."""
        self.written: set[object] = set()
        """Memory written by nodes that stay, after the current node of the walk."""
        returned = self.graph.output_refs()
        copies = [node for node in self.graph.nodes if node.do == COPY and node.name in returned]
        self.final = [node.name for node in copies if node.refs()[-1] not in returned]
        """The writes whose result the caller gets, but not the value that they write."""
        self.touched: set[object] = self._memory(
            [name for name in returned if name not in self.final]
        )
        """Memory read or written after the current node of the walk."""
        for spec in program.signature.outputs:
            if type(spec) is StateMutation:
                self.touched |= slot_views(program, spec.slot)
            elif type(spec) is InputMutation:
                self.touched |= self.views[self.graph.inputs[spec.index].name]

    def _memory(self, names: Iterable[str]) -> set[object]:
        return {view for name in names for view in self.views[name]}

    def _slots(self, slots: Iterable[str]) -> set[object]:
        return {view for slot in slots for view in slot_views(self.source, slot)}

    def walk(self) -> None:
        """Decide for every node whether it stays."""
        for node, node_effect in zip(
            reversed(self.graph.nodes), reversed(self.effects), strict=True
        ):
            if self._is_last_write(node) and self.fuel.burn(
                "return", node.args[1].name, "instead of", node.name
            ):
                target, value = node.args[0].name, node.args[1].name
                self.returned.append(Mutation(target, value))
                self.edit.erase(node.name)
                self.edit.replace(node.name, node.args[1])
                self.touched |= self._memory((target, value))
            elif self._only_saves(node):
                self.edit.erase(node.name)
                self.edit.replace(node.name, node.args[0])
                self.touched |= self.views[node.args[0].name]
            else:
                self._stays(node, node_effect)

    def _is_last_write(self, node: Node) -> bool:
        match node:
            case Node(do=Op() as do, args=(Ref(name=target), Ref(name=value)), kwargs=()) if (
                do == COPY and target in self.index
            ):
                mine, theirs = self.views[target], self.views[value]
                takes = type(self.source.signature.inputs[self.index[target]]) in (
                    StateInput,
                    UserInput,
                )
                is_given = any(mine & self.views[name] for name in self.final if name != node.name)
                free = (
                    not mine & self.touched
                    and not is_given
                    and not mine & theirs
                    and not theirs & self.written
                )
                was, now = self.values.get(target), self.values.get(value)
                # copy_ broadcasts and converts, a returned mutation does not.
                return takes and free and (was is None or now is None or alike(was, now))
            case _:
                return False

    def _only_saves(self, node: Node) -> bool:
        # A clone that saved contents from a write that is now removed; clones of the user are not marked.
        match node:
            case Node(do=Op() as do, args=(Ref(name=value),)) if (
                do == CLONE and node.meta.get(SAVED) is True
            ):
                saved = self._memory(write.target for write in self.returned) & self.views[value]
                returned = bool(saved) or node.name in [write.value for write in self.returned]
                return (
                    returned and node.name not in self.used and not self.views[value] & self.written
                )
            case _:
                return False

    def _stays(self, node: Node, node_effect: NodeEffects) -> None:
        refs = node.refs()
        self.used.update(refs)
        written = self._memory((*node_effect.writes, *node_effect.completes))
        written |= self._slots(node_effect.writes_slots)
        self.written |= written
        self.touched |= written | self._memory(refs)
        self.touched |= self._slots((*node_effect.reads_slots, *node_effect.aliases_slots))

    def program(self) -> Program:
        """Return the program with the writes in its signature."""
        signature = self.source.signature
        outputs = self.source.outputs
        for write in self.returned:
            index = self.index[write.target]
            spec = signature.inputs[index]
            outputs.append(
                (
                    Ref(write.value),
                    StateMutation(spec.slot) if type(spec) is StateInput else InputMutation(index),
                )
            )
        position = {
            spec.slot: number
            for number, spec in enumerate(signature.inputs)
            if type(spec) is StateInput
        }
        outputs.sort(key=lambda entry: _rank(entry[1], position))
        graph = self.edit.graph(output=tuple([value for value, _ in outputs]))
        return self.source.with_main(
            graph, signature=evolve(signature, outputs=tuple([spec for _, spec in outputs]))
        )


def _rank(spec: OutputSpec, position: dict[str, int]) -> tuple[int, int]:
    # Tokens, state, inputs, user outputs: sorting is stable, so user outputs keep their order.
    match spec:
        case Token():
            return 0, 0
        case StateMutation(slot=slot):
            return 1, position.get(slot, -1)
        case InputMutation(index=index):
            return 2, index
        case _:
            return 3, 0
