"""Versions: which values of a functional program are the contents of state between its old and its final ones.

One idea: start at the ``copy_`` that stores the final contents and walk back, one version at a time, to a read of the old
ones.  The step from a version to the one before it is told by the operator that the exporter decomposed, where the
program still knows it (its schema says which argument it wrote), else it is the one operand of the same type.  Where
that is not certain there is no version.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from ...ir.arguments import Arg, Ref
from ...ir.effects.declared import Effects
from ...ir.effects.registered import effects_of
from ...ir.graph import Graph
from ...ir.node import Get, Node, Op
from ...ir.program import Program
from ...ir.torch_private import resolve_operator
from ..metas import alike

__all__ = ["Chain", "chains"]

COPY = "aten.copy_.default"
GETITEM = "operator.getitem"


@frozen
class Chain:
    """The versions of one piece of state in one run: the last one is stored by a ``copy_`` that is there."""

    target: str
    """A read of the state, or the user input that is written."""
    slot: str | None
    """The state; None for a user input."""
    versions: tuple[str, ...]
    """The values, earliest first."""
    stored: int
    """The number of the ``copy_`` that stores the last one."""


def chains(program: Program) -> list[Chain]:
    """Return the versions of everything that is written once, by a ``copy_`` of a new value."""
    graph = program.main
    writes = [(number, node) for number, node in enumerate(graph.nodes) if _is_copy(node)]
    found: list[Chain] = []
    walk = _Walk(program, graph)
    for number, node in writes:
        target, final = node.args[0], node.args[1]
        assert type(target) is Ref and type(final) is Ref
        versions = walk.back(target.name, final.name)
        if versions:
            found.append(Chain(target.name, walk.slots.get(target.name), tuple(reversed(versions)), number))
    return found


def _is_copy(node: Node) -> bool:
    return type(node.do) is Op and node.do.name == COPY and len(node.args) == 2 and all(type(arg) is Ref for arg in node.args)


class _Walk:
    def __init__(self, program: Program, graph: Graph) -> None:
        self.by_name = graph.by_name
        self.inputs = {formal.name: formal.meta.get("val") for formal in graph.inputs}
        self.slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
        self.cells = {name: program.state[slot].cell for name, slot in self.slots.items()}
        self.written: dict[str, Effects | None] = {}
        """What operators were before they were made functional, as far as it was asked."""

    def back(self, target: str, final: str) -> list[str]:
        """Return the versions from the final one back; none where the way to the old contents is not certain."""
        found: list[str] = []
        value: str | None = final
        while value is not None and value in self.by_name and value not in self.slots:
            if self._is_version(value):
                found.append(value)
            value = self._before(value, target)
        return found if value is not None and self._is_old(value, target) else []

    def _is_old(self, value: str, target: str) -> bool:
        return value == target or (value in self.cells and self.cells[value] == self.cells.get(target))

    def _is_version(self, value: str) -> bool:
        # Where the program tells what an operator was before it was made functional, it must have written something.
        written = self._written_by(self.by_name[value])
        return written is None or bool(written.writes)

    def _before(self, value: str, target: str) -> str | None:
        node = self.by_name[value]
        operator = self._operator(node)
        if operator is None:
            return None
        told = self._told(operator)
        if told is not None and (self._is_old(told, target) or self._alike(told, value)):
            return told
        candidates = [name for name in dict.fromkeys(operator.refs()) if self._alike(name, value)]
        old = [name for name in candidates if self._is_old(name, target)]
        if old:
            return old[0]
        candidates = [name for name in candidates if name in self.by_name and name not in self.slots]
        if len(candidates) > 1:
            candidates = [name for name in candidates if self._shape_of(name) == self._shape_of(value)]
        return candidates[0] if len(candidates) == 1 else None

    def _operator(self, node: Node) -> Node | None:
        # The part of a tuple is made by the operator that made the tuple.
        if type(node.do) is Op and node.do.name == GETITEM:
            whole = node.args[0]
            return self.by_name.get(whole.name) if type(whole) is Ref else None
        return node if type(node.do) is Op else None

    def _told(self, node: Node) -> str | None:
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
        index = node.args[1] if type(node.do) is Op and node.do.name == GETITEM else None
        return (operator.do.name if operator is not None and type(operator.do) is Op else "", index)

    def _value(self, name: str) -> Any:
        return self.by_name[name].meta.get("val") if name in self.by_name else self.inputs.get(name)

    def _alike(self, left: str, right: str) -> bool:
        first, second = self._value(left), self._value(right)
        return (first is None and second is None) or alike(first, second)


def _written_by(node: Node) -> Effects | None:
    # ``from_node`` is what torch keeps of a node's history: what it was made from, and what that was made from.
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
