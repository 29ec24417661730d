"""Normalize the module stacks of raw traces: one stack for each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from attrs import Factory, frozen

from ...ir.calls.parts import with_listed
from ...ir.graph import Frame, Get, Graph, Node, Stack
from ...ir.importing.stacks import TracedStacks, read_place
from ...ir.names import is_below, join, parent_of, relative
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.rewriter import Relocation
from ...ir.state import reading_place
from ..transformation import transformation

KEY = "nn_module_stack"


@frozen(eq=False)
class Place:
    """The module call of a node."""

    frame: Frame | None = None
    """The innermost normalized call; None in the root."""
    inner: dict[tuple[str, int], Place] = Factory(dict)
    """The calls inside it, by old module and number."""


class Renumbering:
    """Normalizes the stacks of one program.

    Args:
        program: a flat program.
        aliases: the path to keep, by other paths of the same module.
    """

    def __init__(self, program: Program, aliases: Mapping[str, str]) -> None:
        self.source = program
        self.aliases = aliases
        self.traced = TracedStacks()
        self.graphs: dict[str, Graph] = {}
        self.root = Place()
        self.next: dict[str, int] = {}
        """The next number of a call of each module."""
        self.became: dict[Frame, dict[Frame, None]] = {}
        self._paths: dict[str, str] = {}
        self._known: dict[tuple[Place, Stack], tuple[Place, Stack]] = {}

    def program(self) -> Program:
        """Return the program; the same object if its stacks are normal."""
        source = self.source
        todo = [self._graph(source.root, (), self.root)]
        while todo:
            inner = next(todo[-1], None)
            if inner is None:
                todo.pop()
            else:
                todo.append(self._graph(*inner))
        made, signatures = source.with_graphs(self.graphs), self._signatures()
        modules = with_listed(source.modules, self.next, self.traced.types)
        if made is source and signatures is source.call_signatures and modules is source.modules:
            return source
        return made.evolve(call_signatures=signatures, modules=modules)

    def _graph(self, name: str, outer: Stack, place: Place) -> Iterator[tuple[str, Stack, Place]]:
        # Yields the bodies to process before it continues, with the calls around them, old and normalized.
        graph = self.graphs[name] = self.source.graphs[name]
        nodes: list[Node] = []
        for node in graph.nodes:
            raw = node.meta.get(KEY) if place is self.root else None
            read = self.traced.read(raw) if isinstance(raw, Mapping) else ()
            inner, own = self._entered(place, read or self._absolute(node.stack, outer))
            nodes.append(self._node(node, own, place))
            for body in node.bodies:
                if body not in self.graphs:
                    yield body, (*outer, *self._absolute(node.stack, outer)), inner
        self.graphs[name] = graph.with_nodes(nodes)

    def _absolute(self, stack: Stack, outer: Stack) -> Stack:
        return Relocation(partial(join, outer[-1].path)).stack(stack) if outer else stack

    def _entered(self, start: Place, stack: Stack) -> tuple[Place, Stack]:
        """Return the place for a stack of calls, and its normalized calls."""
        found = self._known.get((start, stack))
        if found is None:
            place, own = start, list[Frame]()
            visited: set[Frame] = set()
            for frame in stack:
                if frame not in visited:  # a call is not made inside itself
                    visited.add(frame)
                    place = self._call(place, frame)
                    assert place.frame is not None
                    own.append(place.frame)
            found = self._known[start, stack] = (place, tuple(own))
        return found

    def _call(self, around: Place, frame: Frame) -> Place:
        key = (frame.path, frame.call)
        place = around.inner.get(key)
        if place is None:
            made = self._next_call(frame)
            place = around.inner[key] = Place(made)
            self.became.setdefault(Frame(*key), {})[made] = None
        return place

    def _path(self, path: str) -> str:
        place = self._paths.get(path)
        if place is None:
            place = read_place(path) or path
            above = place
            while above and above not in self.aliases:
                above = parent_of(above)
            if above:
                place = self.aliases[above] + place[len(above) :]
            self._paths[path] = place
        return place

    def _node(self, node: Node, own: Stack, place: Place) -> Node:
        if place.frame is not None:
            outer = place.frame.path
            own = Relocation(lambda path: relative(path, outer)).stack(own)
        do = node.do
        if type(do) is Get and own != node.stack and own and place is self.root:
            do = self._read(do, own)
        meta: Any = node.meta
        if KEY in meta:
            meta = MappingProxyType({key: value for key, value in meta.items() if key != KEY})
        return node.evolve(do=do, stack=node.stack if own == node.stack else own, meta=meta)

    def _read(self, do: Get, stack: Stack) -> Get:
        if is_below(do.slot, stack[-1].path) or do.slot not in self.source.state:
            return do
        depth, slot = reading_place(self.source.state, do.slot, stack)
        return Get(slot) if depth == len(stack) else do

    def _signatures(self) -> Any:
        signatures = self.source.call_signatures
        moved = {
            frame: list(self.became.get(frame, ())) or [self._next_call(frame)]
            for frame in signatures
        }
        if all(found == [frame] for frame, found in moved.items()):
            return signatures
        return pmap({new: signatures[frame] for frame, found in moved.items() for new in found})

    def _next_call(self, frame: Frame) -> Frame:
        # Also of a signature without nodes.
        path = self._path(frame.path)
        number = self.next.get(path, 0)
        self.next[path] = number + 1
        return Frame(path, number)


@transformation(
    proven=True,
    requires={"flat"},
    laws=[
        "nodes of one call stay in one call",
        "calls of a module are numbered from 0 without gaps, in the order of the nodes",
    ],
)
def normalize_stacks(program: Program, *, aliases: torch.nn.Module | None = None) -> Program:
    """Normalize the module stacks of all nodes.

    Before::

        y = aten.relu.default(x)   in L['self'].act@3
        z = aten.relu.default(y)   in other            # the same module, under another name
        w = aten.neg.default(z)    # meta has nn_module_stack: {"L__self___up": ("L['self'].up[0]", Up)}

    After, with ``aliases=module``, where ``module.other is module.act``::

        y = aten.relu.default(x)   in act
        z = aten.relu.default(y)   in act@1
        w = aten.neg.default(z)    in up.0

    A stack in meta (``nn_module_stack``, in the format of any tracer) is parsed, never evaluated, and replaces the stack of the
    node; malformed parts of it are dropped.  A call inside itself is dropped, and a call that appears in two calls becomes two
    calls.  A read of state below a renamed module is renamed with it.  Preserved call signatures move with their calls.

    Args:
        program: a flat program.
        aliases: the original module.  If several paths lead to one module, the first is used for all of them.  A program does not
            contain this: equal state does not prove it.

    Returns:
        The program with normal stacks; the same object if its stacks are normal.

    Raises:
        PipelineError: the program calls modules.
        TypeError: ``aliases`` is not a module.

    >>> import purefx as px
    >>> nodes = [px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("L['self'].act", 3),))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), ())})
    >>> px.normalize_stacks(program).main.nodes[0].stack
    (Frame(path='act', call=0),)
    """
    if aliases is not None and not isinstance(aliases, torch.nn.Module):
        raise TypeError(
            f"normalize_stacks(aliases=) takes the original module, not a {type(aliases).__name__}"
        )
    return Renumbering(program, {} if aliases is None else _of_module(aliases)).program()


def _of_module(module: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for path, inner in module.named_modules(remove_duplicate=False):
        kept = first.setdefault(id(inner), path)
        if kept != path:
            found[path] = kept
    return found
