"""``Survey``: facts that the rules share, collected in one walk; and a fast pass that decides whether a graph could be invalid.

Most graphs are valid: the fast pass saves running the explaining rules on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..arguments import CONTAINERS, NESTED, Body, Items, Ref, is_deep
from ..effects.declared import Effects
from ..graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ..names import FROM_ROOT
from ..program import Module, Program
from ..signature import Constraints, Signature
from ..state import Slot, State
from .findings import PLAIN, Finding, is_argument, leaves, short
from .well_formed import MAP_TYPE, PLAIN_VALUES, graph_faults, is_formal, meta_faults, node_faults, slot_faults

__all__ = ["GETITEM", "Census", "Ops", "Screen", "Survey"]

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
            # Joining the keys raises on one that is not a string, and the slow rules then report it.
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


class Survey:
    """A program as the rules see it.

    Args:
        program: what to look at; any of its fields may be garbage.
        thorough: doubt every graph, so that the rules walk all of them; for tests of the fast screen.

    >>> from purefx.ir import Graph, Program
    >>> list(Survey(Program.of({"": Graph((), (), ())})).censuses)
    ['']
    """

    def __init__(self, program: Program, *, thorough: bool = False) -> None:
        self.program = program
        self.thorough = thorough
        self.table_faults: list[Finding] = []
        self.root: str = program.root if type(program.root) is str else ""
        self.graphs: dict[str, Graph] = self._graphs(program.graphs)
        state: Any = program.state
        self.state: State = state if type(state) is State else State()
        self.slots: dict[str, Slot] = dict(self.state.pairs) if self.state.checked else self._slots(self.state.slots)
        self.signature: Signature = program.signature if type(program.signature) is Signature else Signature()
        self.constraints: Constraints = program.constraints if type(program.constraints) is Constraints else Constraints()
        modules: Any = program.modules
        self.modules: list[Module] = [m for m in modules if type(m) is Module] if type(modules) is tuple else []
        self.screen = Screen()
        self.ops: Ops = self.screen.ops
        self.censuses: dict[str, Census] = {}
        """The graphs that the root reaches, each before those that it calls."""
        self.suspects: list[Census] = []
        """Those of them in which the fast screen doubts something."""
        self.crashes: dict[str, Exception] = {}
        """Why the screen broke off in a graph, where something in it cannot even be looked at."""
        self.derived: dict[Any, Any] = {}
        """What several rules derive from it, each once."""
        self._walk()

    @cached_property
    def ordered_slots(self) -> list[tuple[str, Slot]]:
        """The well-formed slots in the order of the state."""
        order: Any = self.state.order
        names = order if type(order) is tuple else ()
        return [(name, self.slots[name]) for name in names if type(name) is str and name in self.slots]

    @property
    def main(self) -> Graph | None:
        """The root graph, where there is one."""
        return self.graphs.get(self.root)

    def inputs_of(self, census: Census) -> list[Input]:
        """Return the well-formed inputs of a graph."""
        inputs: Any = census.graph.inputs
        return [formal for formal in inputs if is_formal(formal)] if type(inputs) is tuple else []

    def nodes_of(self, census: Census) -> list[tuple[int, Node]]:
        """Return the well-formed nodes of a graph with their positions."""
        if census.nodes is None:
            nodes: Any = census.graph.nodes
            pairs = enumerate(nodes if type(nodes) is tuple else ())
            census.nodes = list(pairs) if census.sound else [(index, node) for index, node in pairs if not node_faults(node)]
        return census.nodes

    def _walk(self) -> None:
        todo = [self.root]
        while todo:
            name = todo.pop()
            graph = self.graphs.get(name)
            if graph is None or name in self.censuses:
                continue
            census = None if self.thorough else self._screened(name, graph)
            if census is None:
                census = self._take_stock(name, graph)
                self.suspects.append(census)
            self.censuses[name] = census
            todo.extend([callee for _, callee in reversed(census.callees)])

    def _screened(self, name: str, graph: Graph) -> Census | None:
        try:
            return self.screen.census(name, graph)
        except Exception as error:  # noqa: BLE001  malformed: the slow rules find it, or the verifier reports the error
            self.crashes[name] = error
            return None

    def _take_stock(self, name: str, graph: Graph) -> Census:
        # The census of a doubtful graph: like the screen's, but garbage is stepped over.
        census = Census(name, graph)
        if graph_faults(graph):
            return census
        last: Any = ()
        for index, node in self.nodes_of(census):
            if node.stack is not last and node.stack:
                census.stacks.append((index, node.stack))
            last = node.stack
            match node.do:
                case Op() as op:
                    self.ops.setdefault(id(op), (op, name, index))
                    if op.name == GETITEM:
                        census.projections.append((index, node))
                case Call(graph=callee):
                    census.calls.append((index, node))
                    census.callees.append((index, callee))
                case Get():
                    census.gets.append((index, node))
            self._note_bodies(census, index, node)
        return census

    @staticmethod
    def _note_bodies(census: Census, index: int, node: Node) -> None:
        for value in (*node.args, *(value for _, value in node.kwargs)):
            for leaf in leaves(value):
                if type(leaf) is Body and type(leaf.graph) is str:
                    census.bodies.append((index, leaf.graph))
                    census.callees.append((index, leaf.graph))

    def _graphs(self, table: Any) -> dict[str, Graph]:
        found: dict[str, Graph] = {}
        for name, graph in self._entries(table):
            if type(name) is str and type(graph) is Graph:
                found[name] = graph
            else:
                self.table_faults.append(Finding(f"program.graphs has {short(graph)} under {short(name)}"))
        return found

    def _slots(self, table: Any) -> dict[str, Slot]:
        found: dict[str, Slot] = {}
        if type(table) is not MAP_TYPE:
            self.table_faults.append(Finding(f"program.state.slots is {short(table)}, not a PMap"))
        for name, slot in self._entries(table):
            faults = slot_faults(name, slot)
            if not faults and type(name) is str:
                found[name] = slot
                continue
            if type(name) is not str:
                faults = [*faults, f"program.state.slots has the key {short(name)}"]
            self.table_faults.extend(Finding(fault) for fault in faults)
        return found

    def _entries(self, table: Any) -> list[tuple[Any, Any]]:
        # The order of a PMap means nothing: what comes of it is only looked up, and findings are sorted.
        return list(table.items()) if type(table) is MAP_TYPE else []
