"""The one fast pass over a graph: takes stock of it and says whether anything could be wrong.

One idea: almost every graph is right, so the pass only has to be sure of that; at the first doubt it gives up (None)
and the slow rules say what is wrong.  It must doubt wherever a rule about names, arguments, stacks or meta would
find something (tests/verify/test_screen.py holds the two together).  It explains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..arguments import CONTAINERS, NESTED, Body, Items, Ref, is_deep
from ..effects.declared import Effects
from ..graph import Graph, Input
from ..node import Call, Frame, Get, Node, Op, Stack
from ..paths import FROM_ROOT
from .kinds import PLAIN, is_argument, leaves
from .well_formed import PLAIN_VALUES, meta_faults

__all__ = ["GETITEM", "Census", "Ops", "Screen"]

GETITEM = "operator.getitem"

Ops = dict[int, tuple[Op, str, int]]
"""Every distinct ``Op`` object by ``id``, with the graph and the number of the node that it was first met in."""


class Census:
    """What a graph holds that rules about the whole program ask for; numbers are positions of nodes."""

    __slots__ = ("bodies", "callees", "calls", "gets", "graph", "name", "nodes", "projections", "sound", "stacks")

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = name
        self.graph = graph
        self.nodes: list[tuple[int, Node]] | None = None
        """The well-formed nodes, where they were asked for."""
        self.sound = False
        """Whether the screen found all nodes well-formed."""
        self.callees: list[tuple[int, str]] = []
        self.calls: list[tuple[int, Node]] = []
        self.gets: list[tuple[int, Node]] = []
        self.bodies: list[tuple[int, str]] = []
        self.projections: list[tuple[int, Node]] = []
        self.stacks: list[tuple[int, Stack]] = []
        """Each stack that is not empty, where a run of nodes with it begins."""


class Screen:
    """Screens the graphs of one program; what was found right once (an operator, a stack, keys of meta) is not asked again.

    >>> from purefx.ir import Graph, Node, Op, Ref
    >>> Screen().census("", Graph((), (Node("y", Op("toy.neg"), (Ref("x"),)),), ())) is None
    True
    """

    def __init__(self) -> None:
        self.ops: Ops = {}
        self._keys: set[tuple[Any, ...]] = set()
        self._stacks: set[int] = {id(())}

    def census(self, name: str, graph: Graph) -> Census | None:
        """Return the census of a graph in which every name, argument, stack and meta is right; None at the first doubt.

        Args:
            name: the id of the graph.
            graph: what stands there in the table.
        """
        defined: set[str] = set()
        if type(graph.inputs) is not tuple or type(graph.nodes) is not tuple:
            return None
        for formal in graph.inputs:
            if type(formal) is not Input or type(formal.name) is not str or formal.name in defined or not formal.name:
                return None
            if not self._is_fine(formal.meta):
                return None
            defined.add(formal.name)
        census = Census(name, graph)
        if not self._nodes(census, defined):
            return None
        output = graph.output
        if type(output) is not Ref and is_deep(output):
            return None
        for leaf in leaves(output) if type(output) is not Ref else (output,):
            if leaf.name not in defined if type(leaf) is Ref else type(leaf) is Body or not is_argument(leaf):
                return None
        census.sound = True
        return census

    def _nodes(self, census: Census, defined: set[str]) -> bool:
        # The hot loop, longer than a function should be: one look at each fact of a node, and no call of a function
        # where nothing is unusual (measured: calls were more than half of the cost of verifying).
        last, ops, stacks, gets = (), self.ops, self._stacks, census.gets
        for index, node in enumerate(census.graph.nodes):
            if type(node) is not Node or type(node.name) is not str or node.name in defined or type(node.args) is not tuple:
                return False
            name, do, args, stack, meta = node.name, node.do, node.args, node.stack, node.meta
            if stack is not last:
                if id(stack) not in stacks and not self._is_stack(stack):
                    return False
                if stack:
                    census.stacks.append((index, stack))
                last = stack
            if type(do) is Get:
                if type(do.slot) is not str or not do.slot or args or node.kwargs != ():
                    return False
                gets.append((index, node))
            else:
                for arg in args:
                    if type(arg) is Ref:
                        if arg.name not in defined:
                            return False
                    elif type(arg) not in PLAIN and not _is_plain(arg, defined, census, index):
                        return False
                if node.kwargs != () and not _are_keywords(node.kwargs, defined, census, index):
                    return False
                if id(do) not in ops and not self._is_deed(index, node, census):
                    return False
                if type(do) is Op and do.name == GETITEM:
                    census.projections.append((index, node))
            # Joining the keys raises on one that is no text, and the slow rules then say so.
            if type(meta) is not MappingProxyType or type(meta.get("val")) not in PLAIN_VALUES or not "".join(meta):
                if not self._is_fine(meta):
                    return False
            elif type(meta.get("stack_trace", "")) is not str and meta["stack_trace"] is not None:
                return False
            defined.add(name)
        return "" not in defined

    def _is_fine(self, meta: Any) -> bool:
        if type(meta) is not MappingProxyType and not isinstance(meta, Mapping):
            return False
        if type(meta.get("val")) not in PLAIN_VALUES and meta_faults(meta):
            return False
        trace = meta.get("stack_trace")
        if trace is not None and type(trace) is not str:
            return False
        keys = tuple(meta)
        if keys not in self._keys:
            if not all(type(key) is str for key in keys):
                return False
            self._keys.add(keys)
        return True

    def _is_stack(self, stack: Any) -> bool:
        if type(stack) is not tuple:
            return False
        above = ""
        nests = True
        for frame in stack:
            if id(frame) not in self._stacks:
                if not _is_frame(frame):
                    return False
                self._stacks.add(id(frame))
            nests = nests and frame.path.startswith(above)
            above = f"{frame.path}."
        if not nests and len(set(stack)) < len(stack):
            return False
        if any(frame.path[0] == FROM_ROOT for frame in stack):
            return False  # right everywhere but in the root, and rare
        self._stacks.add(id(stack))  # the program holds it, so no other object gets this id meanwhile
        return True

    def _is_deed(self, index: int, node: Node, census: Census) -> bool:
        do: Any = node.do
        kind = type(do)
        if kind is Op:
            if type(do.effects) is not Effects or type(do.name) is not str or not (do.target is None or callable(do.target)):
                return False
            self.ops[id(do)] = (do, census.name, index)
            return True
        census.calls.append((index, node))
        census.callees.append((index, do.graph))
        return kind is Call and type(do.graph) is str and _is_frame(do.instance)


def _is_frame(frame: Any) -> bool:
    if type(frame) is not Frame or type(frame.path) is not str or not frame.path:
        return False
    return type(frame.call) is int and frame.call >= 0 and type(frame.part) is int and frame.part >= 0


def _is_plain(arg: Any, defined: set[str], census: Census, index: int) -> bool:
    flat = (type(arg) is tuple or type(arg) is Items) and NESTED.isdisjoint(map(type, arg))  # nearly all of them: sizes
    if not flat and is_deep(arg):
        return False
    for leaf in leaves(arg):
        kind = type(leaf)
        if kind is Ref:
            if leaf.name not in defined:
                return False
        elif kind in CONTAINERS or not is_argument(leaf):
            return False
        elif kind is Body:
            census.bodies.append((index, leaf.graph))
            census.callees.append((index, leaf.graph))
    return True


def _are_keywords(kwargs: Any, defined: set[str], census: Census, index: int) -> bool:
    seen: set[str] = set()
    for key, value in kwargs:
        if type(key) is not str or key in seen or not _is_plain(value, defined, census, index):
            return False
        seen.add(key)
    return type(kwargs) is tuple and all(type(pair) is tuple for pair in kwargs)
