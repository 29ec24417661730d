"""``Survey``: one walk over the graphs of a program, which finds what is malformed and collects the facts that the rules share.

Nearly all nodes are right: one look decides, and what it doubts is explained.  The rules are asked of well-formed programs alone,
so they have no guards against garbage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..arguments import CONTAINERS, NESTED, Body, Items, Ref, is_deep
from ..graph import Call, Do, Frame, Get, Graph, Input, Node, Op
from ..names import FROM_ROOT
from ..program import Program
from ..state import Slot
from .census import GETITEM, Census, Seen
from .explained import explained, stack_fault
from .findings import INPUTS, PLAIN, Fault, Finding, is_argument, leaves, short
from .types import accepts
from .well_formed import PLAIN_VALUES, fields_faults, meta_faults

IS_INPUT, IS_FRAME, IS_DO = accepts(Input), accepts(Frame), accepts(Do)


class Survey:
    """A program as the rules see it.

    Args:
        program: what to look at; any of its fields may be garbage.

    >>> from purefx.ir import Graph, Program
    >>> list(Survey(Program.of({"": Graph((), (), ())})).censuses)
    ['']
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.faults: list[Fault] = list(fields_faults(program))
        """What is malformed; where there is something, nothing else of the survey need be right."""
        self.ops: dict[int, tuple[Op, Census, int]] = {}
        """Every distinct ``Op`` object by ``id``, with the graph and the position of the node that it was first met in."""
        self.censuses: dict[str, Census] = {}
        """The graphs that the root reaches, each before those that it calls."""
        self.derived: dict[Any, Any] = {}
        """What several rules derive from it, each once."""
        if isinstance(program.graphs, Mapping):
            self._walk()

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The state, for looking up."""
        return dict(self.program.state.pairs)

    @property
    def main(self) -> Census:
        """The root graph."""
        return self.censuses[self.program.root]

    def _walk(self) -> None:
        graphs: Mapping[Any, Any] = self.program.graphs
        look, ops = _Look(), self.ops
        root: Any = self.program.root
        if type(root) is str and root not in graphs:
            self.faults.append(("root", Finding(f"the root is {root!r}, and program.graphs has no such graph")))
        todo = [root]
        while todo:
            name = todo.pop()
            if type(name) is not str or name in self.censuses or type(graph := graphs.get(name)) is not Graph:
                continue
            is_root = name == self.program.root
            # Of a well-formed graph, which cannot change, the census is kept.
            known: Seen | None = graph.derived.get((Seen, is_root))
            census = self.censuses[name] = Census(name, graph, Seen() if known is None else known, is_root=is_root)
            if known is None:
                faults = look.faults(census)
                self.faults.extend(faults)
                if not faults:
                    graph.derived[Seen, is_root] = census.seen
            for key, (op, index) in census.seen.ops.items():
                if key not in ops:
                    ops[key] = op, census, index
            if census.callees:
                todo.extend([callee for _, callee in reversed(census.callees)])


class _Look:
    """Looks at the graphs of one program; what was found right once (an operator, a stack, keys of meta) is not asked again."""

    def __init__(self) -> None:
        self._right: set[int] = set()
        self._keys: set[tuple[Any, ...]] = set()
        self._stacks: set[int] = {id(())}

    def faults(self, census: Census) -> list[Fault]:
        """Return what is malformed in a graph, and take its census."""
        graph: Any = census.graph
        parts = [(name, getattr(graph, name)) for name in ("inputs", "nodes")]
        raw = [f"its {name} are {short(value)}, not a tuple" for name, value in parts if type(value) is not tuple]
        if raw:
            return [("well-formed", Finding(fault, census.name)) for fault in raw]
        why = "no rule says why"
        try:
            doubts: Sequence[int] = self._doubts(census)
        except Exception as error:  # noqa: BLE001  garbage that cannot be compared, hashed or counted: all is looked at with care
            doubts, why = range(INPUTS, len(graph.nodes) + 1), f"{type(error).__name__}: {error}"
        found = list(explained(census, doubts)) if doubts else []
        return found if found or not doubts else [("well-formed", Finding(f"it cannot be read: {why}", census.name))]

    def _doubts(self, census: Census) -> list[int]:
        # The positions of what is not right.
        graph, doubts, defined = census.graph, list[int](), set[str]()
        for formal in graph.inputs:
            if type(formal) is not Input or not IS_INPUT(formal) or formal.name in defined or not self._is_fine(formal.meta):
                doubts = [INPUTS]
            defined.add(formal.name)
        self._nodes(census, defined, doubts)
        output = graph.output
        if any(type(leaf) is Body for leaf in leaves(output)) or not _is_plain(output, defined, census, len(graph.nodes)):
            doubts.append(len(graph.nodes))
        return doubts

    def _nodes(self, census: Census, defined: set[str], doubts: list[int]) -> None:
        # The hot loop, longer than a function should be: one look at each fact of a node, and no call of a function
        # where nothing is unusual (measured: calls were more than half of the cost of verifying).
        last, ops, stacks, gets = (), census.seen.ops, self._stacks, census.gets
        for index, node in enumerate(census.graph.nodes):
            if type(node) is not Node or type(node.name) is not str or node.name in defined or type(node.args) is not tuple:
                doubts.append(index)
                continue
            name, do, args, stack, meta = node.name, node.do, node.args, node.stack, node.meta
            right = name != ""
            if stack is not last:
                right = right and (id(stack) in stacks or self._is_stack(stack, census))
                if stack:
                    census.stacks.append((index, stack))
                last = stack
            if type(do) is Get:
                if type(do.slot) is not str or not do.slot or args or node.kwargs != ():
                    right = False
                gets.append((index, node, do))
            else:
                for arg in args:
                    if type(arg) is Ref:
                        if arg.name not in defined:
                            right = False
                    elif type(arg) not in PLAIN and not _is_plain(arg, defined, census, index):
                        right = False
                if node.kwargs != () and not _are_keywords(node.kwargs, defined, census, index):
                    right = False
                if id(do) not in ops and not self._is_deed(index, node, census):
                    right = False
                if type(do) is Op and do.name == GETITEM:
                    census.projections.append((index, node))
            # Joining the keys raises on one that is not a string, and then all is looked at with care.
            if type(meta) is not MappingProxyType or type(meta.get("val")) not in PLAIN_VALUES or not "".join(meta):
                right = right and self._is_fine(meta)
            elif type(meta.get("stack_trace", "")) is not str and meta["stack_trace"] is not None:
                right = False
            if not right:
                doubts.append(index)
            defined.add(name)

    def _is_fine(self, meta: Any) -> bool:
        if type(meta) is not MappingProxyType and not isinstance(meta, Mapping):
            return False
        keys = tuple(meta)
        if keys in self._keys and type(meta.get("val")) in PLAIN_VALUES and type(meta.get("stack_trace", "")) is str:
            return True
        if meta_faults(meta):
            return False
        self._keys.add(keys)
        return True

    def _is_stack(self, stack: Any, census: Census) -> bool:
        if type(stack) is not tuple:
            return False
        new = [frame for frame in stack if id(frame) not in self._stacks]
        if not all(map(IS_FRAME, new)):
            return False
        self._stacks.update(map(id, new))  # the program holds them, so no other object gets their ids meanwhile
        if len(set(stack)) == len(stack) and not [frame for frame in stack if frame.path[0] == FROM_ROOT]:
            self._stacks.add(id(stack))
            return True
        return stack_fault(stack, census) is None  # a path that begins there is right everywhere but in the root

    def _is_deed(self, index: int, node: Node, census: Census) -> bool:
        do = node.do
        if type(do) is Op:
            census.seen.ops[id(do)] = do, index
            if id(do) in self._right:
                return True
        elif type(do) is Call:
            census.calls.append((index, node, do))
            census.callees.append((index, do.graph))
        if not IS_DO(do):
            return False
        self._right.add(id(do))
        return True


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
