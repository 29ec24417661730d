"""``inline``: every module call is replaced by its body, the opposite of ``outline``.

One idea: the calls first get bodies and numbers of their own (``expand.py``), then each body is put in the place of its
call (``ir/inlining.py``), where module stacks and absolute names of state say what the calls said.  Bodies of operators
stay bodies; the calls in them are replaced too.
"""

from __future__ import annotations

from attrs import evolve

from ..ir.arguments import bodies_in
from ..ir.graph import Graph
from ..ir.inlining import inlined
from ..ir.node import Call, Do, Frame, Get, Node, Op, Stack
from ..ir.paths import join
from ..ir.persistent import pmap
from ..ir.program import Program
from .deduplicate import below
from .expand import LIMIT, own_bodies
from .fuel import UNLIMITED, Fuel
from .reading import placed
from .transformation import transformation

__all__ = ["inline"]


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
    """Put the bodies of module calls in the places of the calls.

    Before::

        graph ""           gelu = call mlp(x)
        graph "mlp"        linear = call up(x);  gelu = aten.gelu.default(linear)
        graph "mlp.up"     w = get weight;  linear = aten.linear.default(x, w)

    After::

        w = get mlp.up.weight                       in mlp/mlp.up
        linear = aten.linear.default(x, w)          in mlp/mlp.up
        gelu = aten.gelu.default(linear)            in mlp

    The pieces of a call that was cut are one call again: ``Frame.part`` is 0 everywhere.

    Args:
        program: a program at any stage.
        at_most: how many nodes it may have with a body for every call.
        fuel: a rewrite is one call that gets a body of its own, as in ``expand``, then one call that is replaced by its body, in
            order of execution, outer calls first.

    Returns:
        The program without calls; values keep their names where those are free.

    Raises:
        UnsupportedProgram: it would have more nodes than that, because shared bodies multiply.

    >>> import purefx as px
    >>> body = px.Graph((px.Input("a"),), (px.Node("b", px.Op("toy.neg"), (px.Ref("a"),)),), px.Ref("b"))
    >>> main = px.Graph((px.Input("x"),), (px.Node("y", px.Call(px.Frame("m"), "m"), (px.Ref("x"),)),), (px.Ref("y"),))
    >>> px.inline(px.Program.of({"": main, "m": body})).main.nodes[0].stack
    (Frame(path='m', call=0, part=0),)
    """
    if not any(type(node.do) is Call for _, node in program.nodes()):
        return program
    own = own_bodies(program, at_most=at_most, keep=frozenset(program.bottom_up) - placed(program) - _called(program), fuel=fuel)
    gone = _replaced(own, fuel)
    if not gone:
        return own
    graphs = {name: own.graphs[name] for name in own.order if name not in gone}
    for name, path in ((own.root, ""), *_operator_bodies(own, gone)):
        graphs[name] = _Whole(own, gone, path, keeps_parts=fuel.refused).graph(name)
    return own.evolve(graphs=pmap(graphs))


def _replaced(own: Program, fuel: Fuel) -> frozenset[str]:
    # The bodies that go: all that are called, or the first ones met, as far as the fuel goes.
    called = _called(own)
    if not fuel.limited:
        return called
    return frozenset([name for name in own.order if name in called and fuel.burn("inline", repr(name))])


def _called(program: Program) -> frozenset[str]:
    return frozenset([node.do.graph for _, node in program.nodes() if type(node.do) is Call])


def _operator_bodies(program: Program, gone: frozenset[str]) -> list[tuple[str, str]]:
    # The bodies that operators are given, each with the module that it stands in: one, because none is shared that cares.
    # Those in the bodies of calls that stay are left out.
    found: dict[str, str] = {}
    seen: set[str] = {program.root}
    todo = [(program.root, "")]
    while todo:
        name, path = todo.pop()
        for node in program.graphs[name].nodes:
            do = node.do
            inner: list[tuple[str, str]] = []
            if type(do) is Call:
                inner = [(do.graph, below(path, do))] if do.graph in gone else []
            elif type(do) is Op and do.effects.through_bodies:
                inner = [(body, path) for body in bodies_in(node.args, node.kwargs)]
                found.update(inner)
            todo.extend(place for place in inner if place[0] not in seen)
            seen.update(body for body, _ in inner)
    return list(found.items())


class _Whole:
    """Puts bodies in the places of their calls in one graph, which then stands in the root."""

    def __init__(self, program: Program, gone: frozenset[str], path: str, *, keeps_parts: bool) -> None:
        self.program = program
        self.gone = gone
        self.path = path
        """The module that the graph stood in."""
        self.keeps_parts = keeps_parts
        """Whether the pieces of a call stay pieces, because calls of others stay."""
        self.stacks: dict[Stack, Stack] = {}

    def graph(self, name: str) -> Graph:
        graph = self.program.graphs[name]
        if all(type(node.do) is Op for node in graph.nodes):
            return graph
        graph = inlined(self.program, graph, into=self.gone.__contains__)
        return evolve(graph, nodes=tuple([self._at_root(node) for node in graph.nodes]))

    def _at_root(self, node: Node) -> Node:
        stack = self.stacks.get(node.stack)
        if stack is None:
            stack = node.stack if self.keeps_parts else tuple([_in_one_piece(frame) for frame in node.stack])
            self.stacks[node.stack] = stack = node.stack if stack == node.stack else stack
        do = self._do_at_root(node.do) if self.path else node.do
        return node if stack == node.stack and do is node.do else evolve(node, do=do, stack=stack)

    def _do_at_root(self, do: Do) -> Do:
        match do:
            case Get(slot=slot):
                return Get(join(self.path, slot))
            case Call(instance=instance, graph=graph):
                return Call(evolve(instance, path=join(self.path, instance.path)), graph)
            case _:
                return do


def _in_one_piece(frame: Frame) -> Frame:
    return evolve(frame, part=0) if frame.part else frame
