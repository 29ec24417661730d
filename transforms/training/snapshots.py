"""``with_snapshots``: what the backward reads of memory that the forward writes later is copied before that.

In a joint program with writes, a reader of the old contents has to come before the write.  Where the reader depends on gradients
and the write does not, it reads a copy instead, so that the forward can do the write.  Which half a node is of is asked in
``phases``, of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from ...ir.arguments import Ref
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import node_effects
from ...ir.graph import Get, Node
from ...ir.inference import clone_value
from ...ir.operators import op_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import LossOutput
from ..memory import Memory, is_view
from .phases import GRADIENTS, outputs_of, tangents

__all__ = ["of_gradients", "with_snapshots"]

CLONE = op_of(torch.ops.aten.clone.default)


def with_snapshots(program: Program) -> Program:
    """Return a joint program in which no write of the forward has to wait for the backward; the same object where none does.

    Args:
        program: a flat one.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_snapshots(program) is program
    True
    """
    effects = node_effects(program, program.main)
    if not any(does.writes or does.writes_slots for does in effects):
        return program
    found = _Readers(program, effects).found()
    if not found:
        return program
    edit = Rewriter(program.main)
    copies: dict[tuple[str, int], Ref] = {}
    for number, name, version in found:
        if (name, version) not in copies:
            meta = program.main.metas[name]
            known = {"val": clone_value(meta["val"])} if "val" in meta else {}
            copy = Node(edit.names.fresh(f"{name}_before"), CLONE, (Ref(name),), meta=known)
            copies[name, version] = Ref(copy.name)
            edit.before(number, copy)
        edit.use(number, name, copies[name, version])
    return program.with_main(edit.graph())


def of_gradients(program: Program) -> frozenset[str]:
    """Return the values that depend on a tangent or on a gradient of the loss, by their operands or by what their memory holds.

    Args:
        program: a flat one.

    >>> from purefx.ir import Graph
    >>> of_gradients(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    effects = node_effects(program, program.main)
    return frozenset([program.main.nodes[number].name for number in _Readers(program, effects).late()])


class _Readers:
    """Follows the contents of memory through a graph: who writes them, who reads them, and what depends on gradients."""

    def __init__(self, program: Program, effects: list[NodeEffects]) -> None:
        self.program = program
        self.graph = program.main
        self.effects = effects
        self.memory = Memory(program, program.root, effects)
        self.position = {node.name: number for number, node in enumerate(self.graph.nodes)}
        self.writes: list[set[object]] = [self.memory.touched(does) for does in effects]
        """The memory that each node writes."""
        self.sources: list[list[int]] = []
        """The nodes that each node has its operands and their contents from."""
        self._follow()

    def _follow(self) -> None:
        writer: dict[object, int] = {}
        for number, node in enumerate(self.graph.nodes):
            mine = [self.position[name] for name in node.refs() if name in self.position]
            mine += [writer[memory] for memory in (*self.touched(number), *self.writes[number]) if memory in writer]
            self.sources.append(mine)
            writer.update(dict.fromkeys(self.writes[number], number))

    def touched(self, number: int) -> set[object]:
        """Return the memory whose contents a node reads."""
        node, does = self.graph.nodes[number], self.effects[number]
        if type(node.do) is Get or is_boundary(node) or is_view(node):
            return set()
        return {self.memory.find(name) for name in node.refs()} | self.memory.of_slots(does.reads_slots)

    def found(self) -> list[tuple[int, str, int]]:
        """Return who reads what of contents that are written later: the node, the value, and the version of its memory."""
        late = self.late()
        written = {memory: number for number, memories in enumerate(self.writes) if number not in late for memory in memories}
        version: dict[object, int] = {}
        found: list[tuple[int, str, int]] = []
        for number, node in enumerate(self.graph.nodes):
            if number in late and not self.writes[number]:
                reads = self.touched(number)
                for name in dict.fromkeys(node.refs()) if not self.effects[number].aliases else ():
                    memory = self.memory.find(name)
                    if memory in reads and written.get(memory, -1) > number and self._is_early(name, late):
                        found.append((number, name, version.get(memory, -1)))
            version.update(dict.fromkeys(self.writes[number], number))
        return found

    def _is_early(self, name: str, late: Collection[int]) -> bool:
        return self.position.get(name, -1) not in late

    def late(self) -> set[int]:
        """Return the nodes that depend on gradients."""
        given, begin = set(tangents(self.program)), self._gradients_of_loss()
        late = set[int]()
        for number, node in enumerate(self.graph.nodes):
            if number in begin or not given.isdisjoint(node.refs()) or any(source in late for source in self.sources[number]):
                late.add(number)
        return late

    def _gradients_of_loss(self) -> set[int]:
        # What lies between the loss and the gradients.
        loss = [self.position[name] for name in outputs_of(self.program, LossOutput) if name in self.position]
        if not loss:
            return set()
        gradients = [self.position[name] for name in outputs_of(self.program, *GRADIENTS) if name in self.position]
        behind: set[int] = set()
        for number, node in enumerate(self.graph.nodes):
            operands = [self.position[name] for name in node.refs() if name in self.position]
            if any(one in behind or one in loss for one in operands):
                behind.add(number)
        return (behind & _before(self.sources, gradients)) - _before(self.sources, loss)


def _before(sources: list[list[int]], numbers: Iterable[int]) -> set[int]:
    found, todo = set[int](), list(numbers)
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += sources[number]
    return found
