"""``Renumbering``: the calls that nodes are in, found anew and numbered in the order of the nodes.

One idea: one walk, which knows for each call (by the calls around it, as they are now) what it is called from now on.  The bodies
of operators are walked where the operator stands, because calls inside them count among the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve

from ...ir.arguments import bodies_in
from ...ir.graph import Graph
from ...ir.importing.spellings import read_place
from ...ir.importing.tracers import TracedStacks
from ...ir.node import Frame, Get, Node, Op, Stack
from ...ir.paths import is_below, join, relative
from ...ir.persistent import pmap
from ...ir.program import Module, Program
from ..reading import reading_place

__all__ = ["Renumbering"]

KEY = "nn_module_stack"


class Renumbering:
    """Works out the stacks of one program.

    Args:
        program: a flat program.
        aliases: the path to keep, for each path that is another one of a module.
    """

    def __init__(self, program: Program, aliases: Mapping[str, str]) -> None:
        self.source = program
        self.aliases = aliases
        self.traced = TracedStacks()
        self.graphs: dict[str, Graph] = {}
        self.calls: dict[tuple[Stack, str, int], Frame] = {}
        """What a call is called from now on: by the calls around it, its module as it was, its number as it was."""
        self.next: dict[str, int] = {}
        self.became: dict[Frame, dict[Frame, None]] = {}
        self._places: dict[str, str] = {}
        self._known: dict[tuple[Stack, Stack, bool], Stack] = {}

    def program(self) -> Program:
        """Return the program; the same object where nothing is to do."""
        source = self.source
        self._graph(source.root, (), ())
        graphs = {name: graph for name, graph in self.graphs.items() if graph is not source.graphs[name]}
        signatures = self._signatures()
        modules = self._modules()
        if not graphs and signatures is source.call_signatures and modules is source.modules:
            return source
        return source.evolve(graphs=source.graphs.update(graphs), call_signatures=signatures, modules=modules)

    def _graph(self, name: str, outer: Stack, made: Stack) -> None:
        # A body stands in the calls around its operator: as they were, and as they are now.
        graph = self.graphs[name] = self.source.graphs[name]
        nodes: list[Node] = []
        for node in graph.nodes:
            stack = self._stack(node, outer, made, is_root=name == self.source.root)
            nodes.append(self._node(node, stack, made))
            if type(node.do) is Op and node.do.effects.through_bodies:
                for body in bodies_in(node.args, node.kwargs):
                    if body not in self.graphs:
                        self._graph(body, (*outer, *self._absolute(node.stack, outer)), stack)
        if any(new is not old for new, old in zip(nodes, graph.nodes, strict=True)):
            self.graphs[name] = evolve(graph, nodes=tuple(nodes))

    def _stack(self, node: Node, outer: Stack, made: Stack, *, is_root: bool) -> Stack:
        """Return the calls around a node from the root on, as they are now."""
        raw = node.meta.get(KEY) if is_root else None
        stack = self.traced.read(raw) if isinstance(raw, Mapping) and raw else self._absolute(node.stack, outer)
        key = (made, stack, is_root)
        found = self._known.get(key)
        if found is None:
            found = made
            for depth, frame in enumerate(stack):
                if frame not in stack[:depth]:  # a call is not made inside itself
                    found = self._entered(found, frame)
            self._known[key] = found
        return found

    def _absolute(self, stack: Stack, outer: Stack) -> Stack:
        if not outer:
            return stack
        return tuple([evolve(frame, path=join(outer[-1].path, frame.path)) for frame in stack])

    def _entered(self, around: Stack, frame: Frame) -> Stack:
        key = (tuple([_whole(one) for one in around]), frame.path, frame.call)
        whole = self.calls.get(key)
        if whole is None:
            path = self._place(frame.path)
            number = self.next.get(path, 0)
            self.next[path] = number + 1
            whole = self.calls[key] = Frame(path, number)
        self.became.setdefault(_whole(frame), {})[whole] = None
        return (*around, whole if not frame.part else evolve(whole, part=frame.part))

    def _place(self, path: str) -> str:
        place = self._places.get(path)
        if place is None:
            place = read_place(path) or path
            above = place
            while above and above not in self.aliases:
                above = above.rpartition(".")[0]
            if above:
                place = self.aliases[above] + place[len(above) :]
            self._places[path] = place
        return place

    def _node(self, node: Node, stack: Stack, made: Stack) -> Node:
        own = stack[len(made) :]
        if made:
            own = tuple([evolve(frame, path=relative(frame.path, made[-1].path)) for frame in own])
        do = node.do
        if type(do) is Get and own != node.stack and own and not made:
            do = self._read(do, own)
        meta: Any = node.meta
        if KEY in meta:
            meta = MappingProxyType({key: value for key, value in meta.items() if key != KEY})
        if own == node.stack and do is node.do and meta is node.meta:
            return node
        return Node(node.name, do, node.args, node.kwargs, own, meta)

    def _read(self, do: Get, stack: Stack) -> Get:
        if is_below(do.slot, stack[-1].path) or do.slot not in self.source.state:
            return do
        depth, slot = reading_place(self.source.state, do.slot, stack)
        return Get(slot) if depth == len(stack) else do

    def _signatures(self) -> Any:
        signatures = self.source.call_signatures
        moved = {frame: list(self.became.get(frame, ())) or [self._unmade(frame)] for frame in signatures}
        if all(found == [frame] for frame, found in moved.items()):
            return signatures
        return pmap({new: signatures[frame] for frame, found in moved.items() for new in found})

    def _unmade(self, frame: Frame) -> Frame:
        # The signature of a call that no node is in.
        path = self._place(frame.path)
        number = self.next.get(path, 0)
        self.next[path] = number + 1
        return Frame(path, number)

    def _modules(self) -> tuple[Module, ...]:
        modules = self.source.modules
        listed = {module.path for module in modules}
        if not listed:
            return modules
        added: dict[str, None] = {}
        for path in self.next:
            parts = path.split(".")
            added.update(dict.fromkeys([".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]))
        new = [Module(path, self.traced.types.get(path) or None) for path in added if path not in listed]
        return (*modules, *new) if new else modules


def _whole(frame: Frame) -> Frame:
    return evolve(frame, part=0) if frame.part else frame
