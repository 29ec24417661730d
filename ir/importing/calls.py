"""Place the nodes of an exported program: regions, bodies of operators, and the boundaries of preserved calls.

A node that the exporter leaves without a module stack gets the stack of the innermost call around its neighbours.
Preserved call signatures become boundary nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from attrs import evolve
from torch.export.graph_signature import ConstantArgument

from ..arguments import Arg, Ref
from ..effects.resolved import PASSING
from ..errors import UnsupportedProgram
from ..graph import Frame, Graph, Node, Op, Stack, common_prefix
from ..names import last_name, relative, way_to, word_of
from ..own_operators import GIVES, TAKES
from ..program import CallSignature
from ..rewriter import Relocation, Rewriter
from ..torch_private import OpOverload, schema_of

TRACEPOINT = "higher_order._export_tracepoint"

REGIONS = PASSING | {"higher_order.hints_wrapper"}
"""Operators that the exporter cuts out of the traced graph: the stacks inside are the traced ones."""


def settle_bodies(graphs: dict[str, Graph], unknown: Mapping[str, frozenset[str]]) -> None:
    """Put region operators where their bodies are, and make the stacks in bodies relative; changes ``graphs``.

    Args:
        graphs: all graphs that were read, each after the one that names it.
        unknown: for each graph, the nodes without a stack from the exporter.
    """
    for name in reversed(list(graphs)):
        graphs[name] = _without_tracepoints(graphs[name]) if name else graphs[name]
        graphs[name] = _with_regions_placed(graphs, name, unknown)
    bases: dict[str, Stack] = {}
    for name in list(graphs):
        base = bases.get(name)
        for node in graphs[name].nodes:
            for inner in node.bodies:
                bases.setdefault(inner, node.stack)
        if base:
            graphs[name] = _inside(graphs[name], base)


def _without_tracepoints(graph: Graph) -> Graph:
    edit = Rewriter(graph)
    marked: dict[str, tuple[Arg, ...]] = {}
    for node in graph.nodes:
        whole, index = node.item
        if node.op_name == TRACEPOINT:
            marked[node.name] = node.args
            edit.erase(node.name)
        elif whole in marked:
            edit.drop(node.name, marked[whole][index])
    return edit.graph()


def _with_regions_placed(
    graphs: Mapping[str, Graph], name: str, unknown: Mapping[str, frozenset[str]]
) -> Graph:
    graph = graphs[name]
    moved: dict[str, Stack] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        whole, _ = node.item
        if node.op_name in REGIONS:
            inner = [
                (name, part)
                for name in node.bodies
                if name in graphs
                for part in graphs[name].nodes
            ]
            if inside := [
                part.stack for name, part in inner if part.name not in unknown.get(name, ())
            ]:
                moved[node.name] = common_prefix(inside)
        elif whole in moved:
            moved[node.name] = moved[whole]
        nodes.append(node.evolve(stack=moved.get(node.name)))
    return graph.with_nodes(nodes)


def _inside(graph: Graph, base: Stack) -> Graph:
    # Stacks in the body become relative to the calls around the operator; a node with a different stack gets none.
    count, there = len(base), Relocation(lambda path: relative(path, base[-1].path))
    stacks = [
        there.stack(node.stack[count:]) if node.stack[:count] == base else ()
        for node in graph.nodes
    ]
    return graph.with_nodes(
        [node.evolve(stack=stack) for node, stack in zip(graph.nodes, stacks, strict=True)]
    )


def is_from_region(meta: Mapping[str, Any]) -> bool:
    """Return whether the meta of a node shows that a region operator made it.

    >>> is_from_region({"torch_fn": ("wrap_with_set_grad_enabled", "")}), is_from_region({})
    (True, False)
    """
    origin: Any = meta.get("torch_fn")
    return isinstance(origin, tuple) and bool(origin) and str(origin[0]).startswith("wrap_with_")


def place_strays(graph: Graph, strays: Collection[str], outside: Collection[str]) -> list[Node]:
    """Put each stray node into the innermost call that contains its neighbours, and return the nodes.

    Args:
        graph: the graph.
        strays: the names of nodes in no call.
        outside: values that the graph takes from the caller or returns.

    >>> from purefx.ir import Frame, Op, Ref
    >>> neg, stack = Op("toy.neg"), (Frame("m"),)
    >>> a, b, c = Node("a", neg, (), (), stack), Node("b", neg, (Ref("a"),)), Node("c", neg, (Ref("b"),), (), stack)
    >>> place_strays(Graph((), (a, b, c), ()), {"b"}, ())[1].stack == stack
    True
    """
    known = {node.name: node.stack for node in graph.nodes if node.name not in strays}
    placed: list[Node] = []
    for is_stray, group in groupby(graph.nodes, lambda node: node.name in strays):
        run = list(group)
        stack = _around(run, known, graph.users, outside) if is_stray else ()
        placed += [evolve(stray, stack=stack) for stray in run] if stack else run
    return placed


def place_boundaries(nodes: list[Node]) -> list[Node]:
    """Put the boundaries of regions into the innermost call that contains their neighbours, and return the nodes.

    Args:
        nodes: the nodes of a graph.

    >>> from purefx.ir import Effects, Frame, Op
    >>> neg, leave, stack = Op("toy.neg"), Op("toy.leave", Effects(scope=-1)), (Frame("m"),)
    >>> nodes = [Node("a", neg, (), (), stack), Node("b", leave), Node("c", neg, (), (), stack)]
    >>> place_boundaries(nodes)[1].stack == stack
    True
    """
    groups = groupby(nodes, lambda node: node.declared.scope != 0)
    runs = [(is_boundary, list(run)) for is_boundary, run in groups]
    placed: list[Node] = []
    for number, (is_boundary, run) in enumerate(runs):
        if is_boundary and 0 < number < len(runs) - 1:
            inner = common_prefix([runs[number - 1][1][-1].stack, runs[number + 1][1][0].stack])
            run = [
                node.evolve(stack=inner) if len(inner) > len(node.stack) else node for node in run
            ]
        placed += run
    return placed


def _around(
    run: list[Node],
    known: Mapping[str, Stack],
    users: Mapping[str, Sequence[str]],
    outside: Collection[str],
) -> Stack:
    beside = {name for node in run for name in (node.name, *node.refs(), *users.get(node.name, ()))}
    if any(name in outside for name in beside if name not in known):
        return ()
    return common_prefix([known[name] for name in beside if name in known])


Records = Mapping[Frame, Any]


def read_call_signatures(entries: Iterable[Any]) -> tuple[dict[Frame, CallSignature], Records]:
    """Return the preserved call signatures of an export, and the exporter's records that name the values.

    Args:
        entries: ``ep.module_call_graph``; the first is the root's.
    """
    signatures: dict[Frame, CallSignature] = {}
    records: dict[Frame, Any] = {}
    for entry in list(entries)[1:]:
        record = entry.signature
        if record is not None:
            counts = record.in_spec.num_leaves, record.out_spec.num_leaves
            if (len(record.inputs), len(record.outputs)) != counts:
                continue  # a strict export records a module with two names under the first, and leaves the second record empty
            frame = frame_of(entry.fqn)
            if "@" in frame.path:
                raise UnsupportedProgram(
                    f"torch preserves no call signature of {frame.path!r}, a name with @; rename the module"
                )
            records[frame] = record
            signatures[frame] = CallSignature(
                record.in_spec, record.out_spec, tuple(record.forward_arg_names or ())
            )
    return signatures, records


def frame_of(fqn: str) -> Frame:
    """Return the call that an entry of the exporter describes.

    >>> str(frame_of("a.lin@1")), frame_of("user@host").path
    ('a.lin@1', 'user@host')
    """
    path, _, call = fqn.rpartition("@")
    return Frame(path, int(call)) if path and call.isdecimal() else Frame(fqn)


def check_paths(paths: Iterable[str]) -> None:
    """Raise if the name of a module reads as a later call of another module.

    Args:
        paths: of modules.

    Raises:
        UnsupportedProgram: a name does; the message has it.

    >>> check_paths(["a.lin", "user@host"])
    """
    for path in paths:
        odd = "@" in path and next(
            (name for name in path.split(".") if frame_of(name).path != name), None
        )
        if odd:
            writes = f"{odd!r} is how the exporter writes a later call of {frame_of(odd).path!r}"
            raise UnsupportedProgram(f"the module {path!r} must be renamed: {writes}")


def with_boundaries(graph: Graph, records: Records, renamed: Mapping[str, str]) -> Graph:
    """Return the root graph with two boundary nodes for each preserved call.

    Args:
        graph: the flat root.
        records: the exporter's records, which name values as the exporter does.
        renamed: values that import renames: the results of in-place operators on inputs.
    """
    if not records:
        return graph
    return _Boundaries(_outside(graph, records), renamed).graph_with(records)


def _outside(graph: Graph, records: Records) -> Graph:
    # A value without a stack was placed at its use.  The inputs of a call are made outside of it, for example by an argument
    # whose class computes when it is constructed.
    takers: dict[str, set[Frame]] = {}
    for frame, record in records.items():
        for argument in record.inputs:
            takers.setdefault(str(argument.name), set()).add(frame)

    def outside(node: Node) -> Node:
        if node.name not in takers:
            return node
        return node.evolve(
            stack=tuple(takewhile(lambda frame: frame not in takers[node.name], node.stack))
        )

    return graph.with_nodes(map(outside, graph.nodes))


class _Boundaries:
    def __init__(self, graph: Graph, renamed: Mapping[str, str]) -> None:
        self.graph = graph
        self.edit = Rewriter(graph)
        self.renamed = renamed
        self.spans: dict[Frame, tuple[int, int, Stack]] = {}
        for number, node in enumerate(self.graph.nodes):
            for depth, frame in enumerate(node.stack, 1):
                first, _, stack = self.spans.get(frame, (number, number, node.stack[:depth]))
                self.spans[frame] = (first, number, stack)

    def graph_with(self, records: Records) -> Graph:
        """Return the graph with the nodes of all records in place."""
        for frame, record in records.items():
            inputs, outputs = self._leaves(record.inputs), self._leaves(record.outputs)
            begin, end = self._latest(inputs) + 1, self._latest(outputs)
            if frame not in self.spans:
                stack = self._place(frame)
                pair = [
                    self._node(frame, TAKES, inputs, stack),
                    self._node(frame, GIVES, outputs, stack),
                ]
                self.edit.before(max(begin, end + 1), *pair)
                continue
            first, last, stack = self.spans[frame]
            # An inner call that begins at the same node comes later in the list, and ends earlier.
            self.edit.before(max(first, begin), self._node(frame, TAKES, inputs, stack))
            self.edit.after(
                max(last, end, begin - 1), self._node(frame, GIVES, outputs, stack), first=True
            )
        return self.edit.graph()

    def _leaves(self, arguments: Iterable[Any]) -> tuple[Arg, ...]:
        return tuple([self._result(self._leaf(argument)) for argument in arguments])

    def _leaf(self, argument: Any) -> Arg:
        if isinstance(argument, ConstantArgument):
            return argument.value
        if not isinstance(argument.name, str):
            return argument.name  # a size that was a number after all
        name = self.renamed.get(argument.name, argument.name)
        return Ref(name) if name in self.edit.position else None

    def _result(self, leaf: Arg) -> Arg:
        # If an operator also returns new contents of its operands (a decomposed BatchNorm in training), the exporter records
        # the last value, which is not its result.
        item = self.graph.by_name.get(leaf.name) if type(leaf) is Ref else None
        if item is None or item.projection is None:
            return leaf
        whole, index = item.projection
        maker = self.graph.by_name.get(whole)
        if maker is None or not _is_written(maker, index):
            return leaf
        users = self.graph.users_of(maker.name)
        first = [node.name for node in users if node.do == item.do and node.args[1:] == (0,)]
        return Ref(first[0]) if first else leaf

    def _latest(self, leaves: tuple[Arg, ...]) -> int:
        return max(
            (self.edit.position[leaf.name] for leaf in leaves if type(leaf) is Ref), default=-1
        )

    def _place(self, frame: Frame) -> Stack:
        # A call without nodes goes into the nearest called module above it.
        for above in reversed(way_to(frame.path)[:-1]):
            if Frame(above) in self.spans:
                return (*self.spans[Frame(above)][2], frame)
        return (frame,)

    def _node(self, frame: Frame, op: Op, leaves: tuple[Arg, ...], stack: Stack) -> Node:
        word = last_name(op.name)
        return Node(self.edit.names.fresh(word_of(f"{frame.path}.{word}")), op, leaves, (), stack)


def _is_written(node: Node, index: Any) -> bool:
    target = node.target
    results: Any = schema_of(target).returns if isinstance(target, OpOverload) else ()
    return index < len(results) and str(results[index].name).endswith("_out")
