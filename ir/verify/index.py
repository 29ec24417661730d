"""The indices of a program and of its graphs for the rules, and the local rules: those about one value of one graph.

One walk checks all local rules; its findings are cached on the graph, which is immutable.  The other rules run for well-formed
programs only, so they need no guards against garbage.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import Factory, define, evolve, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import Body, Items, Record, Ref
from ..forks import cached_property
from ..graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from ..names import FROM_ROOT
from ..persistent import derived
from ..program import Program
from ..tensors import value_in
from ..torch_private import FakeTensor, has_fixed_sizes
from .findings import (
    INPUTS,
    PLAIN,
    Finding,
    depth_fault,
    frame_faults,
    is_argument,
    leaves,
    short,
    type_fault,
)

Fault = tuple[str, Finding]
"""The name of a rule, and a finding."""


@frozen
class GraphIndex:
    """The parts of a graph that rules read, with the positions of their nodes."""

    graph: Graph
    name: str = ""
    is_root: bool = False
    callees: list[tuple[int, str]] = Factory(list)
    """The called graphs and the bodies of operators."""
    calls: list[tuple[int, Node, Call]] = Factory(list)
    gets: list[tuple[int, Node, Get, Any]] = Factory(list)
    """Each read, with the dtype and the shape of its fake value if they are fixed."""
    projections: list[tuple[int, Node]] = Factory(list)
    stacks: dict[int, tuple[int, Stack]] = Factory(dict)
    """Every distinct stack object by ``id``, with the position of its first node."""
    ops: dict[int, tuple[Op, int]] = Factory(dict)
    """Every distinct ``Op`` object by ``id``, with its first node."""

    def at(self, index: int, message: str) -> Finding:
        """Return a finding about a node, or about the output, whose position is after the last node."""
        name = self.graph.nodes[index].name if index < len(self.graph.nodes) else "output"
        return Finding(message, self.name, index, name)


@derived
def _index_of(graph: Graph) -> GraphIndex:
    # The name is added later: a graph does not know its own.
    parts, last = GraphIndex(graph), None
    for index, node in enumerate(graph.nodes):
        do = node.do
        if type(do) is Get:
            value = value_in(node.meta)
            is_fixed = (
                type(value) is FakeTensor
                and value.layout is torch.strided
                and has_fixed_sizes(value)
            )
            parts.gets.append((index, node, do, (value.dtype, value.shape) if is_fixed else None))
        elif type(do) is Call:
            parts.calls.append((index, node, do))
            parts.callees.append((index, do.graph))
        else:
            if id(do) not in parts.ops:
                parts.ops[id(do)] = do, index
            if do.name == "operator.getitem":
                parts.projections.append((index, node))
            if do.effects.through_bodies:
                parts.callees.extend([(index, name) for name in node.callees])
        if node.stack is not last:
            last = node.stack
            parts.stacks.setdefault(id(last), (index, last))
    return parts


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
        self.slots = dict(program.state.pairs)
        """The state by name."""
        right = {True: set[Any](), False: set[Any]()}
        for name, graph in program.graphs.items():
            self.faults.extend(
                _faults(graph, name, right[is_root := name == program.root], is_root=is_root)
            )
        if program.root not in program.graphs:
            self.faults.append(
                ("root", Finding(f"the root is {program.root!r}, which is not in program.graphs"))
            )
        todo = [] if self.faults else [program.root]
        while todo:
            name = todo.pop()
            if name in program.graphs and name not in self.graphs:
                each = self.graphs[name] = evolve(
                    _index_of(program.graphs[name]), name=name, is_root=name == program.root
                )
                for key, (op, index) in each.ops.items():
                    self.ops.setdefault(key, (op, each, index))
                todo.extend([callee for _, callee in reversed(each.callees)])

    @cached_property
    def op_names(self) -> set[str]:
        """The names of the operators that its nodes call."""
        return {op.name for op, _, _ in self.ops.values()}

    @property
    def main(self) -> GraphIndex:
        """The root graph."""
        return self.graphs[self.program.root]


def _faults(graph: Graph, name: str, right: set[Any], *, is_root: bool) -> list[Fault]:
    key = _faults, is_root
    found = [] if key in graph.derived else list(_check_graph(graph, name, right, is_root=is_root))
    if not found:
        graph.derived[key] = True
    return found


def _check_graph(graph: Graph, name: str, right: set[Any], *, is_root: bool) -> Iterator[Fault]:
    if type(graph.inputs) is not tuple or type(graph.nodes) is not tuple:
        yield (
            "well-formed",
            Finding(
                f"its inputs are {short(graph.inputs)}, its nodes {short(graph.nodes)}, not tuples",
                name,
            ),
        )
        return
    at = _At(graph, is_root, right)
    values = (*graph.inputs, *graph.nodes, Node("output", Op("return"), (graph.output,)))
    for index, value in enumerate(values, -len(graph.inputs)):
        found: list[tuple[str, str]] = []  # includes those before an exception
        try:
            _add_faults(found, value, index, at)
        except Exception as error:  # noqa: BLE001  garbage may raise when compared, hashed or printed; report it
            found.append(("well-formed", f"it cannot be read: {type(error).__name__}: {error}"))
        for rule, message in found:
            key = getattr(value, "name", None)
            unnamed = f"input {index + len(graph.inputs)}" if index < 0 else f"node {index}"
            yield (
                rule,
                Finding(message, name, max(index, INPUTS), key if type(key) is str else unnamed),
            )


@define
class _At:
    """A graph whose local rules are checked."""

    graph: Graph
    is_root: bool
    right: set[Any]
    """The ids of stacks, frames and operations that are right; the program keeps them alive."""
    seen: set[str] = Factory(set)
    """The names of the well-formed values before this one."""


@derived
def _places(graph: Graph) -> dict[str, int]:
    # The position of each value, negative for inputs; malformed values have one, too, so that their users are not reported.
    values = [*enumerate((*graph.inputs, *graph.nodes), -len(graph.inputs))]
    return {
        key: index
        for index, value in reversed(values)
        if type(key := getattr(value, "name", None)) is str
    }


def _add_faults(found: list[tuple[str, str]], value: Any, index: int, at: _At) -> None:
    # Add the rules that an input, a node, or the output breaks, with messages.
    right, seen, wanted = at.right, at.seen, Input if index < 0 else Node
    kind: Any = type(value)
    is_named = kind is wanted and type(value.name) is str and value.name
    is_usual = is_named and (
        index < 0 or (id(value.do) in right and type(value.args) is type(value.kwargs) is tuple)
    )
    if not is_usual or (index >= 0 and value.kwargs):
        fault = type_fault(value, wanted, "it", right)
        if fault is not None:
            found.append(("well-formed", fault))
            return
    is_output = index == len(at.graph.nodes)
    if value.name in seen and not is_output:
        first = _places(at.graph)[value.name]
        other = f"node {first}" if first >= 0 else f"input {first + len(at.graph.inputs)}"
        found.append(("unique-names", f"the name {value.name!r} is used already by {other}"))
    _add_meta_faults(found, value.meta)
    args: Any = ()
    if index >= 0:
        args = (*value.args, *[part for _, part in value.kwargs]) if value.kwargs else value.args
        if id(value.stack) not in right:
            found.extend(_stack_faults(value.stack, at))
        if args and type(value.do) is Get:
            found.append(("well-formed", "a read takes no arguments"))
        if at.is_root and type(value.do) is not Op and (fault := _root_fault(value.do)):
            found.append(("stacks", fault))
    for arg in args:
        kind = type(arg)
        if kind in PLAIN or (kind is Ref and type(arg.name) is str and arg.name in seen):
            continue  # most arguments
        if (kind is Items or kind is tuple) and PLAIN.issuperset(map(type, arg)):
            continue  # most lists are sizes
        holder = "the output of the graph contains" if is_output else "its arguments contain"
        if kind is not Ref and (fault := depth_fault(arg)) is not None:
            found.append(("argument-kinds", f"{holder} {short(arg)}: {fault}"))
        for leaf in leaves(arg):
            if not is_argument(leaf):
                found.append(("argument-kinds", f"{holder} {short(leaf)}"))
            elif type(leaf) is Ref and leaf.name not in seen:
                place = _places(at.graph).get(leaf.name)
                if place is None:
                    found.append(
                        (
                            "defined-values",
                            f"it uses {leaf.name!r}, which its graph does not define",
                        )
                    )
                elif place >= index:
                    text = (
                        f"which is defined {place - index} nodes later"
                        if place > index
                        else "its own result"
                    )
                    found.append(("earlier-values", f"it uses {leaf.name!r}, {text}"))
            elif type(leaf) is Body and not value.declared.through_bodies:
                found.append(
                    (
                        "argument-kinds",
                        f"{holder} {short(leaf)}, but it has no effects with through_bodies",
                    )
                )
    seen.add(value.name)


def _root_fault(do: Get | Call) -> str:
    path = do.slot if type(do) is Get else do.instance.path
    if not path.startswith(FROM_ROOT):
        return ""
    what = "reads" if type(do) is Get else "calls"
    return f"it {what} {path!r}: in the root graph, paths start at the root without {FROM_ROOT!r}"


def _stack_faults(stack: Any, at: _At) -> list[tuple[str, str]]:
    right = at.right
    if type(stack) is not tuple:
        return [("well-formed", f"it.stack is {short(stack)}, not a tuple")]
    for number, frame in enumerate(stack):
        if (
            id(frame) not in right
            and (fault := type_fault(frame, Frame, f"it.stack[{number}]", right)) is not None
        ):
            return [("well-formed", fault)]
        if at.is_root and frame.path.startswith(FROM_ROOT):
            return [
                (
                    "stacks",
                    f"its stack has {frame}: in the root graph, paths start at the root without {FROM_ROOT!r}",
                )
            ]
    if len(set(stack)) < len(stack):
        return [
            (
                "stacks",
                f"its stack has {next(frame for frame in stack if stack.count(frame) > 1)} twice",
            )
        ]
    right.add(id(stack))
    return []


PLAIN_VALUES = frozenset(
    {FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC}
)
"""Types of ``val`` that are always valid."""

MAPPINGS = (types.MappingProxyType, dict)
"""The usual types of meta, which ``isinstance`` recognizes faster than a ``Mapping``."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""Types that no node can return: code, modules, unordered sets and parts of a program."""


def _add_meta_faults(found: list[tuple[str, str]], meta: Any) -> None:
    # Meta that is not a mapping from strings, and impossible values in it.
    if not isinstance(meta, MAPPINGS) and not isinstance(meta, Mapping):
        found.append(("meta", f"meta is {short(meta)}, not a mapping"))
        return
    if not {str}.issuperset(map(type, meta)):
        found.extend(
            [
                ("meta", f"meta has the key {short(key)}, not a string")
                for key in meta
                if type(key) is not str
            ]
        )
    value, trace = meta.get("val"), meta.get("stack_trace")
    if type(value) not in PLAIN_VALUES and (absurd := _absurd_part(value)) is not None:
        found.append(
            (
                "meta",
                f"meta['val'] {'is' if absurd is value else 'holds'} {short(absurd, width=90)}",
            )
        )
    if trace is not None and not isinstance(trace, str):
        found.append(("meta", f"meta['stack_trace'] is {short(trace)}, not text"))


def _absurd_part(value: Any) -> Any:
    # A part of a value that no node can return, or None.
    todo, opened = [value], set[int]()
    while todo:
        part = todo.pop()
        if isinstance(part, ABSURD):
            return part
        if isinstance(part, tuple | list | Items | Mapping) and id(part) not in opened:
            opened.add(id(part))  # a list can contain itself
            todo.extend(part.values() if isinstance(part, Mapping) else part)  # type: ignore[reportUnknownMemberType]
    return None
