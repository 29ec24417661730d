"""The tables of a split program: state, modules, call signatures and signature, with every name below its part, and back.

The tables keep their original order, so stripping the prefixes restores the original tables.  State that several parts read is
one tensor with a name in each; unused state goes with its module, and a module without nodes goes to the part of the one listed
before it.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.arguments import bodies_in
from ...ir.calls.parts import PART, is_part, original, part_names
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Frame, Get, Node, Op
from ...ir.names import is_below, join
from ...ir.persistent import pmap
from ...ir.program import Module, Program
from ...ir.state import Slot, State

__all__ = ["below_parts", "read_below", "without_parts"]

Where = dict[str, dict[int, None]]
"""For a module or a slot, the parts that have it."""


def below_parts(flat: Program, split: Program, names: tuple[str, ...], bodies: tuple[str, ...]) -> Program:
    """Return a split program with all names of its tables below the parts.

    Args:
        flat: the program before it was cut; its tables are those of the split one.
        split: the program with bodies for parts.
        names: of the parts.
        bodies: the graph of each part.
    """
    where = _Where(flat, [split.graphs[body].nodes for body in bodies])
    slots: dict[str, Slot] = {}
    for name in flat.state.order:
        for part in sorted(where.slots[name]):
            slots[f"{names[part]}.{name}"] = flat.state[name]
    modules = [Module(name, PART) for name in names]
    for module in flat.modules:
        if not module.path:
            modules.insert(0, module)
        modules += [evolve(module, path=f"{names[part]}.{module.path}") for part in sorted(where.modules.get(module.path, ()))]
    signatures = {
        evolve(frame, path=f"{names[part]}.{frame.path}"): flat.call_signatures[frame]
        for frame in flat.call_signatures
        for part in sorted(where.calls.get(frame, where.modules.get(frame.path, {0: None})))
    }
    return split.evolve(
        state=State(tuple(slots), pmap(slots)),
        modules=tuple(modules),
        call_signatures=pmap(signatures),
        signature=flat.signature.with_slots(lambda slot: f"{names[min(where.slots[slot])]}.{slot}"),
    )


class _Where:
    """Finds the parts of modules, module calls and slots; plain dicts inside."""

    def __init__(self, flat: Program, bodies: list[tuple[Node, ...]]) -> None:
        self.flat = flat
        self.modules: Where = {}
        self.calls: dict[Frame, dict[int, None]] = {}
        self.slots: Where = {name: {} for name in flat.state.order}
        for part, nodes in enumerate(bodies):
            self._look(part, nodes)
        self._tie_unread()
        self._place_idle()
        self._place_unread()

    def _look(self, part: int, nodes: tuple[Node, ...]) -> None:
        seen: set[int] = set()
        for node in nodes:
            do = node.do
            if id(node.stack) not in seen:
                seen.add(id(node.stack))
                for frame in node.stack:
                    if id(frame) not in seen:
                        seen.add(id(frame))
                        self.calls.setdefault(frame, {})[part] = None
                        self._reach(frame.path, part)
            if type(do) is Get:
                self.slots[do.slot][part] = None
                self._reach(do.slot.rpartition(".")[0], part)
            elif type(do) is Op and do.effects.through_bodies:
                for slot in sorted(read_below(self.flat, node)):
                    self.slots[slot][part] = None
                    self._reach(slot.rpartition(".")[0], part)

    def _reach(self, path: str, part: int) -> None:
        while path and part not in (known := self.modules.setdefault(path, {})):
            known[part] = None
            path = path.rpartition(".")[0]

    def _tie_unread(self) -> None:
        # Another name of a tensor that a part reads belongs to that part.
        if all(self.slots.values()):
            return
        readers: dict[int, int] = {}
        for name, slot in self.flat.state.pairs:
            if self.slots[name]:
                first = min(self.slots[name])
                readers[slot.cell] = min(first, readers.get(slot.cell, first))
        for name, slot in self.flat.state.pairs:
            if not self.slots[name] and slot.cell in readers:
                self.slots[name][readers[slot.cell]] = None
                self._reach(name.rpartition(".")[0], readers[slot.cell])

    def _place_idle(self) -> None:
        last, last_path = 0, ""
        for module in self.flat.modules:
            path = module.path
            if not path:
                continue
            if path not in self.modules:
                around = self.modules[last_path] if last_path and is_below(path, last_path) else None
                self._reach(path, last if around is None else min(around))
            last, last_path = max(self.modules[path]), path

    def _place_unread(self) -> None:
        for name, found in self.slots.items():
            if not found:
                path = name.rpartition(".")[0]
                part = min(self.modules.get(path, {0: None}))
                found[part] = None
                self._reach(path, part)


def read_below(flat: Program, node: Node) -> frozenset[str]:
    """Return the state that the bodies of an operator read, including bodies of operators in them.

    Args:
        flat: a flat program.
        node: of its root.

    >>> from purefx.ir import Graph
    >>> read_below(Program.of({"": Graph((), ())}), Node("y", Op("toy.rand")))
    frozenset()
    """
    found: set[str] = set()
    todo, seen = bodies_in(node.args, node.kwargs), set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            graph = flat.graphs[name]
            found.update(join("", inner.do.slot) for inner in graph.nodes if type(inner.do) is Get)
            todo.extend(graph.callees)
    return frozenset(found)


def without_parts(program: Program) -> Program:
    """Return a program with the names of its tables as they were before it was split.

    Args:
        program: a split program; its graphs stay.

    Raises:
        UnsupportedProgram: state that was one tensor is another one in some part now.
    """
    names = frozenset(part_names(program))
    slots: dict[str, Slot] = {}
    for name, slot in program.state.pairs:
        known = slots.setdefault(original(name, names), slot)
        if known != slot:
            raise UnsupportedProgram(
                f"{original(name, names)!r} was one tensor in several parts, and {name!r} is another one now, so the parts "
                "cannot be joined; replace it in all of them, or in none"
            )
    modules: dict[str, Module] = {}
    for module in program.modules:
        if not is_part(module):
            path = original(module.path, names) if module.path else ""
            modules.setdefault(path, evolve(module, path=path))
    signatures = {
        evolve(frame, path=original(frame.path, names)): program.call_signatures[frame] for frame in program.call_signatures
    }
    return program.evolve(
        state=State(tuple(slots), pmap(slots)),
        modules=tuple(modules.values()),
        call_signatures=pmap(signatures),
        signature=program.signature.with_slots(lambda slot: original(slot, names)),
    )
