"""What of a body its callers could compute: pure computations on its inputs and on state that all of its instances share.

Which bodies may get other inputs at all is told here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...ir.analysis.numbers import is_number
from ...ir.arguments import bodies_in
from ...ir.calls.call_graph import bodies_of_calls
from ...ir.calls.parts import part_names
from ...ir.effects.declared import NodeEffects
from ...ir.graph import Call, Frame, Get, Graph, Node, Op
from ...ir.names import FROM_ROOT, join, relative
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ..memory import Memory, computes

__all__ = ["Leaves", "Movable", "adjustable", "canonical_slot", "is_pure", "read_of", "shared_slots"]

Leaves = frozenset[str]
"""What a value of a body is computed from: inputs by name, and state as ``/`` and its slot."""


def adjustable(program: Program) -> frozenset[str]:
    """Return the bodies that may get other inputs: those that nothing but calls without a preserved signature runs.

    The root, bodies of operators, parts of a split program, and bodies with entry and exit markers are none of them.

    >>> adjustable(Program.of({"": Graph((), (Node("y", Call(Frame("m"), "m")),)), "m": Graph((), ())}))
    frozenset({'m'})
    """
    fixed, parts = {program.root}, frozenset(part_names(program))
    for name in program.order:
        graph = program.graphs[name]
        if any(map(is_boundary, graph.nodes)):
            fixed.add(name)
        for node in graph.callers:
            if type(node.do) is not Call:
                fixed.update(bodies_in(node.args, node.kwargs))
            elif node.do.instance.path in parts:
                fixed.add(node.do.graph)
    if len(program.call_signatures):
        preserved = {Frame(frame.path, frame.call) for frame in program.call_signatures}
        fixed.update([name for frame, name in bodies_of_calls(program) if Frame(frame.path, frame.call) in preserved])
    return frozenset(program.order) - fixed


def canonical_slot(program: Program, slot: str) -> str:
    """Return the first name of the tensor that a slot is; the slot itself if the program does not have it.

    >>> canonical_slot(Program.of({}), "w")
    'w'
    """
    found = program.state.slots.get(slot)
    return slot if found is None else program.state.by_cell[found.cell][0]


def shared_slots(program: Program, graph: Graph, paths: Sequence[str]) -> dict[str, str]:
    """Return the reads of a body that read one tensor in all of its instances, each with the first name of that.

    Args:
        program: whose state it is.
        graph: the body.
        paths: of the modules that it stands in.

    >>> shared_slots(Program.of({}), Graph((), (Node("w", Get("/w")), Node("b", Get("b")))), ["a", "c"])
    {'w': 'w'}
    """
    found: dict[str, str] = {}
    for node in graph.nodes:
        if type(node.do) is Get:
            read = {canonical_slot(program, join(path, node.do.slot)) for path in paths}
            if len(read) == 1:
                (found[node.name],) = read
    return found


def read_of(slot: str, paths: Sequence[str]) -> Get:
    """Return the read of a slot as a body writes it.

    Args:
        slot: from the root.
        paths: of the modules that the body stands in.

    >>> read_of("a.w", ["a"]), read_of("a.w", ["a", "b"]), read_of("a.w", [""])
    (Get(slot='w'), Get(slot='/a.w'), Get(slot='a.w'))
    """
    return Get(relative(slot, paths[0]) if len(paths) == 1 else FROM_ROOT + slot)


def is_pure(node: Node, does: NodeEffects) -> bool:
    """Return whether a node is an operator that does nothing but compute, wherever it stands.

    >>> is_pure(Node("y", Op("toy.neg")), NodeEffects()), is_pure(Node("y", Call(Frame("a"), "a")), NodeEffects())
    (True, False)
    """
    do = node.do
    if type(do) is not Op or do.effects.through_bodies or node.meta.get("unbacked_bindings"):
        return False
    return computes(does) and not is_boundary(node)


class Movable:
    """What of one body its callers could compute, in order.

    Args:
        program: the program.
        name: the id of the body.
        effects: of its nodes.
        reads: its reads of state that its callers could do, with the slots; see ``shared_slots``.

    >>> from purefx.ir import Input, Ref
    >>> nodes = (Node("m", Op("toy.exp"), (Ref("x"),)), Node("y", Op("toy.neg"), (Ref("m"),)))
    >>> program = Program.of({"": Graph((), ()), "f": Graph((Input("x"),), nodes, Ref("y"))})
    >>> found = Movable(program, "f", [NodeEffects(), NodeEffects()], {})
    >>> found.values, found.leaves["m"]
    (['m'], frozenset({'x'}))
    """

    def __init__(self, program: Program, name: str, effects: Sequence[NodeEffects], reads: Mapping[str, str]) -> None:
        self.graph: Graph = program.graphs[name]
        self.memory = Memory(program, name, effects)
        self.reads = reads
        """Its reads of state that its callers could do, each with the slot."""
        self.leaves: dict[str, Leaves] = {formal.name: frozenset([formal.name]) for formal in self.graph.inputs}
        """For each value that callers could compute, what it is computed from."""
        self.values: list[str] = []
        """Those that it could be given: the rest are inputs, reads, numbers, views, and what nothing uses."""
        self._written: set[object] = set()
        self._apart = {item[0] for node in self.graph.nodes if (item := node.projection) is not None}
        for node, does in zip(self.graph.nodes, effects, strict=True):
            if does.scope != (0, 0):
                break  # what lies in a region, or behind one, stays
            self._look_at(node, does)
            self._written |= self.memory.touched(does)
        used = self._used()
        self.values = [name for name in self.values if name in used]

    def shares(self, name: str) -> bool:
        """Return whether a value may share memory with an input or with state."""
        return self.memory.is_outside(name)

    def _used(self) -> set[str]:
        # What nodes that stay use, themselves or through others.
        used = set(self.graph.output_refs())
        for node in reversed(self.graph.nodes):
            if node.name in used or node.name not in self.leaves:
                used.update(node.refs())
        return used

    def _look_at(self, node: Node, does: NodeEffects) -> None:
        if type(node.do) is Get:
            if node.name in self.reads:
                self.leaves[node.name] = frozenset([FROM_ROOT + self.reads[node.name]])
        elif is_pure(node, does) and self._operands_last(node):
            if self._may_be_passed(node):
                self.values.append(node.name)
            elif not self.is_free(node):
                return
            self.leaves[node.name] = frozenset[str]().union(*[self.leaves[name] for name in node.refs()])

    def is_free(self, node: Node) -> bool:
        """Return whether a node costs little where it is computed a second time: a number, a read, or a view of what is there."""
        return type(node.do) is not Op or is_number(node.meta) is True or bool(node.do.effects.aliases)

    def _operands_last(self, node: Node) -> bool:
        # Whether all operands are at hand before the call, and nothing has written them by now.
        names = node.refs()
        return all(name in self.leaves and self.memory.find(name) not in self._written for name in names)

    def _may_be_passed(self, node: Node) -> bool:
        # Several calls are given one tensor: nobody writes it, and nobody can tell.
        memory, name = self.memory, node.name
        if is_number(node.meta):
            return False
        is_tensor = "val" not in node.meta or isinstance(node.meta["val"], torch.Tensor)
        if name in self._apart or node.projection is not None or not is_tensor:
            return False
        return not memory.is_written(name) and name not in memory.given
