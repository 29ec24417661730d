"""``Survey``: one walk over the graphs of a program, which asks the local rules and collects what the other rules look at.

A local rule is a function from a node and its place to what is wrong with it.  Nearly all nodes are right, which one look shows;
the rules are asked of the others.  What is collected of a well-formed graph is kept with that, because it cannot change.  The
rules about the whole program are asked of well-formed programs alone, so they have no guards against garbage.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import define, field, fields, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import Body, Items, Record, Ref
from ..graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ..names import FROM_ROOT
from ..program import Program
from ..state import Slot
from ..torch_private import FakeTensor
from .findings import INPUTS, PLAIN, Fault, Finding, depth_fault, is_argument, leaves, short
from .types import accepts, program_faults, type_faults

GETITEM = "operator.getitem"


@frozen(eq=False)
class Parts:
    """The parts of a graph that rules look at, whatever it is called; numbers are positions of nodes."""

    callees: list[tuple[int, str]] = field(factory=list)
    calls: list[tuple[int, Node, Call]] = field(factory=list)
    gets: list[tuple[int, Node, Get]] = field(factory=list)
    bodies: list[tuple[int, str]] = field(factory=list)
    projections: list[tuple[int, Node]] = field(factory=list)
    stacks: list[tuple[int, Stack]] = field(factory=list)
    """Each stack that is not empty, at the first node of each run of nodes with it."""
    ops: dict[int, tuple[Op, int]] = field(factory=dict)
    """Every distinct ``Op`` object by ``id``, with the first node that has it."""


@frozen(eq=False)
class Census(Parts):
    """A graph of a program with its parts."""

    name: str = field(kw_only=True)
    graph: Graph = field(kw_only=True)
    is_root: bool = field(kw_only=True, default=False)

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
        self.faults: list[Fault] = list(program_faults(program))
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
        right: dict[bool, set[int]] = {True: set(), False: set()}
        root: Any = self.program.root
        if type(root) is str and root not in graphs:
            self.faults.append(("root", Finding(f"the root is {root!r}, and program.graphs has no such graph")))
        todo = [root]
        while todo:
            name = todo.pop()
            if type(name) is not str or name in self.censuses or type(graph := graphs.get(name)) is not Graph:
                continue
            is_root = name == root
            known: Parts | None = graph.derived.get((Parts, is_root))
            parts = Parts() if known is None else known
            lists = [getattr(parts, each.name) for each in fields(Parts)]
            census = self.censuses[name] = Census(*lists, name=name, graph=graph, is_root=is_root)
            if known is None:
                faults = list(_faults(census, right[is_root]))
                self.faults.extend(faults)
                if not faults:
                    graph.derived[Parts, is_root] = parts
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
    graph = census.graph
    for part in ("inputs", "nodes"):
        if type(getattr(graph, part)) is not tuple:
            yield "well-formed", Finding(f"its {part} are {short(getattr(graph, part))}, not a tuple", census.name)
            return
    where: dict[str, int] = {}
    for index, value in enumerate((*graph.inputs, *graph.nodes), -len(graph.inputs)):
        if type(name := getattr(value, "name", None)) is str:
            where.setdefault(name, index)
    at = At(census, where)
    for index, formal in enumerate(graph.inputs, -len(graph.inputs)):
        if type(formal) is Input and formal.name and where.get(formal.name) == index and _is_plain(formal.meta):
            continue
        at.index = index
        for rule, message in _broken(INPUT_RULES, formal, at):
            yield (
                rule,
                Finding(f"input {getattr(formal, 'name', index)}: {message}", census.name, INPUTS, getattr(formal, "name", None)),
            )
    last: Any = ()
    for index, node in enumerate(graph.nodes):
        try:
            is_right = _is_right(node, index, at, right)
        except Exception:  # noqa: BLE001  garbage that cannot be compared, hashed or counted
            is_right = False
        if not is_right:
            at.index = index
            wrong = _broken(NODE_RULES, node, at)
            yield from [(rule, census.at(index, message)) for rule, message in wrong]
            if wrong:
                continue
            right.add(id(node.do))
            named = [(index, leaf.graph) for arg in _arguments(node) for leaf in leaves(arg) if type(leaf) is Body]
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
    yield from [(rule, census.at(at.index, message)) for rule, message in _broken(OUTPUT_RULES, result, at)]


def _is_right(node: Any, index: int, at: At, right: set[int]) -> bool:
    # One look at what nearly all nodes have; it may be False of a node that breaks no rule.
    where = at.where
    if type(node) is not Node or id(node.do) not in right or where.get(node.name) != index or type(node.args) is not tuple:
        return False
    if id(node.stack) not in right and not _is_stack(node.stack, at, right):
        return False
    if type(node.do) is Get and (node.args or node.kwargs != ()):
        return False
    for arg in node.args:
        if type(arg) is Ref:
            if where.get(arg.name, index) >= index:
                return False
        elif type(arg) not in PLAIN and not _is_flat(arg, index, where):
            return False
    if node.kwargs:
        if type(node.kwargs) is not tuple or len(dict(node.kwargs)) < len(node.kwargs):
            return False
        for key, arg in node.kwargs:
            if type(key) is not str or (type(arg) not in PLAIN and not _is_flat((arg,), index, where)):
                return False
    elif type(node.kwargs) is not tuple:
        return False
    return _is_plain(node.meta)


def _is_plain(meta: Any) -> bool:
    if type(meta) is not MappingProxyType or type(meta.get("val")) not in PLAIN_VALUES or not STRING.issuperset(map(type, meta)):
        return False
    return type(meta.get("stack_trace")) in TEXT


def _is_stack(stack: Any, at: At, right: set[int]) -> bool:
    if type(stack) is not tuple:
        return False
    new = [frame for frame in stack if id(frame) not in right]
    if not all(map(IS_FRAME, new)) or any(True for _ in stacks(Node("", Op(""), (), (), stack), at)):
        return False
    right.update(map(id, new), (id(stack),))  # the program holds them, so no other object gets their ids meanwhile
    return True


def _is_flat(arg: Any, index: int, where: Mapping[str, int]) -> bool:
    if type(arg) is not tuple and type(arg) is not Items:
        return False
    for part in arg:
        if type(part) is Ref:
            if where.get(part.name, index) >= index:
                return False
        elif type(part) not in PLAIN:
            return False
    return True


STRING = frozenset({str})
TEXT = frozenset({str, type(None)})


def _broken(rules: Mapping[str, Local], value: Any, at: At) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, check in rules.items():
        try:
            found += [(name, message) for message in check(value, at)]
        except Exception as error:  # noqa: BLE001  garbage that cannot be compared, hashed or printed is reported, not raised
            found.append((name, f"it cannot be read: {type(error).__name__}: {error}"))
        if found and name == "well-formed":
            break  # the others would be asked of garbage
    return found


def _arguments(node: Node) -> list[Any]:
    return [*node.args, *[value for _, value in node.kwargs]]


IS_INPUT, IS_FRAME = accepts(Input), accepts(Frame)


def input_types(formal: Any, at: At) -> Iterator[str]:  # noqa: ARG001
    """Find an input that is none, and fields of it that have another type."""
    if type(formal) is not Input:
        yield f"it is {short(formal)}, not an Input"
    elif not IS_INPUT(formal):
        yield from type_faults(formal)


def node_types(node: Any, at: At) -> Iterator[str]:  # noqa: ARG001
    """Find a node that is none, and fields of it that have another type."""
    if type(node) is not Node:
        yield f"it is {short(node)}, not a Node"
        return
    yield from type_faults(node)
    if type(node.args) is not tuple:
        yield f"args is {short(node.args)}, not a tuple"
    if type(node.kwargs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in node.kwargs):
        yield f"kwargs is {short(node.kwargs)}, not a tuple of pairs"
    if type(node.do) is Get and any(type(given) is not tuple or given for given in (node.args, node.kwargs)):
        yield "a read takes no arguments"


def names(value: Node | Input, at: At) -> Iterator[str]:
    """Find a second value of a name."""
    first, inputs = at.where[value.name], len(at.census.graph.inputs)
    if first != at.index:
        yield f"the name {value.name!r} is taken already by {f'node {first}' if first >= 0 else f'input {first + inputs}'}"


def kinds(node: Node, at: At) -> Iterator[str]:
    """Find arguments of a kind that no argument has, and such that nest too deep; a graph is no result."""
    is_output = at.index == len(at.census.graph.nodes)
    for arg in _arguments(node):
        if (fault := depth_fault(arg)) is not None:
            yield f"among its arguments is {short(arg)}: {fault}"
        for leaf in leaves(arg):
            if not is_argument(leaf) or (is_output and type(leaf) is Body):
                yield f"among {'what the graph returns' if is_output else 'its arguments'} is {short(leaf)}"


def _used(node: Node) -> list[str]:
    return [leaf.name for arg in _arguments(node) for leaf in leaves(arg) if type(leaf) is Ref and type(leaf.name) is str]


def defined(node: Node, at: At) -> Iterator[str]:
    """Find uses of values that the graph does not have."""
    yield from [f"it uses {name!r}, which its graph does not define" for name in _used(node) if name not in at.where]


def earlier(node: Node, at: At) -> Iterator[str]:
    """Find uses of values that are made later."""
    for name in _used(node):
        later = at.where.get(name, at.index - 1) - at.index
        if later >= 0:
            yield f"it uses {name!r}, " + (f"which is defined {later} nodes later" if later else "its own result")


def keywords(node: Node, at: At) -> Iterator[str]:  # noqa: ARG001
    """Find keywords that are no strings, and second ones."""
    keys = [key for key, _ in node.kwargs]
    yield from [f"it has the keyword {short(key)}, not a string" for key in keys if type(key) is not str]
    yield from [
        f"it has the keyword {key!r} twice" for number, key in enumerate(keys) if type(key) is str and key in keys[:number]
    ]


def stacks(node: Node, at: At) -> Iterator[str]:
    """Find module calls inside themselves, and in the root paths that are counted from there."""
    stack = node.stack
    if len(set(stack)) < len(stack):
        yield f"its stack enters {next(frame for frame in stack if stack.count(frame) > 1)} twice"
    for frame in stack if at.census.is_root else ():
        if frame.path.startswith(FROM_ROOT):
            yield f"its stack has {frame}: in the root every path is counted from the root already"


PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that need no second look."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""What no node can have as its value: code, modules, unordered sets and parts of a program."""


def metas(value: Node | Input, at: At) -> Iterator[str]:  # noqa: ARG001
    """Find meta that is no mapping from strings, and values in it that no node can have."""
    meta: Any = value.meta
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


Local = Callable[[Any, At], Iterator[str]]
"""From an input, a node or the output as one, and its place to what is wrong with it."""

INPUT_RULES: Mapping[str, Local] = {"well-formed": input_types, "unique-names": names, "meta": metas}
OUTPUT_RULES: Mapping[str, Local] = {
    "argument-kinds": kinds, "defined-values": defined, "earlier-values": earlier,
}  # fmt: skip
NODE_RULES: Mapping[str, Local] = {
    "well-formed": node_types, "unique-names": names, **OUTPUT_RULES, "keywords": keywords, "stacks": stacks,
    "meta": metas,
}  # fmt: skip
"""The local rules, by the names that ``RULES`` describes them under."""
