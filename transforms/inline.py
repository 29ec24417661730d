"""``inline``: replace module calls by their bodies, the inverse of ``outline``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import define

from ..ir.arguments import Arg, Ref, replace_refs
from ..ir.calls.call_graph import all_instances
from ..ir.graph import Call, Graph, Node, Op
from ..ir.meta import ORIGIN, Meta
from ..ir.names import Names, join, nested
from ..ir.origins import with_replaced_origins
from ..ir.persistent import pmap
from ..ir.program import Program
from ..ir.rewriter import Relocation
from .expand import LIMIT, own_bodies
from .shared_bodies import placed
from .transformation import UNLIMITED, Fuel, transformation


def inlined(program: Program, graph: Graph, *, into: Callable[[str], bool]) -> Graph:
    """Return a graph in which some calls are replaced by their bodies.

    Args:
        program: the source of the bodies.
        graph: the graph of the calls.
        into: whether calls of a graph id are replaced; bodies may nest to any depth.

    >>> from purefx.ir import Call, Frame, Graph, Input, Node, Op, Program, Ref
    >>> body = Graph((Input("a"),), (Node("b", Op("toy.neg"), (Ref("a"),)),), Ref("b"))
    >>> main = Graph((Input("x"),), (Node("y", Call(Frame("m"), "m"), (Ref("x"),)),), (Ref("y"),))
    >>> inlined(Program.of({"": main, "m": body}), main, into=lambda name: True).nodes[0].args
    (Ref(name='x'),)
    """
    work = _Inlining(program, graph, into)
    nodes = work.run()
    inputs, nodes = (
        with_replaced_origins(graph.inputs, work.replaced),
        with_replaced_origins(nodes, work.replaced),
    )
    return Graph(inputs, nodes, work.use(graph.output, work.outermost))


@define
class _Level:
    """One body while its nodes are inserted."""

    rest: Iterator[Node]
    known: dict[str, Arg]
    written: Relocation
    """Relocates its paths into the result."""
    call: Node | None
    """The call that it replaces; None for the graph itself."""
    output: Arg


class _Inlining:
    def __init__(self, program: Program, graph: Graph, into: Callable[[str], bool]) -> None:
        self.program = program
        self.into = into
        self.join = join if graph is program.main else nested
        self.names = Names(graph.input_names)
        self.outermost = _Level(
            iter(graph.nodes), {}, Relocation(partial(self.join, "")), None, graph.output
        )
        self.levels = [self.outermost]
        self.replaced: dict[str, list[Meta]] = {}
        """The metadata of the values that each value replaces: inputs of bodies and results of calls."""

    def run(self) -> list[Node]:
        """Return the nodes in order of execution."""
        made: list[Node] = []
        while self.levels:
            level = self.levels[-1]
            node = next(level.rest, None)
            if node is None:
                self.levels.pop()
                if level.call is not None:
                    result = self.levels[-1].known[level.call.name] = self.use(level.output, level)
                    self._replaces(result, level.call.meta)
            elif type(node.do) is Call and self.into(node.do.graph):
                self.levels.append(self._enter(node, node.do, level))
            elif not self._projected(node, level):
                made.append(self._placed(node, level))
        return made

    def use(self, arg: Arg, level: _Level) -> Arg:
        """Return an argument of a body as an argument in the result."""
        return replace_refs(arg, level.known)

    def _enter(self, node: Node, call: Call, level: _Level) -> _Level:
        body = self.program.graphs[call.graph]
        known = {
            formal.name: self.use(arg, level)
            for formal, arg in zip(body.inputs, node.args, strict=True)
        }
        for formal in body.inputs:
            self._replaces(known[formal.name], formal.meta)
        frame = level.written.frame(call.instance)
        inside = Relocation(
            partial(self.join, frame.path), (*level.written.stack(node.stack), frame)
        )
        return _Level(iter(body.nodes), known, inside, node, body.output)

    def _projected(self, node: Node, level: _Level) -> bool:
        # The parts of a tuple that a replaced call returned are values of the result.
        name, index = node.item
        whole = level.known.get(name)
        if type(whole) is not tuple:
            return False
        level.known[node.name] = whole[index]
        self._replaces(whole[index], node.meta)
        return True

    def _replaces(self, arg: Arg, meta: Meta) -> None:
        if ORIGIN in meta and type(arg) is Ref:
            self.replaced.setdefault(arg.name, []).append(meta)

    def _placed(self, node: Node, level: _Level) -> Node:
        name = self.names.renumbered(node.name)
        level.known[node.name] = Ref(name)
        args = replace_refs(node.args, level.known)
        kwargs = replace_refs(node.kwargs, level.known) if node.kwargs else ()
        do = node.do if type(node.do) is Op else level.written.do(node.do)
        return Node(name, do, args, kwargs, level.written.stack(node.stack), node.meta)


@transformation(
    proven=True,
    establishes={"flat"},
    forgets={"outlined", "deduplicated"},
    inverse="outline",
    laws=[
        "outlining gives back the hierarchy",
        "the operators run in the same order",
        "no graph calls a module afterwards",
    ],
)
def inline(program: Program, *, at_most: int = LIMIT, fuel: Fuel = UNLIMITED) -> Program:
    """Replace module calls by their bodies.

    Before::

        graph ""           gelu = call mlp(x)
        graph "mlp"        linear = call up(x);  gelu = aten.gelu.default(linear)
        graph "mlp.up"     w = get weight;  linear = aten.linear.default(x, w)

    After::

        w = get mlp.up.weight                       in mlp/mlp.up
        linear = aten.linear.default(x, w)          in mlp/mlp.up
        gelu = aten.gelu.default(linear)            in mlp

    Args:
        program: a program at any stage.
        at_most: the maximum number of nodes with a body for every call.
        fuel: everything is one rewrite.

    Returns:
        The program without calls; values keep their names where those are free.

    Raises:
        UnsupportedProgram: it would have more nodes than that, because shared bodies multiply.

    >>> import purefx as px
    >>> body = px.Graph((px.Input("a"),), (px.Node("b", px.Op("toy.neg"), (px.Ref("a"),)),), px.Ref("b"))
    >>> main = px.Graph((px.Input("x"),), (px.Node("y", px.Call(px.Frame("m"), "m"), (px.Ref("x"),)),), (px.Ref("y"),))
    >>> px.inline(px.Program.of({"": main, "m": body})).main.nodes[0].stack
    (Frame(path='m', call=0),)
    """
    if not _called(program):
        return program
    filled = _without_empty_calls(program)
    own = own_bodies(
        filled, at_most=at_most, keep=frozenset(filled.bottom_up) - placed(filled) - _called(filled)
    )
    gone = _called(own)
    if not fuel.burn("inline", len(gone), "bodies"):
        return program
    graphs = {name: own.graphs[name] for name in own.order if name not in gone}
    # The root and bodies of operators are not called; each of them that depends on its module path is in one module.
    for name, (path, *_) in all_instances(own).items():
        graph = own.graphs[name]
        if name not in gone and any(type(node.do) is not Op for node in graph.nodes):
            whole, inside = (
                inlined(own, graph, into=gone.__contains__),
                Relocation(partial(join, path)),
            )
            made = (
                whole.with_nodes([node.evolve(do=inside.do(node.do)) for node in whole.nodes])
                if path
                else whole
            )
            graphs[name] = (
                graph if made == graph else made
            )  # the body of an operator may read state without calls
    return own.evolve(graphs=pmap(graphs))


def _without_empty_calls(program: Program) -> Program:
    # Calls without nodes leave nothing in the result.  If they took numbers, those of the others would depend on their order.
    for name in program.bottom_up:
        graph = program.graphs[name]
        empty = {callee for callee in graph.called if not program.graphs[callee].nodes}
        if empty:
            program = program.with_graphs({name: inlined(program, graph, into=empty.__contains__)})
    return program.pruned()


def _called(program: Program) -> frozenset[str]:
    return frozenset([callee for name in program.order for callee in program.graphs[name].called])
