"""Regions in which operators run in another mode, and the gradient mode of each node.

A marker sets the mode for all nodes that run after it, in callers too, until the next one; an operator with a body sets it for
its body only.  ``regions_to_bodies`` and ``bodies_to_regions`` convert between the two forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.calls.call_graph import module_calls, path_around
from ...ir.effects.declared import leveled
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Op, Stack, common_prefix
from ...ir.names import Names, is_below, last_name
from ...ir.operators import GETITEM, op_of
from ...ir.origins import made_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Relocation, Rewriter
from ...ir.torch_private import ENTER_AUTOCAST, EXIT_AUTOCAST, SET_GRAD_ENABLED
from ..call_numbers import CallNumbers, stacked_calls
from ..inline import inlined
from ..shared_bodies import value_only
from ..transformation import UNLIMITED, Fuel, transformation

_hop: Any = torch.ops.higher_order

SET_GRAD = op_of(SET_GRAD_ENABLED)
ENTER = op_of(ENTER_AUTOCAST)
EXIT = op_of(EXIT_AUTOCAST)
WITH_GRAD = op_of(_hop.wrap_with_set_grad_enabled)
WITH_AUTOCAST = op_of(_hop.wrap_with_autocast)
"""The markers, and the operators with a body."""

BODY_AT = {WITH_GRAD.name: 1, WITH_AUTOCAST.name: 4}
"""The number of the body among the arguments of those operators; literals are before it, operands after it."""

KEPT = "kept"
"""The exit mode of a graph that leaves the mode unchanged."""

Mode = bool | None
"""A gradient mode; None if it is unknown."""


def is_op(node: Node, *ops: Op) -> bool:
    """Return whether a node calls one of these operators.

    >>> is_op(Node("y", SET_GRAD, (False,)), SET_GRAD, ENTER), is_op(Node("y", Op("toy.neg")), SET_GRAD)
    (True, False)
    """
    return node.op_name in [op.name for op in ops]


def wrapped(node: Node) -> str | None:
    """Return the body that a node runs in another mode; None for other nodes, and for unexpected arguments.

    >>> wrapped(Node("y", WITH_GRAD, (False, Body("inner")))), wrapped(Node("y", SET_GRAD, (False,)))
    ('inner', None)
    """
    place = BODY_AT.get(node.op_name)
    if (
        place is None
        or node.kwargs
        or len(node.args) <= place
        or (place == 1 and type(node.args[0]) is not bool)
    ):
        return None
    body = node.args[place]
    return body.graph if type(body) is Body else None


class Modes:
    """The gradient modes of a program.

    Args:
        program: the program.
        grad: the mode of its caller.

    >>> from purefx.ir import Graph
    >>> Modes(Program.of({"": Graph((), (Node("n", SET_GRAD, (False,)),), ())}), grad=True).before("")
    [True, False]
    """

    def __init__(self, program: Program, *, grad: bool) -> None:
        self.program = program
        self.exits: dict[str, Mode | str] = {}
        """The mode after each graph."""
        self.levels: dict[str, tuple[int, int]] = {}
        """The number of regions of other modes that each graph closes without opening, and that it leaves open."""
        for name in program.bottom_up:
            nodes, mode = program.graphs[name].nodes, KEPT
            for node in nodes:
                mode = self._after(node, mode)
            self.exits[name] = mode
            self.levels[name] = leveled(map(self.level, nodes))
        self.entries: dict[str, Mode] = {program.root: grad}
        """The mode before each graph; None if callers differ."""
        for name in reversed(program.bottom_up):
            for node, mode in zip(program.graphs[name].nodes, self.before(name), strict=False):
                inside = node.args[0] if is_op(node, WITH_GRAD) and node.args else mode
                known = inside if type(inside) is bool else None
                for body in node.callees:
                    self.entries[body] = known if self.entries.get(body, known) is known else None

    def before(self, name: str) -> list[Mode]:
        """Return the mode before each node of a graph, and after the last one."""
        found: list[Mode] = [self.entries[name]]
        for node in self.program.graphs[name].nodes:
            after = self._after(node, found[-1])
            found.append(after if type(after) is bool else None)
        return found

    def level(self, node: Node) -> tuple[int, int]:
        """Return the number of regions that a node closes and opens; markers of gradient modes do not count."""
        if is_op(node, SET_GRAD):
            return 0, 0
        if scope := node.declared.scope:
            return int(scope < 0), int(scope > 0)
        return max([self.levels[body] for body in node.callees], default=(0, 0))

    def _after(self, node: Node, mode: Any) -> Any:
        if is_op(node, SET_GRAD):
            return node.args[0] if len(node.args) == 1 and type(node.args[0]) is bool else None
        if "inference_mode" in node.op_name:
            return None  # it turns gradients off, and restores them
        if is_op(node, WITH_GRAD):
            return mode
        left = {self.exits[body] for body in node.callees} - {KEPT, mode}
        if not left:
            return mode
        return (
            left.pop() if len(left) == 1 and len(node.callees) == 1 else None
        )  # of several bodies one runs


AUTOCAST_DEFAULTS: tuple[Arg, ...] = (None, True, None)
"""The arguments of autocast after the device type: dtype, enabled, cache enabled."""


@frozen
class Region:
    """The nodes between two markers, given by number."""

    first: int
    last: int
    grad: bool | None
    """The gradient mode inside; None for autocast."""

    def has(self, number: int) -> bool:
        """Return whether a node is one of the two markers, or between them."""
        return self.first <= number <= self.last


def regions_of(modes: Modes, name: str) -> list[Region]:
    """Return the regions of a graph that can be bodies, in the order in which they begin.

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
    if None in before or any(
        before[k] is not before[k + 1] for k in range(len(graph.nodes)) if k not in sets
    ):
        return []  # a called body leaves another mode than it found, or the mode is unknown
    kept = sorted(
        [*_autocast_regions(graph), *_grad_regions(before, sorted(sets))], key=lambda one: one.first
    )
    while (fewer := [one for one in kept if _is_legal(one, kept, modes, graph)]) != kept:
        kept = fewer
    return kept


def _autocast_regions(graph: Graph) -> Iterator[Region]:
    for last, node in enumerate(graph.nodes):
        if (
            is_op(node, EXIT)
            and len(node.args) == 1
            and type(begun := node.args[0]) is Ref
            and begun.name in graph.position
        ):
            enter = graph.nodes[graph.position[begun.name]]
            is_plain = (
                is_op(enter, ENTER)
                and not (enter.refs() or enter.kwargs)
                and 1 <= len(enter.args) <= 4
            )
            if (
                is_plain
                and graph.users[begun.name] == (node.name,)
                and begun.name not in graph.output_refs()
            ):
                yield Region(graph.position[begun.name], last, None)


def _grad_regions(before: list[Mode], sets: list[int]) -> Iterator[Region]:
    # From the first mode other than that of the graph to its end; a marker that changes nothing is a region of one node.
    first: int | None = None
    for number in sets:
        first = number if first is None else first
        if before[number + 1] is before[0]:
            yield Region(first, number, not before[0])
            first = None


def _is_legal(one: Region, kept: list[Region], modes: Modes, graph: Graph) -> bool:
    inside = range(one.first + 1, one.last)
    for number, node in enumerate(graph.nodes):
        if number in inside and (is_boundary(node) or node.meta.get("unbacked_bindings")):
            return False  # callers know these by name
        if node.projection and one.has(graph.position.get(node.projection[0], -1)) is not one.has(
            number
        ):
            return False  # a body takes and returns tensors, no tuples
    for other in kept:
        if one.has(other.first) is not one.has(other.last) and other.has(
            one.first
        ) is not other.has(one.last):
            return False
    if one.grad is None:
        # A gradient marker left in the body would not set the mode after it.
        sets = [number for number in inside if is_op(graph.nodes[number], SET_GRAD)]
        if not all(
            any(other.grad is not None and other.has(number) for other in kept) for number in sets
        ):
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
    """Turn regions between markers of a gradient mode or autocast into bodies of operators.

    Before::

        _set_grad_enabled = torch._C._set_grad_enabled(False)
        y = aten.exp.default(x)
        _set_grad_enabled_1 = torch._C._set_grad_enabled(True)

    After::

        wrap_with_set_grad_enabled = higher_order.wrap_with_set_grad_enabled(False, @$no_grad, x)
        y = operator.getitem(wrap_with_set_grad_enabled, 0)

        graph @$no_grad(x)     y = aten.exp.default(x);  return (y,)

    Tracers of Python write markers (``torch.compile`` passes such graphs to its backends), ``torch.export`` writes bodies.
    Nesting is preserved.  Markers that change nothing and regions without operators are dropped.  Reads of state stay outside and
    become operands.

    These regions are unchanged:

    - regions in a body whose callers run in several modes
    - regions that are not closed, or that begin in one body and end in another
    - regions that overlap a vmap level or another region, or that separate a tuple from its projections
    - regions that contain the boundary of a preserved call, or compute a data-dependent size

    Args:
        program: a program at any stage.
        grad: the gradient mode of the caller.  Bodies restore the mode at run time, markers set this one.
        fuel: a rewrite is all regions of one graph, bodies before their callers.

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
        if regions and fuel.burn("regions of", repr(name)):
            made.update(_Building(program.graphs[name], regions, ids).run(name))
    return program.with_graphs(made)


class _Building:
    """One graph, while its regions become bodies."""

    def __init__(self, graph: Graph, regions: list[Region], ids: Names) -> None:
        self.source, self.regions, self.ids = graph, regions, ids
        self.names = graph.names()
        self.bodies: dict[str, Graph] = {}
        self.last = {
            used: number for number, node in enumerate(graph.nodes) for used in node.refs()
        }
        self.last |= dict.fromkeys(graph.output_refs(), len(graph.nodes))

    def run(self, name: str) -> Mapping[str, Graph]:
        """Return the graph and the new bodies, by id."""
        begins, ends = (
            {getattr(one, end): one for one in self.regions} for end in ("first", "last")
        )
        levels: list[list[Node]] = [[]]
        for number, node in enumerate(self.source.nodes):
            if number in begins:
                levels.append([])
            if number in ends:
                nodes = levels.pop()
                levels[-1] += self._closed(ends[number], nodes)
            is_inner = is_op(node, SET_GRAD) and any(
                one.grad is not None and one.has(number) for one in self.regions
            )
            if not (number in begins or number in ends or is_inner):
                levels[-1].append(node)
        return {
            name: Graph(self.source.inputs, tuple(levels[0]), self.source.output),
            **self.bodies,
        }

    def _closed(self, region: Region, nodes: list[Node]) -> list[Node]:
        # Reads of state become operands, so they stay before the operator; the body returns the values that are used after it.
        reads, nodes = [
            [node for node in nodes if (type(node.do) is Get) is is_read]
            for is_read in (True, False)
        ]
        if not nodes:
            return reads
        own = {node.name for node in nodes}
        inputs = dict.fromkeys([name for node in nodes for name in node.refs() if name not in own])
        outputs = [node.name for node in nodes if self.last.get(node.name, -1) > region.last]
        stack, metas = _around(nodes), self.source.metas
        described = {name: value_only(metas.get(name, {})) for name in (*inputs, *outputs)}
        first = self.source.nodes[region.first]
        do, word, literals = (
            WITH_GRAD,
            "$enable_grad" if region.grad else "$no_grad",
            (region.grad,),
        )
        if region.grad is None:
            do, word, literals = (
                WITH_AUTOCAST,
                "$autocast",
                (*first.args, *AUTOCAST_DEFAULTS[len(first.args) - 1 :]),
            )
        body = self.ids.fresh(word)
        self.bodies[body] = Graph(
            tuple([Input(name, described[name]) for name in inputs]),
            _inside(nodes, stack),
            tuple([Ref(name) for name in outputs]),
        )
        name = self.names.fresh(last_name(do.name))
        value = tuple([described[output].get("val") for output in outputs])
        markers = dict.fromkeys([region.first, region.last])
        meta = MappingProxyType(
            {"val": value, **made_of([self.source.nodes[number].meta for number in markers])}
        )
        operator = Node(name, do, (*literals, Body(body), *map(Ref, inputs)), (), stack, meta)
        results = enumerate(outputs)
        return [
            *reads,
            operator,
            *(
                Node(one, GETITEM, (Ref(name), at), (), stack, described[one])
                for at, one in results
            ),
        ]


def _around(nodes: list[Node]) -> Stack:
    # The calls common to all nodes; modules outside of the innermost one keep their paths.
    stack = common_prefix([node.stack for node in nodes])
    while stack and not all(
        is_below(frame.path, stack[-1].path) for node in nodes for frame in node.stack[len(stack) :]
    ):
        stack = stack[:-1]
    return stack


def _inside(nodes: list[Node], stack: Stack) -> tuple[Node, ...]:
    if not stack:
        return tuple(nodes)
    there = Relocation(lambda path: path[len(stack[-1].path) + 1 :] if stack[-1].path else path)
    return tuple([node.evolve(stack=there.stack(node.stack[len(stack) :])) for node in nodes])


@transformation(
    proven=True,
    forgets={"deduplicated", "outlined"},
    inverse="regions_to_bodies",
    laws=[
        "every operator runs in the gradient mode and under the autocast that it ran in, as often, in the same order",
        "no operator is left that runs a body in another gradient mode or under autocast",
    ],
)
def bodies_to_regions(program: Program, *, grad: bool = True, fuel: Fuel = UNLIMITED) -> Program:
    """Replace operators that set a gradient mode or autocast by their bodies between markers.

    Before::

        linear = higher_order.wrap_with_set_grad_enabled(False, @$submod, x)
        y = operator.getitem(linear, 0)

        graph @$submod(x)     exp = aten.exp.default(x);  return (exp,)

    After::

        _set_grad_enabled = torch._C._set_grad_enabled(False)
        exp = aten.exp.default(x)
        _set_grad_enabled_1 = torch._C._set_grad_enabled(True)

    A rewrite, or a backend, then processes one sequence of operators.  The second marker sets the mode of the graph, so a body
    whose callers run in several modes keeps its operators of the gradient mode; operators whose result is used as one tuple also
    stay.

    Args:
        program: a program at any stage.
        grad: the gradient mode of the caller.  Bodies restore the mode at run time, markers set this one.
        fuel: a rewrite is one operator; bodies before their callers, in order.

    Returns:
        The program with regions between markers.

    >>> import purefx as px
    >>> from purefx.transforms.modes.modes import WITH_GRAD
    >>> body = px.Graph((px.Input("a"),), (px.Node("b", px.Op("toy.neg"), (px.Ref("a"),)),), (px.Ref("b"),))
    >>> run = px.Node("run", WITH_GRAD, (False, px.ir.Body("body"), px.Ref("x")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (run,), ()), "body": body})
    >>> [node.name for node in px.bodies_to_regions(program).main.nodes]
    ['_set_grad_enabled', 'b', '_set_grad_enabled_1']
    """
    while True:
        modes, made = Modes(program, grad=grad), program
        for name in program.bottom_up:
            made = made.with_graphs({name: _between_markers(made, name, modes, fuel)})
        if made is program:
            return program.pruned()
        program = made.pruned()  # a body with fewer callers may run in one mode now


def _between_markers(program: Program, name: str, modes: Modes, fuel: Fuel) -> Graph:
    # Each operator becomes a call of its body between two markers; then the calls are inlined.
    graph, ids, called = program.graphs[name], Names(program.graphs), dict[str, Graph]()
    edit, inserted = Rewriter(graph), set[str]()
    # Operators may share a body; in one graph each copy of its module calls has its own numbers.
    numbers = _numbers_in(program, name)
    for number, (node, mode) in enumerate(zip(graph.nodes, modes.before(name), strict=False)):
        if not _is_plain(program, graph, node, mode) or not fuel.burn(
            "body of", node.name, "in", repr(name)
        ):
            continue
        place, origin = BODY_AT[node.op_name], made_of([node.meta])
        enter, leave = (SET_GRAD, SET_GRAD) if is_op(node, WITH_GRAD) else (ENTER, EXIT)
        begins, ends = (edit.names.fresh(last_name(do.name)) for do in (enter, leave))
        id_ = ids.fresh("$inlined")
        body = wrapped(node) or ""
        path = path_around(node, "")
        inside = Frame(path, node.stack[-1].call if node.stack else 0)
        called[id_] = numbers.numbered(
            program.graphs[body], path, inside, is_another=body in inserted
        )
        inserted.add(body)
        edit.before(number, Node(begins, enter, node.args[:place], (), node.stack, origin))
        edit.put(
            number, node.evolve(do=Call(Frame(path, INLINED), id_), args=node.args[place + 1 :])
        )
        edit.after(
            number,
            Node(ends, leave, (Ref(begins) if enter is ENTER else mode,), (), node.stack, origin),
        )
    if not called:
        return graph
    whole = program.with_graphs({name: edit.graph(), **called})
    flat = inlined(whole, whole.graphs[name], into=called.__contains__)
    return flat.with_nodes(
        [
            node.evolve(stack=tuple([one for one in node.stack if one.call != INLINED]))
            for node in flat.nodes
        ]
    )


def _numbers_in(program: Program, name: str) -> CallNumbers:
    graph, root = program.graphs[name], Frame("")
    taken = list(stacked_calls(program, name))
    if name == program.root:
        taken += module_calls(program)
    numbers = CallNumbers(program, taken)
    numbers.numbered(graph, "", root)
    for node in graph.callers:
        if type(node.do) is Call:
            numbers.claimed(node.do.instance, node.stack[-1] if node.stack else root)
    return numbers


INLINED = -1
"""The call number of these temporary calls."""


def _is_plain(program: Program, graph: Graph, node: Node, mode: Mode) -> bool:
    body = wrapped(node)
    if (
        body is None
        or (mode is None and is_op(node, WITH_GRAD))
        or node.name in graph.output_refs()
    ):
        return False
    inner = program.graphs[body]
    operands = len(node.args) - BODY_AT[node.op_name] - 1
    return (
        all(user.projection for user in graph.users_of(node.name))
        and not (node.stack and any(type(one.do) is not Op for one in inner.nodes))
        and type(inner.output) is tuple
        and len(inner.inputs) == operands
    )
