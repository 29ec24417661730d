"""``expand``: copy shared bodies so that each call has its own, the inverse of ``deduplicate``.

The calls are visited in order of execution.  Each gets a copy of its body and a call number that is unique in its module.  The
first call of a body keeps it, so a program without shared bodies is unchanged.  Names inside bodies stay, because each body is a
separate scope; but a read named relative to its module, as ``deduplicate`` names it, gets the exporter's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define

from ..ir.arguments import Arg, Body
from ..ir.calls.call_graph import times_called
from ..ir.calls.parts import part_names
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Call, Frame, Get, Graph, Node, Op
from ..ir.inference import CallValues, Run
from ..ir.names import Names, join, word_of
from ..ir.own_operators import is_boundary
from ..ir.persistent import pmap
from ..ir.program import Program
from ..ir.state import exporter_name
from .call_numbers import CallNumbers, stacked_calls
from .shared_bodies import bodies_before_callers, is_named_after, with_names
from .transformation import UNLIMITED, Fuel, transformation

LIMIT = 1_000_000
"""The default limit on nodes: shared bodies multiply; 2 ** n calls need only n graphs."""


@transformation(
    proven=True,
    forgets={"deduplicated"},
    inverse="deduplicate",
    laws=[
        "deduplicating gives back the program that was deduplicated",
        "no two calls have one body, and no two calls of a module one number",
        "the digest of the program stays",
    ],
)
def expand(program: Program, *, at_most: int = LIMIT, fuel: Fuel = UNLIMITED) -> Program:
    """Copy shared bodies so that each call has its own body.

    Before::

        y = call layers.0 -> Layer (x);  z = call layers.1 -> Layer (y)

    After::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    Calls of one module get distinct numbers in order of execution.  Bodies of operators are copied, too.  Fake values that differ
    between the calls of a shared body, which has none of them, are inferred for each call where operators allow it (``infer``).
    A read of ``weight`` named ``weight`` gets the exporter's name in its copy: ``p_layers_1_weight``.

    Args:
        program: a program at any stage.
        at_most: the maximum number of nodes in the result.
        fuel: everything is one rewrite.

    Returns:
        The program with one graph for each call.  The first call in order of execution keeps the id of the body, unless no module
        has this path.

    Raises:
        UnsupportedProgram: the result would have more than ``at_most`` nodes.

    >>> import purefx as px
    >>> body = px.Graph((px.Input("a"),), (), px.Ref("a"))
    >>> calls = [px.Node(n, px.Call(px.Frame(m), "f"), (px.Ref("x"),)) for n, m in (("y", "f"), ("z", "g"))]
    >>> main = px.Graph((px.Input("x"),), tuple(calls), (px.Ref("z"),))
    >>> px.expand(px.Program.of({"": main, "f": body})).order
    ('', 'f', 'g')
    """
    made = own_bodies(program, at_most=at_most)
    return made if made is program or fuel.burn("copy shared bodies") else program


def own_bodies(program: Program, *, at_most: int, keep: frozenset[str] = frozenset()) -> Program:
    """Return the program with a body for each call; the same object if no body is shared.

    Args:
        program: a program at any stage.
        at_most: the maximum number of nodes in the result.
        keep: bodies of operators that stay shared; their contents must not depend on the module path.
    """
    if len(program.order) == 1:
        return program
    bodies_before_callers(program)
    counts = {name: count for name, count in times_called(program).items() if count}
    size = sum(count * len(program.graphs[name].nodes) for name, count in counts.items())
    if size > at_most:
        raise UnsupportedProgram(
            f"with a body for every call the program would have {size} nodes, more than {at_most}, because its shared bodies "
            "multiply; pass a larger at_most if they fit in memory"
        )
    work = _Expansion(program, counts, keep)
    made = program.with_graphs(work.graphs(), only=True)
    return (
        made
        if len(work.numbers.signatures) == len(program.call_signatures)
        else made.evolve(call_signatures=pmap(work.numbers.signatures))
    )


@define
class _Level:
    """One body of the result, while its nodes are copied."""

    name: str
    graph: Graph
    path: str
    """The path of its module."""
    call: Frame
    """The module call that runs it."""
    values: Run
    """Its fake values in this call."""
    rest: Iterator[int]
    """The numbers of the remaining nodes that call bodies or pass them to operators."""
    nodes: list[Node]


class _Expansion:
    """One walk over all calls in order of execution, with a stack of open bodies."""

    def __init__(self, program: Program, counts: Mapping[str, int], keep: frozenset[str]) -> None:
        self.program = program
        self.counts = counts
        self.keep = keep
        self.values = CallValues(program)
        self.ids = Names(program.graphs)
        self.assigned: set[str] = set()
        """Graphs already assigned to a call under their original id."""
        self.called: set[Frame] = set()
        """Calls of bodies that have their number."""
        # The numbers of calls that stay flat are taken.
        self.numbers = CallNumbers(program, stacked_calls(program))
        called = {callee for name in counts for callee in program.graphs[name].called}
        self.has_flat_calls = any(
            node.stack for name in called for node in program.graphs[name].nodes
        )
        """Whether a called body has calls in the stacks of its nodes."""
        self.is_split = bool(part_names(program))
        self.paths = program.types
        self.slots = dict(program.state.slots.items())
        self.levels: list[_Level] = []
        self.done: dict[str, Graph] = {}

    def graphs(self) -> dict[str, Graph]:
        """Return the graphs of the result."""
        self._open(self.program.root, self.program.root, "", self.values.root, Frame(""))
        while self.levels:
            level = self.levels[-1]
            number = next(level.rest, None)
            if number is None:
                self.done[level.name] = level.graph.with_nodes(self.levels.pop().nodes)
                continue
            node = level.nodes[number]
            level.nodes[number] = (
                self._called(node, node.do, level)
                if type(node.do) is Call
                else self._operator(node, level)
            )
        return self.done

    def _open(
        self, source: str, name: str, path: str, values: Run, call: Frame, *, is_called: bool = True
    ) -> None:
        # A body that is called once, or stays shared, keeps its metadata.
        stays = self.counts[source] == 1 or source in self.keep
        graph = self.program.graphs[source] if stays else self._own(values.body, path)
        if is_called and self.has_flat_calls:
            graph = self.numbers.numbered(graph, path, call)
        calling = {id(node) for node in graph.callers}
        if calling:
            numbers = [number for number, node in enumerate(graph.nodes) if id(node) in calling]
            nodes = list(graph.nodes)
            self.levels.append(_Level(name, graph, path, call, values, iter(numbers), nodes))
        else:
            self.done[name] = graph

    def _own(self, graph: Graph, path: str) -> Graph:
        # A copy belongs to one module, so its reads can be named relative to the root.
        wanted: dict[str, str] = {}
        for node in () if self.is_split else graph.nodes:
            do = node.do
            if type(do) is Get and is_named_after(node.name, do.slot):
                place = join(path, do.slot)
                if place in self.slots:
                    wanted[node.name] = exporter_name(place, self.slots[place])
            elif type(do) is Op and do.name == f"purefx.{node.name}" and is_boundary(node):
                wanted[node.name] = f"{word_of(path)}_{node.name}"
        return with_names(graph, wanted)

    def _called(self, node: Node, call: Call, level: _Level) -> Node:
        path = join(level.path, call.instance.path)
        inside = node.stack[-1] if node.stack else None
        outer = Frame(join(level.path, inside.path), inside.call) if inside else level.call
        frame = self._numbered(Frame(path, call.instance.call), outer)
        # The id of a deduplicated body is not a module path; copies are named after their modules.
        one = (
            call.graph.partition("@")[0] in self.paths
            or not self.paths
            or self.counts[call.graph] == 1
        )
        name = self._id(call.graph, str(frame), keeps=one)
        values = self.values.inner(level.values, node, call.graph)
        self._open(call.graph, name, path, values, frame)
        if name == call.graph and frame.call == call.instance.call:
            return node
        return node.evolve(do=Call(Frame(call.instance.path, frame.call), name))

    def _operator(self, node: Node, level: _Level) -> Node:
        sources = node.bodies
        opened = [
            (source, source if source in self.keep else self._id(source, source))
            for source in sources
        ]
        for source, name in reversed(opened):
            if source not in self.keep or source not in self.assigned:
                values = self.values.inner(level.values, node, source)
                self._open(source, name, level.path, values, level.call, is_called=False)
                self.assigned.add(source)
        ids = iter([name for _, name in opened])

        def body(ref: Arg) -> Arg:
            return ref if type(ref) is not Body or (name := next(ids)) == ref.graph else Body(name)

        return node.with_refs(body)

    def _numbered(self, frame: Frame, inside: Frame) -> Frame:
        # Deduplication gave equal calls the number of the first.  A taken number is replaced by the smallest free one, as if the
        # calls were counted in order of execution.
        frame = self.numbers.claimed(frame, inside, is_another=frame in self.called)
        self.called.add(frame)
        return frame

    def _id(self, graph: str, wanted: str, *, keeps: bool = True) -> str:
        keeps = keeps and graph not in self.assigned
        self.assigned.add(graph)
        return graph if keeps else self.ids.fresh(wanted)
