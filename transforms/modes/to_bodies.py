"""``regions_to_bodies``: nodes between two markers become the body of an operator that sets the mode.

One walk over each graph, with the regions that are open; which nodes are a region is decided in ``regions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attrs import define, field, frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.effects.declared import leveled
from ...ir.graph import Get, Graph, Input, Node, Stack, common_prefix
from ...ir.names import Names, is_below
from ...ir.operators import GETITEM
from ...ir.origins import made_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Relocation
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation
from .modes import ENTER, EXIT, SET_GRAD, WITH_AUTOCAST, WITH_GRAD, Modes, is_op

__all__ = ["regions_to_bodies"]

AUTOCAST_TAKES = 4
"""How many arguments autocast takes: device type, dtype, whether it is enabled, whether it keeps casts."""


@frozen
class Region:
    """The nodes between two markers, which have these numbers.

    >>> Region(2, 5, None).has(5), Region(2, 5, None).has(6)
    (True, False)
    """

    first: int
    last: int
    grad: bool | None
    """The gradient mode inside; None for autocast."""

    def has(self, number: int) -> bool:
        """Return whether a node is one of the two markers, or between them."""
        return self.first <= number <= self.last


def regions_of(modes: Modes, name: str, *, refused: frozenset[Region] = frozenset()) -> list[Region]:
    """Return the regions of a graph that can be bodies, in the order in which they begin.

    Args:
        modes: the gradient modes of the program.
        name: the graph.
        refused: regions that are to stay as they are.

    >>> from purefx.ir import Graph, Node, Program
    >>> nodes = Node("a", SET_GRAD, (False,)), Node("b", SET_GRAD, (True,))
    >>> regions_of(Modes(Program.of({"": Graph((), nodes, ())}), grad=True), "")
    [Region(first=0, last=1, grad=False)]
    """
    graph = modes.program.graphs[name]
    if not any(is_op(node, SET_GRAD, ENTER) for node in graph.nodes):
        return []
    before = modes.before(name)
    sets = {number for number, node in enumerate(graph.nodes) if is_op(node, SET_GRAD)}
    if None in before or any(before[k] is not before[k + 1] for k in range(len(graph.nodes)) if k not in sets):
        return []  # a body that it calls leaves another mode than it found, or nobody knows which mode this is
    found = [*_under_autocast(graph), *_of_modes(before, sorted(sets))]
    kept = sorted([one for one in found if one not in refused], key=lambda one: one.first)
    while (fewer := [one for one in kept if _is_legal(one, kept, modes, graph)]) != kept:
        kept = fewer
    return kept


def _under_autocast(graph: Graph) -> Iterator[Region]:
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    for last, node in enumerate(graph.nodes):
        if not is_op(node, EXIT) or len(node.args) != 1 or type(begun := node.args[0]) is not Ref:
            continue
        first = position.get(begun.name, -1)
        made = graph.nodes[first] if first >= 0 else node
        is_plain = is_op(made, ENTER) and not (made.refs() or made.kwargs) and 1 <= len(made.args) <= AUTOCAST_TAKES
        if is_plain and graph.users[begun.name] == (node.name,) and begun.name not in graph.output_refs():
            yield Region(first, last, None)


def _of_modes(before: list[bool | None], sets: list[int]) -> Iterator[Region]:
    # From where the mode is another than that of the graph to where it is that again.  A marker that changes nothing is a region
    # of its own.
    first: int | None = None
    for number in sets:
        mode = before[number + 1]
        if first is None:
            first = number
        if mode is before[0]:
            yield Region(first, number, not before[0])
            first = None


def _is_legal(one: Region, kept: list[Region], modes: Modes, graph: Graph) -> bool:
    inside = range(one.first + 1, one.last)
    if any(is_boundary(graph.nodes[number]) or graph.nodes[number].meta.get("unbacked_bindings") for number in inside):
        return False  # callers know these by name
    if one.grad is None:
        # A marker that stayed in it would not say any more what holds behind it.
        taken = [other for other in kept if other.grad is not None]
        sets = [number for number in inside if is_op(graph.nodes[number], SET_GRAD)]
        if not all(any(other.has(number) for other in taken) for number in sets):
            return False
    if any(one.has(other.first) is not one.has(other.last) and other.has(one.first) is not other.has(one.last) for other in kept):
        return False
    return leveled(modes.level(graph.nodes[number]) for number in inside) == (0, 0)


@transformation(
    proven=True,
    forgets={"deduplicated"},
    inverse="bodies_to_regions",
    laws=[
        "every operator runs in the gradient mode and under the autocast that it ran in, as often, in the same order",
        "no region is left between markers, of those that `bodies_to_regions` writes",
        "where every marker changes the mode of an operator, what it was made of comes back with `bodies_to_regions`",
    ],
)
def regions_to_bodies(program: Program, *, grad: bool = True, fuel: Fuel = UNLIMITED) -> Program:
    """Make bodies of operators of what lies between the markers of a gradient mode, or of autocast.

    Before::

        _set_grad_enabled = torch._C._set_grad_enabled(False)
        y = aten.exp.default(x)
        _set_grad_enabled_1 = torch._C._set_grad_enabled(True)

    After::

        wrap_with_set_grad_enabled = higher_order.wrap_with_set_grad_enabled(False, @$no_grad, x)
        y = operator.getitem(wrap_with_set_grad_enabled, 0)

        graph @$no_grad(x)     y = aten.exp.default(x);  return (y,)

    A tracer of Python writes markers (``torch.compile`` gives its backends such graphs), ``torch.export`` writes bodies.  Regions
    nest as they did.  Markers that change nothing and regions without operators go.  Reads of state stay outside, and become
    operands.

    A body shared by callers in several modes is left as it is, and so are regions that are never closed, that begin in one body
    and end in another, that overlap a level of vmap or another region, that contain the boundary of a preserved
    call, or that make a size that only a run knows.

    Args:
        program: a program at any stage.
        grad: the gradient mode that it is called in.  Bodies restore the mode that they find, markers set this one.
        fuel: a rewrite is one region, bodies before their callers, in the order in which they begin.

    Returns:
        The program with regions as bodies.

    >>> import purefx as px
    >>> from purefx.transforms.modes.modes import SET_GRAD
    >>> off, on = (px.Node(name, SET_GRAD, (mode,)) for name, mode in (("off", False), ("on", True)))
    >>> y = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (off, y, on), (px.Ref("y"),))})
    >>> [node.name for node in px.regions_to_bodies(program).graphs["$no_grad"].nodes]
    ['y']
    """
    modes, ids, made = Modes(program, grad=grad), Names(program.graphs), dict[str, Graph]()
    for name in program.bottom_up:
        regions = regions_of(modes, name)
        if regions and fuel.limited:
            refused = frozenset([one for one in regions if not fuel.burn("region", one.first, "in", repr(name))])
            regions = regions_of(modes, name, refused=refused) if refused else regions
        if regions:
            made.update(_Building(program.graphs[name], regions, ids).run(name))
    return program.with_graphs(made)


@define
class _Open:
    """A region whose end was not met."""

    region: Region
    nodes: list[Node] = field(factory=list)


class _Building:
    """One graph while bodies are made of its regions."""

    def __init__(self, graph: Graph, regions: list[Region], ids: Names) -> None:
        self.nodes = _gathered(graph, regions)
        self.source = graph
        self.ids = ids
        self.names = graph.names()
        self.last = dict.fromkeys(graph.output_refs(), len(graph.nodes))
        for number, node in enumerate(self.nodes):
            for name in node.refs():
                self.last[name] = max(number, self.last.get(name, 0))
        self.metas = graph.metas
        self.reads = {node.name for node in graph.nodes if type(node.do) is Get}
        at = {node.name: number for number, node in enumerate(self.nodes)}
        ends = [(one, at[graph.nodes[one.first].name], at[graph.nodes[one.last].name]) for one in regions]
        self.regions = [Region(first, last, one.grad) for one, first, last in ends]
        self.open: list[_Open] = []
        self.made: list[Node] = []
        self.bodies: dict[str, Graph] = {}

    def run(self, name: str) -> Mapping[str, Graph]:
        """Return the graph and the new bodies, by id."""
        begins = {one.first: one for one in self.regions}
        ends = {one.last: one for one in self.regions}
        modes = [one for one in self.regions if one.grad is not None]
        for number, node in enumerate(self.nodes):
            if number in begins:
                self.open.append(_Open(begins[number]))
            if number in ends:
                self._close(number)
            is_marker = number in begins or number in ends
            if is_marker or (is_op(node, SET_GRAD) and any(one.first < number < one.last for one in modes)):
                continue
            (self.open[-1].nodes if self.open else self.made).append(node)
        return {name: Graph(self.source.inputs, tuple(self.made), self.source.output), **self.bodies}

    def _close(self, end: int) -> None:
        # Bodies return what is used behind them; reads of state are operands, so they stand before the operator.
        done = self.open.pop()
        outside = self.open[-1].nodes if self.open else self.made
        outside += [node for node in done.nodes if node.name in self.reads]
        nodes = [node for node in done.nodes if node.name not in self.reads]
        if not nodes:
            return
        own = {node.name for node in nodes}
        inputs = dict.fromkeys([name for node in nodes for name in node.refs() if name not in own])
        outputs = [node.name for node in nodes if self.last.get(node.name, -1) > end]
        stack = _around(nodes)
        body = Graph(
            tuple([Input(name, value_only(self.metas.get(name, {}))) for name in inputs]),
            _inside(nodes, stack),
            tuple([Ref(name) for name in outputs]),
        )
        outside += self._operator(done.region, body, outputs, stack)

    def _operator(self, region: Region, body: Graph, outputs: list[str], stack: Stack) -> list[Node]:
        do, word = (
            (WITH_AUTOCAST, "$autocast") if region.grad is None else (WITH_GRAD, "$enable_grad" if region.grad else "$no_grad")
        )
        id_ = self.ids.fresh(word)
        self.bodies[id_] = body
        literals = (region.grad,) if region.grad is not None else _with_defaults(self.nodes[region.first].args)
        name = self.names.fresh(do.name.rpartition(".")[2])
        args: tuple[Arg, ...] = (*literals, Body(id_), *[Ref(formal.name) for formal in body.inputs])
        value = tuple([self.metas[output].get("val") if output in self.metas else None for output in outputs])
        taken = [
            Node(output, GETITEM, (Ref(name), index), (), stack, value_only(self.metas.get(output, {})))
            for index, output in enumerate(outputs)
        ]
        markers = self.nodes[region.first], *self.nodes[region.last : region.last + 1]
        meta = MappingProxyType({"val": value, **made_of([marker.meta for marker in markers])})
        return [Node(name, do, args, (), stack, meta), *taken]


def _gathered(graph: Graph, regions: list[Region]) -> tuple[Node, ...]:
    # The results of an operator with several are taken where it runs: a body returns tensors, no tuples.
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    moved: dict[str, list[Node]] = {}
    for number, node in enumerate(graph.nodes):
        whole = (node.projection or ("", 0))[0]
        made = position.get(whole, -1)
        value: Any = graph.nodes[made].meta.get("val") if made >= 0 else None
        if type(value) in (tuple, list) and any(one.has(made) is not one.has(number) for one in regions):
            moved.setdefault(whole, []).append(node)
    if not moved:
        return graph.nodes
    gone = {node.name for nodes in moved.values() for node in nodes}
    kept = [node for node in graph.nodes if node.name not in gone]
    return tuple([one for node in kept for one in (node, *moved.get(node.name, ()))])


def _with_defaults(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    return (*args, *(None, True, None)[len(args) - 1 :])


def _around(nodes: list[Node]) -> Stack:
    # The calls around all nodes; those in modules that are not below the innermost say their paths as they are.
    stack = common_prefix([node.stack for node in nodes])
    while stack and not all(is_below(frame.path, stack[-1].path) for node in nodes for frame in node.stack[len(stack) :]):
        stack = stack[:-1]
    return stack


def _inside(nodes: list[Node], stack: Stack) -> tuple[Node, ...]:
    if not stack:
        return tuple(nodes)
    there = Relocation(lambda path: path[len(stack[-1].path) + 1 :] if stack[-1].path else path)
    return tuple([node.evolve(stack=there.stack(node.stack[len(stack) :])) for node in nodes])
