"""The indices of a program and of its graphs for the rules, and the local rules: those about one value of one graph.

One walk checks all local rules; its findings are cached on the graph, which is immutable.  The other rules run for well-formed
programs only, so they need no guards against garbage.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from attrs import define, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import Body, Items, Record, Ref
from ..graph import Call, Get, Graph, Input, Node, Op, Stack
from ..names import FROM_ROOT
from ..persistent import derived
from ..program import Program
from ..state import Slot
from ..torch_private import FakeTensor
from .findings import INPUTS, PLAIN, Finding, depth_fault, frame_faults, is_argument, leaves, short, type_fault

GETITEM = "operator.getitem"

BODILESS = PLAIN | {Ref}
"""The types of most arguments; others may contain a ``Body``."""

Fault = tuple[str, Finding]
"""The name of a rule, and a finding."""


@frozen
class Parts:
    """The parts of a graph that rules read, with the positions of their nodes."""

    callees: list[tuple[int, str]]
    calls: list[tuple[int, Node, Call]]
    gets: list[tuple[int, Node, Get]]
    bodies: list[tuple[int, str]]
    """The bodies of operators."""
    projections: list[tuple[int, Node]]
    stacks: list[tuple[int, Stack]]
    """Each non-empty stack, once for each run of nodes with it."""
    ops: dict[int, tuple[Op, int]]
    """Every distinct ``Op`` object by ``id``, with its first node."""


@derived
def _parts_of(graph: Graph) -> Parts:
    parts = Parts([], [], [], [], [], [], {})
    last: Stack = ()
    for index, node in enumerate(graph.nodes):
        do = node.do
        if type(do) is Call:
            parts.calls.append((index, node, do))
        elif type(do) is Get:
            parts.gets.append((index, node, do))
        else:
            parts.ops.setdefault(id(do), (do, index))
            if do.name == GETITEM:
                parts.projections.append((index, node))
        if type(do) is Call or node.kwargs or not BODILESS.issuperset(map(type, node.args)):
            parts.callees.extend([(index, name) for name in node.callees])
        if node.stack is not last:
            last = node.stack
            parts.stacks.extend([(index, last)] if last else [])
    operators = {index for index, _, _ in parts.calls}
    parts.bodies.extend([pair for pair in parts.callees if pair[0] not in operators])
    return parts


class GraphIndex:
    """A graph of a program with its parts."""

    def __init__(self, name: str, graph: Graph, *, is_root: bool) -> None:
        self.name, self.graph, self.is_root = name, graph, is_root
        parts = _parts_of(graph)
        self.callees, self.calls, self.gets, self.bodies = parts.callees, parts.calls, parts.gets, parts.bodies
        self.projections, self.stacks, self.ops = parts.projections, parts.stacks, parts.ops

    @property
    def nodes(self) -> Iterator[tuple[int, Node]]:
        """The nodes with their positions."""
        return iter(enumerate(self.graph.nodes))

    def at(self, index: int, message: str) -> Finding:
        """Return a finding about a node, or about the output, whose position is after the last node."""
        return _finding(self.name, self.graph, index, message)


def _finding(name: str, graph: Graph, index: int, message: str) -> Finding:
    node: Any = getattr(graph.nodes[index], "name", None) if index < len(graph.nodes) else "output"
    return Finding(message, name, index, node if type(node) is str else f"node {index}")


class ProgramIndex:
    """A program, indexed for the rules.

    Args:
        program: the program; any of its fields may be garbage.

    >>> from purefx.ir import Graph, Program
    >>> list(ProgramIndex(Program.of({"": Graph((), (), ())})).graphs)
    ['']
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.faults: list[Fault] = [("well-formed", finding) for finding in frame_faults(program)]
        """The violations of local rules; if there are any, no other rule is checked."""
        self.ops: dict[int, tuple[Op, GraphIndex, int]] = {}
        """Every distinct ``Op`` object by ``id``, with the graph and the position of its first node."""
        self.graphs: dict[str, GraphIndex] = {}
        """The graphs that the root reaches, callers first."""
        self.derived: dict[Any, Any] = {}
        """A cache of facts that several rules need."""
        if self.faults:
            return
        right = {True: set[Any](), False: set[Any]()}
        for name, graph in program.graphs.items():
            self.faults.extend(_faults(graph, name, right[is_root := name == program.root], is_root=is_root))
        if program.root not in program.graphs:
            self.faults.append(("root", Finding(f"the root is {program.root!r}, which is not in program.graphs")))
        todo = [] if self.faults else [program.root]
        while todo:
            name = todo.pop()
            if name in program.graphs and name not in self.graphs:
                each = self.graphs[name] = GraphIndex(name, program.graphs[name], is_root=name == program.root)
                for key, (op, index) in each.ops.items():
                    self.ops.setdefault(key, (op, each, index))
                todo.extend([callee for _, callee in reversed(each.callees)])

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The state by name."""
        return dict(self.program.state.pairs)

    @property
    def main(self) -> GraphIndex:
        """The root graph."""
        return self.graphs[self.program.root]


def _faults(graph: Graph, name: str, right: set[Any], *, is_root: bool) -> list[Fault]:
    key = _faults, is_root
    if key not in graph.derived:
        found = list(_check_graph(graph, name, right, is_root=is_root))
        if found:
            return found
        graph.derived[key] = ()
    return []


def _check_graph(graph: Graph, name: str, right: set[Any], *, is_root: bool) -> Iterator[Fault]:
    if type(graph.inputs) is not tuple or type(graph.nodes) is not tuple:
        yield "well-formed", Finding(f"its inputs are {short(graph.inputs)}, its nodes {short(graph.nodes)}, not tuples", name)
        return
    at = _At(graph, is_root, right, {})
    values = (*graph.inputs, *graph.nodes, Node("output", Op("return"), (graph.output,)))
    for index, value in enumerate(values[:-1], -len(graph.inputs)):
        if type(key := getattr(value, "name", None)) is str:
            at.where.setdefault(key, index)
    for index, value in enumerate(values, -len(graph.inputs)):
        found: list[tuple[str, str]] = []  # includes those before an exception
        try:
            _add_faults(found, value, index, at)
        except Exception as error:  # noqa: BLE001  garbage may raise when compared, hashed or printed; report it
            found.append(("well-formed", f"it cannot be read: {type(error).__name__}: {error}"))
        for rule, message in found:
            if index < 0:
                key = getattr(value, "name", index)
                yield rule, Finding(f"input {key}: {message}", name, INPUTS, getattr(value, "name", None))
            else:
                yield rule, _finding(name, graph, index, message)


@define
class _At:
    """A graph whose local rules are checked."""

    graph: Graph
    is_root: bool
    right: set[Any]
    """The ids of valid stacks, and of values whose types are right; the program keeps them alive."""
    where: dict[str, int]
    """The position of each value; those of inputs are negative.  Malformed nodes are included, to not report their users."""


def _add_faults(found: list[tuple[str, str]], value: Any, index: int, at: _At) -> None:
    # Add the rules that an input, a node, or the output breaks, with messages.
    is_output, right = index == len(at.graph.nodes), at.right
    if (fault := type_fault(value, Input if index < 0 else Node, "it", right)) is not None:
        found.append(("well-formed", fault))
        return
    first = at.where.get(value.name, index)
    if first != index and not is_output:
        other = f"node {first}" if first >= 0 else f"input {first + len(at.graph.inputs)}"
        found.append(("unique-names", f"the name {value.name!r} is used already by {other}"))
    found.extend([("meta", message) for message in _meta_faults(value.meta)])
    if index < 0:
        return
    if type(value.do) is Get and (value.args or value.kwargs):
        found.append(("well-formed", "a read takes no arguments"))
    for arg in (*value.args, *[part for _, part in value.kwargs]) if value.kwargs else value.args:
        kind = type(arg)
        if kind in PLAIN or (kind is Ref and type(arg.name) is str and at.where.get(arg.name, index) < index):
            continue  # most arguments
        if kind in (tuple, Items) and PLAIN.issuperset(map(type, arg)):
            continue  # most lists are sizes
        where = "the output of the graph contains" if is_output else "its arguments contain"
        if kind is not Ref and (fault := depth_fault(arg)) is not None:
            found.append(("argument-kinds", f"its arguments contain {short(arg)}: {fault}"))
        for leaf in leaves(arg):
            if type(leaf) is Ref and type(leaf.name) is str:
                later = at.where.get(leaf.name, index) - index
                if leaf.name not in at.where:
                    found.append(("defined-values", f"it uses {leaf.name!r}, which its graph does not define"))
                elif later >= 0:
                    place = f"which is defined {later} nodes later" if later else "its own result"
                    found.append(("earlier-values", f"it uses {leaf.name!r}, {place}"))
            elif not is_argument(leaf) or (is_output and type(leaf) is Body):
                found.append(("argument-kinds", f"{where} {short(leaf)}"))
    if value.stack and id(value.stack) not in right:
        if (fault := _stack_fault(value.stack, is_root=at.is_root)) is not None:
            found.append(("stacks", fault))
        else:
            right.add(id(value.stack))


def _stack_fault(stack: Stack, *, is_root: bool) -> str | None:
    if len(set(stack)) < len(stack):
        return f"its stack has {next(frame for frame in stack if stack.count(frame) > 1)} twice"
    for frame in stack if is_root else ():
        if frame.path.startswith(FROM_ROOT):
            return f"its stack has {frame}: in the root graph, paths start at the root without {FROM_ROOT!r}"
    return None


PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that are always valid."""

MAPPINGS = (types.MappingProxyType, dict)
"""The usual types of meta, which ``isinstance`` recognizes faster than a ``Mapping``."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""Types that no node can return: code, modules, unordered sets and parts of a program."""


def _meta_faults(meta: Any) -> list[str]:
    # Meta that is not a mapping from strings, and impossible values in it.
    if not isinstance(meta, MAPPINGS) and not isinstance(meta, Mapping):
        return [f"meta is {short(meta)}, not a mapping"]
    found = [f"meta has the key {short(key)}, not a string" for key in meta if type(key) is not str]
    todo: list[Any] = [] if type(meta.get("val")) in PLAIN_VALUES else [meta["val"]]
    opened: set[int] = set()
    while todo:
        part = todo.pop()
        if isinstance(part, ABSURD):
            found.append(f"meta['val'] {'is' if part is meta['val'] else 'holds'} {short(part, width=90)}")
            break
        if isinstance(part, tuple | list | Items | Mapping) and id(part) not in opened:
            opened.add(id(part))  # a list can contain itself
            todo.extend(part.values() if isinstance(part, Mapping) else part)  # type: ignore[reportUnknownMemberType]
    trace = meta.get("stack_trace")
    if trace is not None and not isinstance(trace, str):
        found.append(f"meta['stack_trace'] is {short(trace)}, not text")
    return found
