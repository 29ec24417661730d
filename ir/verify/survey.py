"""``Survey``: one walk over the graphs of a program, which asks the local rules and collects what the other rules look at.

Nearly all nodes are right, which one look shows; ``node_faults`` is asked of the others.  What is collected of a well-formed
graph is kept with that, because it cannot change.  The rules about the whole program are asked of well-formed programs alone, so
they have no guards against garbage.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, field, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import Body, Items, Record, Ref
from ..graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ..names import FROM_ROOT
from ..program import Program
from ..state import Slot
from ..torch_private import FakeTensor
from .findings import INPUTS, PLAIN, Finding, depth_fault, is_argument, leaves, short
from .types import frame_faults, part_fault, type_fault

GETITEM = "operator.getitem"

Fault = tuple[str, Finding]
"""The name of a rule, and what is wrong."""


@frozen(eq=False)
class Census:
    """A graph of a program with the parts that rules look at; numbers are positions of nodes."""

    name: str
    graph: Graph
    is_root: bool = False
    callees: list[tuple[int, str]] = field(factory=list)
    calls: list[tuple[int, Node, Call]] = field(factory=list)
    gets: list[tuple[int, Node, Get]] = field(factory=list)
    bodies: list[tuple[int, str]] = field(factory=list)
    projections: list[tuple[int, Node]] = field(factory=list)
    stacks: list[tuple[int, Stack]] = field(factory=list)
    """Each stack that is not empty, once for each run of nodes with it."""
    ops: dict[int, tuple[Op, int]] = field(factory=dict)
    """Every distinct ``Op`` object by ``id``, with the first node that has it."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """What was collected: it is kept with the graph, and does not hold it."""
        return self.callees, self.calls, self.gets, self.bodies, self.projections, self.stacks, self.ops

    @property
    def nodes(self) -> Iterator[tuple[int, Node]]:
        """The nodes with their positions."""
        return iter(enumerate(self.graph.nodes))

    def at(self, index: int, message: str, cause: str | None = None) -> Finding:
        """Return what is wrong with a node, or with the output, whose position is behind that of the last node."""
        nodes = self.graph.nodes
        name: Any = getattr(nodes[index], "name", None) if index < len(nodes) else "output"
        return Finding(message, self.name, index, name if type(name) is str else f"node {index}", cause)


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
        self.faults: list[Fault] = [("well-formed", finding) for finding in frame_faults(program)]
        """What is malformed; where there is something, nothing else of the survey need be right."""
        self.ops: dict[int, tuple[Op, Census, int]] = {}
        """Every distinct ``Op`` object by ``id``, with the graph and the position of the node that it was first met in."""
        self.censuses: dict[str, Census] = {}
        """The graphs that the root reaches, each before those that it calls."""
        self.derived: dict[Any, Any] = {}
        """What several rules derive from it, each once."""
        if not self.faults:
            self._walk(program)

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The state, for looking up."""
        return dict(self.program.state.pairs)

    @property
    def main(self) -> Census:
        """The root graph."""
        return self.censuses[self.program.root]

    def _walk(self, program: Program) -> None:
        right: dict[bool, set[int]] = {True: set(), False: set()}
        if program.root not in program.graphs:
            self.faults.append(("root", Finding(f"the root is {program.root!r}, and program.graphs has no such graph")))
        todo = [program.root]
        while todo:
            name = todo.pop()
            if name in self.censuses or (graph := program.graphs.get(name)) is None:
                continue
            is_root = name == program.root
            known: tuple[Any, ...] | None = graph.derived.get((Census, is_root))
            census = self.censuses[name] = Census(name, graph, is_root, *(known or ()))
            if known is None:
                faults = list(_faults(census, right[is_root]))
                self.faults.extend(faults)
                if not faults:
                    graph.derived[Census, is_root] = census.parts
            for key, (op, index) in census.ops.items():
                self.ops.setdefault(key, (op, census, index))
            todo.extend([callee for _, callee in reversed(census.callees)])


@define
class At:
    """A place in a graph that is walked."""

    census: Census
    where: dict[str, int]
    """The position of each value; those of inputs are negative.  Malformed nodes count: their users are not to blame."""
    index: int = 0


def _faults(census: Census, right: set[int]) -> Iterator[Fault]:
    # What is malformed in a graph, with its parts collected; `right` has the ids of operators and stacks that were found right.
    graph, name = census.graph, census.name
    if type(graph.inputs) is not tuple or type(graph.nodes) is not tuple:
        yield "well-formed", Finding(f"its inputs are {short(graph.inputs)}, its nodes {short(graph.nodes)}, not tuples", name)
        return
    where: dict[str, int] = {}
    for index, value in enumerate((*graph.inputs, *graph.nodes), -len(graph.inputs)):
        if type(key := getattr(value, "name", None)) is str:
            where.setdefault(key, index)
    at = At(census, where)
    for index, formal in enumerate(graph.inputs, -len(graph.inputs)):
        if not (type(formal) is Input and formal.name and where.get(formal.name) == index and _is_plain(formal.meta)):
            at.index = index
            said = f"input {getattr(formal, 'name', index)}"
            for rule, message in _broken(formal, at):
                yield rule, Finding(f"{said}: {message}", name, INPUTS, getattr(formal, "name", None))
    last: Any = ()
    for index, node in enumerate(graph.nodes):
        try:
            is_right = _is_right(node, index, at, right)
        except Exception:  # noqa: BLE001  garbage that cannot be compared, hashed or counted
            is_right = False
        if not is_right:
            at.index = index
            wrong = _broken(node, at)
            yield from [(rule, census.at(index, message)) for rule, message in wrong]
            if wrong:
                continue
            right.add(id(node.do))
            named = [(index, leaf.graph) for leaf in _leaves_of(node) if type(leaf) is Body]
            census.bodies.extend(named)
            census.callees.extend(named)
        do = node.do
        if type(do) is Op:
            if id(do) not in census.ops:
                census.ops[id(do)] = do, index
            if do.name == GETITEM:
                census.projections.append((index, node))
        elif type(do) is Get:
            census.gets.append((index, node, do))
        else:
            census.calls.append((index, node, do))
            census.callees.append((index, do.graph))
        if node.stack is not last:
            last = node.stack
            if last:
                census.stacks.append((index, last))
    at.index = len(graph.nodes)
    result = Node("output", Op("return"), (graph.output,))
    yield from [(rule, census.at(at.index, message)) for rule, message in _broken(result, at)]


def _is_right(node: Any, index: int, at: At, right: set[int]) -> bool:
    # One look at what nearly all nodes have; it may be False of a node that breaks no rule.
    where = at.where
    if type(node) is not Node or id(node.do) not in right or where.get(node.name) != index or type(node.args) is not tuple:
        return False
    if id(node.stack) not in right and not _is_stack(node.stack, at, right):
        return False
    args = node.args
    if node.kwargs != ():
        keywords = dict(node.kwargs)
        if type(node.kwargs) is not tuple or len(keywords) < len(node.kwargs) or not STRING.issuperset(map(type, keywords)):
            return False
        args = (*args, *keywords.values())
    for arg in args:
        if type(arg) is Ref:
            if where.get(arg.name, index) >= index:
                return False
        elif type(arg) is tuple or type(arg) is Items:
            for part in arg:
                if where.get(part.name, index) >= index if type(part) is Ref else type(part) not in PLAIN:
                    return False
        elif type(arg) not in PLAIN:
            return False
    return not (args and type(node.do) is Get) and _is_plain(node.meta)


STRING = frozenset({str})
TEXT = frozenset({str, type(None)})


def _is_plain(meta: Any) -> bool:
    if type(meta) is not MappingProxyType or type(meta.get("val")) not in PLAIN_VALUES or not STRING.issuperset(map(type, meta)):
        return False
    return type(meta.get("stack_trace")) in TEXT


def _is_stack(stack: Any, at: At, right: set[int]) -> bool:
    if type(stack) is not tuple:
        return False
    new = [frame for frame in stack if id(frame) not in right]
    if any(part_fault(frame, Frame) is not None for frame in new) or _stack_fault(stack, is_root=at.census.is_root) is not None:
        return False
    right.update(map(id, new), (id(stack),))  # the program holds them, so no other object gets their ids meanwhile
    return True


def _broken(value: Any, at: At) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []  # those before an exception too
    try:
        found.extend(node_faults(value, at))
    except Exception as error:  # noqa: BLE001  garbage that cannot be compared, hashed or printed is reported, not raised
        found.append(("well-formed", f"it cannot be read: {type(error).__name__}: {error}"))
    return found


def _leaves_of(node: Node) -> list[Any]:
    return [leaf for arg in (*node.args, *[value for _, value in node.kwargs]) for leaf in leaves(arg)]


def node_faults(value: Any, at: At) -> Iterator[tuple[str, str]]:
    """Find what is wrong with an input, a node, or the output as one: the names of rules, with messages.

    Args:
        value: of a graph; anything.
        at: its place.
    """
    index, inputs = at.index, at.census.graph.inputs
    is_output = index == len(at.census.graph.nodes)
    if (fault := type_fault(value, Input if index < 0 else Node, "it")) is not None:
        yield "well-formed", fault
        return
    first = at.where.get(value.name, index)
    if first != index and not is_output:
        taken = f"node {first}" if first >= 0 else f"input {first + len(inputs)}"
        yield "unique-names", f"the name {value.name!r} is taken already by {taken}"
    yield from [("meta", message) for message in _meta_faults(value.meta)]
    if index < 0:
        return
    for arg in (*value.args, *[part for _, part in value.kwargs]):
        if (fault := depth_fault(arg)) is not None:
            yield "argument-kinds", f"among its arguments is {short(arg)}: {fault}"
    if type(value.do) is Get and (value.args or value.kwargs):
        yield "well-formed", "a read takes no arguments"
    for leaf in _leaves_of(value):
        if not is_argument(leaf) or (is_output and type(leaf) is Body):
            yield "argument-kinds", f"among {'what the graph returns' if is_output else 'its arguments'} is {short(leaf)}"
        elif type(leaf) is Ref and leaf.name not in at.where:
            yield "defined-values", f"it uses {leaf.name!r}, which its graph does not define"
        elif type(leaf) is Ref and (later := at.where[leaf.name] - index) >= 0:
            said = f"which is defined {later} nodes later" if later else "its own result"
            yield "earlier-values", f"it uses {leaf.name!r}, {said}"
    if (fault := _stack_fault(value.stack, is_root=at.census.is_root)) is not None:
        yield "stacks", fault


def _stack_fault(stack: Stack, *, is_root: bool) -> str | None:
    if len(set(stack)) < len(stack):
        return f"its stack enters {next(frame for frame in stack if stack.count(frame) > 1)} twice"
    for frame in stack if is_root else ():
        if frame.path.startswith(FROM_ROOT):
            return f"its stack has {frame}: in the root every path is counted from the root already"
    return None


PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that need no second look."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""What no node can have as its value: code, modules, unordered sets and parts of a program."""


def _meta_faults(meta: Any) -> Iterator[str]:
    # Meta that is no mapping from strings, and values in it that no node can have.
    if not isinstance(meta, Mapping):
        yield f"meta is {short(meta)}, not a mapping"
        return
    yield from [f"meta has the key {short(key)}, not a string" for key in meta if type(key) is not str]
    todo: list[Any] = [meta.get("val")]
    opened: set[int] = set()
    while todo:
        part = todo.pop()
        if isinstance(part, ABSURD):
            yield f"meta['val'] {'is' if part is meta['val'] else 'holds'} {short(part, width=90)}"
            break
        if isinstance(part, tuple | list | Items | Mapping) and id(part) not in opened:
            opened.add(id(part))  # a list can hold itself
            todo.extend(part.values() if isinstance(part, Mapping) else part)  # type: ignore[reportUnknownMemberType]
    if not isinstance(meta.get("stack_trace"), str | None):
        yield f"meta['stack_trace'] is {short(meta['stack_trace'])}, not text"
