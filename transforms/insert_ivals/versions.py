"""Boundary values, and the names that both sides have for them.

A boundary value is used outside of the call that computes it; it may be the contents of state between two writes, or an argument
that a call returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from ...ir.arguments import Arg, Ref
from ...ir.effects.declared import Effects
from ...ir.effects.registered import effects_of
from ...ir.forks import cached_property
from ...ir.graph import Frame, Get, Graph, Node, Op, Stack, common_prefix
from ...ir.inference import returned_operand, values_of
from ...ir.own_operators import GIVES, TAKES, user_stack
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.state import reading_place
from ...ir.torch_private import resolve_operator
from ..shared_bodies import alike
from ..transformation import Fuel


@frozen
class BoundaryValue:
    """One use of a value beyond the boundary of a preserved call that does not name it."""

    value: str
    used: int
    """The number of the node that uses it; the number of nodes for the output of the root."""


class Leaves:
    """The argument and result leaves of the preserved calls of a flat program."""

    def __init__(self, program: Program) -> None:
        self.takes: dict[Frame, tuple[str, ...]] = {}
        self.gives: dict[Frame, frozenset[str]] = {}
        for node in program.main.nodes:
            if node.stack and node.stack[-1] in program.call_signatures:
                names = [leaf.name for leaf in node.args if type(leaf) is Ref]
                if node.op_name == TAKES.name:
                    self.takes[node.stack[-1]] = tuple(names)
                elif node.op_name == GIVES.name:
                    self.gives[node.stack[-1]] = frozenset(names)

    def hides(self, name: str, made: Stack, user: Stack) -> bool:
        """Return whether a value reaches a use across a signature that does not name it."""
        return _passes(name, made, user, self.gives)

    def crosses(self, name: str, made: Stack, user: Stack) -> bool:
        """Return whether a value crosses a signature that does not name it, in either direction."""
        return made is not user and (
            self.hides(name, made, user) or _passes(name, user, made, self.takes)
        )


def _passes(name: str, inner: Stack, outer: Stack, named: Mapping[Frame, Collection[str]]) -> bool:
    # Whether a value is on both sides of the boundary of a call that does not name it.
    unnamed = [
        depth for depth, frame in enumerate(inner) if frame in named and name not in named[frame]
    ]
    return bool(unnamed) and unnamed[-1] >= len(common_prefix([inner, outer]))


def boundary_values(program: Program, leaves: Leaves) -> Iterator[BoundaryValue]:
    """Yield every use of a value that a preserved signature hides, in order."""
    nodes = program.main.nodes
    made = {node.name: node.stack for node in nodes}
    for number, node in enumerate(nodes):
        stack = user_stack(node)
        for name in dict.fromkeys(node.refs()):
            if name in made and leaves.crosses(name, made[name], stack):
                yield BoundaryValue(name, number)
    for name in dict.fromkeys(program.main.output_refs()):
        if name in made and leaves.hides(name, made[name], ()):
            yield BoundaryValue(name, len(nodes))


COPY = "aten.copy_.default"


@frozen
class Chain:
    """The versions of one piece of state in one run; a ``copy_`` stores the last one."""

    target: str
    """A read of the state, or the user input that is written."""
    slot: str | None
    """The state; None for a user input."""
    versions: tuple[str, ...]
    """The values, earliest first."""
    stored: int
    """The number of the ``copy_`` that stores the last one."""


def chains(program: Program) -> list[Chain]:
    """Return the versions of all memory that is written once, by a ``copy_`` of a new value."""
    graph = program.main
    writes = [(number, node) for number, node in enumerate(graph.nodes) if _is_copy(node)]
    found: list[Chain] = []
    walk = _Walk(program, graph)
    for number, node in writes:
        target, final = node.args[0], node.args[1]
        assert type(target) is Ref and type(final) is Ref
        versions = walk.back(target.name, final.name)
        if versions:
            found.append(
                Chain(target.name, walk.slots.get(target.name), tuple(reversed(versions)), number)
            )
    return found


def _is_copy(node: Node) -> bool:
    return (
        node.op_name == COPY and len(node.args) == 2 and all(type(arg) is Ref for arg in node.args)
    )


class _Walk:
    def __init__(self, program: Program, graph: Graph) -> None:
        self.by_name = graph.by_name
        self.values = values_of(graph)
        self.slots = graph.reads
        self.cells = {name: program.state[slot].cell for name, slot in self.slots.items()}
        self.written: dict[str, Effects | None] = {}
        """The operators before functionalization, as far as requested."""

    def back(self, target: str, final: str) -> list[str]:
        """Return the versions from the final one back; none if the path to the old contents is uncertain."""
        found: list[str] = []
        value: str | None = final
        while value is not None and value in self.by_name and value not in self.slots:
            # If the program records the operator before functionalization, that operator must have written something.
            written = self._written_by(self.by_name[value])
            if written is None or written.writes:
                found.append(value)
            value = self._before(value, target)
        return found if value is not None and self._is_old(value, target) else []

    def _is_old(self, value: str, target: str) -> bool:
        return value == target or (
            value in self.cells and self.cells[value] == self.cells.get(target)
        )

    def _before(self, value: str, target: str) -> str | None:
        operator = self._operator(self.by_name[value])
        if operator is None:
            return None
        operand = self._written_operand(operator)
        result, values = self.values.get(value), self.values
        if operand is not None and (
            self._is_old(operand, target) or alike(values.get(operand), result)
        ):
            return operand
        candidates = [
            name for name in dict.fromkeys(operator.refs()) if alike(values.get(name), result)
        ]
        old = [name for name in candidates if self._is_old(name, target)]
        if old:
            return old[0]
        candidates = [
            name for name in candidates if name in self.by_name and name not in self.slots
        ]
        if len(candidates) > 1:
            candidates = [
                name for name in candidates if self._shape_of(name) == self._shape_of(value)
            ]
        return candidates[0] if len(candidates) == 1 else None

    def _operator(self, node: Node) -> Node | None:
        # The element of a tuple is computed by the operator that returns the tuple.
        if node.projection is not None:
            return self.by_name.get(node.projection[0])
        return node if type(node.do) is Op and node.do.name != "operator.getitem" else None

    def _written_operand(self, node: Node) -> str | None:
        written = self._written_by(node)
        if written is None or len(written.writes) != 1:
            return None
        found = written.writes[0].find(node.args, node.kwargs)
        return found.name if type(found) is Ref else None

    def _written_by(self, node: Node) -> Effects | None:
        if node.name not in self.written:
            self.written[node.name] = _written_by(node)
        return self.written[node.name]

    def _shape_of(self, name: str) -> tuple[str, Arg]:
        node = self.by_name[name]
        operator = self._operator(node)
        index = node.projection[1] if node.projection is not None else None
        return (operator.op_name if operator is not None else "", index)


def _written_by(node: Node) -> Effects | None:
    # ``from_node`` is torch's record of the history of a node: its source, and the source of that.
    history: Any = node.meta.get("from_node")
    found: Effects | None = None
    while history:
        source = history[-1]
        parts = str(getattr(source, "target", "")).split(".")
        target = resolve_operator(parts[0], parts[1], parts[2]) if len(parts) == 3 else None
        if target is not None:
            found = effects_of(target)
            if found.writes:
                break
        history = getattr(source, "from_node", None)
    return found


def with_passed_arguments(
    program: Program, leaves: Leaves, crossed: Sequence[BoundaryValue], fuel: Fuel
) -> Program:
    """Return a program in which boundary values that are arguments of a preserved call are replaced by these arguments.

    Args:
        program: a program whose state is sunk.
        leaves: the arguments and results of its preserved calls.
        crossed: the uses that these calls hide.
        fuel: a rewrite is one use.
    """
    work = _Objects(program, leaves)
    count = len(program.main.nodes)
    for crossing in crossed:
        user = program.main.nodes[crossing.used] if crossing.used < count else None
        work.use(crossing.value, crossing.used, () if user is None else user_stack(user), fuel)
    return work.program()


class StateReads:
    """Reads of state that are added to a graph, at most one for each slot and module call."""

    def __init__(self, program: Program, edit: Rewriter) -> None:
        self.state = program.state
        self.edit = edit
        reads = [
            (node, node.do.slot, number)
            for number, node in enumerate(program.main.nodes)
            if type(node.do) is Get
        ]
        self.there = {
            (slot, node.stack): (node.name, number) for node, slot, number in reversed(reads)
        }
        """The first read of each slot in each call: the value, and the number of the node."""
        self.added: dict[tuple[str, Stack], tuple[Node, int]] = {}
        """The added reads, each with the number of its first user."""

    def read(self, like: Node, slot: str, number: int, stack: Stack) -> str:
        """Return a read of a slot for a node, in the call of a stack; it has the name and metadata of another read."""
        depth, name = reading_place(self.state, slot, stack)
        place = (name, stack[:depth])
        there = self.there.get(place)
        if there is not None and there[1] < number:
            return there[0]
        if place not in self.added:
            fresh = self.edit.names.fresh(like.name)
            self.added[place] = Node(fresh, Get(name), (), (), stack[:depth], like.meta), number
        node, first = self.added[place]
        self.added[place] = node, min(first, number)
        return node.name

    def insert(self) -> None:
        """Insert the added reads before their first users."""
        for node, number in self.added.values():
            self.edit.before(number, node, first=True)


class _Objects:
    def __init__(self, program: Program, leaves: Leaves) -> None:
        self.source = program
        self.graph = program.main
        self.leaves = leaves
        self.edit = Rewriter(program.main)
        self.reads = StateReads(program, self.edit)

    @cached_property
    def values(self) -> dict[str, Any]:
        return values_of(self.graph)

    def use(self, name: str, number: int, stack: Stack, fuel: Fuel) -> None:
        """Replace a use of a value by an argument that is the same object, if the calls that hide the value take it."""
        made = self.graph.by_name[name].stack
        giving = self._giving(name, made, stack)
        user = self.graph.nodes[number] if number < len(self.graph.nodes) else None
        if user is not None and user.op_name == GIVES.name:
            giving = giving or stack
        found = self._object(name, giving or stack)
        if giving and not self._is_inside(found, giving):
            return
        if found is None or not fuel.burn("use", found, "for", name):
            return
        node = self.graph.by_name.get(found)
        if (
            node is not None
            and type(node.do) is Get
            and self.leaves.hides(found, node.stack, stack)
        ):
            found = self.reads.read(node, node.do.slot, number, stack)
        self.edit.use(number, name, Ref(found))

    def _object(self, name: str, stack: Stack) -> str | None:
        # A value that is the same object, and is accessible to the user; state can be read anywhere.
        begin = name
        while (node := self.graph.by_name.get(name)) is not None and self.leaves.hides(
            name, node.stack, stack
        ):
            if type(node.do) is Get:
                break
            if self._giving(name, node.stack, stack):
                return None
            step = returned_operand(self.graph, name, self.values)
            if step is None or not self._fits(step, name):
                return None
            name = step
        return name if name != begin else None

    def _giving(self, name: str, made: Stack, stack: Stack) -> Stack:
        # The innermost call that returns a value: outside, the value has the name of that result.
        for depth in range(len(made), len(common_prefix([made, stack])), -1):
            if name in self.leaves.gives.get(made[depth - 1], ()):
                return made[:depth]
        return ()

    def _is_inside(self, name: str | None, giving: Stack) -> bool:
        # A value made in the call that returns it is the result; an argument that it returns may be meant as the argument.
        node = self.graph.by_name.get(name) if name is not None else None
        return node is not None and type(node.do) is not Get and node.stack[: len(giving)] == giving

    def _fits(self, operand: str, name: str) -> bool:
        # An in-place operator may change the shape, so the fake value of its operand is not that of the result.
        mine, theirs = self.values.get(operand), self.values.get(name)
        return mine is None or theirs is None or alike(mine, theirs)

    def program(self) -> Program:
        """Return the program with the replaced uses; the same object if no use is replaced."""
        self.reads.insert()
        return self.source if self.edit.idle else self.source.with_main(self.edit.graph())
