"""``bodies_to_regions``: bodies of operators that set a mode stand between markers, the opposite of ``regions_to_bodies``.

Bodies of all other operators stay.
"""

from __future__ import annotations

from functools import partial

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.graph import Graph, Node, Op
from ...ir.meta import Meta
from ...ir.names import join, nested
from ...ir.origins import made_of, standing_in
from ...ir.program import Program
from ...ir.rewriter import Relocation
from ..transformation import UNLIMITED, Fuel, transformation
from .modes import ENTER, EXIT, PLACES, SET_GRAD, WITH_GRAD, Mode, Modes, is_op, wrapped

__all__ = ["bodies_to_regions"]


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
    """Put the bodies of operators that set a gradient mode or autocast between markers.

    Before::

        linear = higher_order.wrap_with_set_grad_enabled(False, @$submod, x)
        y = operator.getitem(linear, 0)

        graph @$submod(x)     exp = aten.exp.default(x);  return (exp,)

    After::

        _set_grad_enabled = torch._C._set_grad_enabled(False)
        y = aten.exp.default(x)
        _set_grad_enabled_1 = torch._C._set_grad_enabled(True)

    So that a rewrite, or a backend, sees one run of operators.  The second marker sets the mode that the graph runs in, so a body
    that callers in several modes share keeps its operators of the gradient mode; those whose results are used as one tuple stay
    too.

    Args:
        program: a program at any stage.
        grad: the gradient mode that it is called in.  Bodies restore the mode that they find, markers set this one.
        fuel: a rewrite is one operator, bodies before their callers, in order.

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
        modes, graphs = Modes(program, grad=grad), dict(program.graphs)
        for name in program.bottom_up:
            graphs[name] = _Inlining(program.evolve(graphs=program.graphs.update(graphs)), name, modes, fuel).run()
        made = program.with_graphs(graphs)
        if made is program:
            return program.pruned()
        program = made.pruned()  # a body that lost a caller may run in one mode now


class _Inlining:
    def __init__(self, program: Program, name: str, modes: Modes, fuel: Fuel) -> None:
        self.program = program
        self.graph = program.graphs[name]
        self.is_root = name == program.root
        self.taken = _results_taken(self.graph)
        self.hops: dict[str, Mode] = {}
        """The operators that go, each with the mode around it."""
        for node, mode in zip(self.graph.nodes, modes.before(name), strict=False):
            if self._is_plain(node, mode) and fuel.burn("body of", node.name, "in", repr(name)):
                self.hops[node.name] = mode
        self.names = self.graph.names().without(self.hops)
        self.known: dict[str, Arg] = {}
        self.results: dict[str, tuple[Arg, ...]] = {}

    def _is_plain(self, node: Node, mode: Mode) -> bool:
        body = wrapped(node)
        if body is None or node.name not in self.taken or (mode is None and is_op(node, WITH_GRAD)):
            return False
        inner = self.program.graphs[body]
        place = PLACES[node.do.name] if type(node.do) is Op else 0
        return type(inner.output) is tuple and len(inner.inputs) == len(node.args) - place - 1

    def run(self) -> Graph:
        """Return the graph with bodies in their places; the same object if there is none."""
        if not self.hops:
            return self.graph
        made, gone = list[Node](), dict[str, list[Meta]]()
        for node in self.graph.nodes:
            whole, index = node.projection or ("", 0)
            if node.name in self.hops:
                made += self._between(node)
            elif whole in self.results:
                value = self.results[whole][index]
                if value != Ref(node.name):
                    self.known[node.name] = value
                if type(value) is Ref:
                    gone.setdefault(value.name, []).append(node.meta)
            else:
                made.append(node.using(self.known) if self.known else node)
        return Graph(self.graph.inputs, standing_in(made, gone), replace_refs(self.graph.output, self.known))

    def _between(self, node: Node) -> list[Node]:
        place = PLACES[node.do.name] if type(node.do) is Op else 0
        origin = made_of([node.meta])
        if is_op(node, WITH_GRAD):
            first = Node(self.names.fresh("_set_grad_enabled"), SET_GRAD, node.args[:1], (), node.stack, origin)
            inner = self._inner(node, node.args[place + 1 :])
            last = Node(self.names.fresh("_set_grad_enabled"), SET_GRAD, (self.hops[node.name],), (), node.stack, origin)
        else:
            first = Node(self.names.fresh("_enter_autocast"), ENTER, node.args[:place], (), node.stack, origin)
            inner = self._inner(node, node.args[place + 1 :])
            last = Node(self.names.fresh("_exit_autocast"), EXIT, (Ref(first.name),), (), node.stack, origin)
        return [first, *inner, last]

    def _inner(self, node: Node, operands: tuple[Arg, ...]) -> list[Node]:
        body = self.program.graphs[wrapped(node) or ""]
        given = replace_refs(operands, self.known)
        known = {formal.name: arg for formal, arg in zip(body.inputs, given, strict=True)}
        wanted: dict[str, str] = {}
        for index, name in self.taken[node.name].items():
            result = body.output[index] if type(body.output) is tuple else None
            if type(result) is Ref and result.name not in known:
                wanted.setdefault(result.name, name)
        path = node.stack[-1].path if node.stack else ""
        there = Relocation(partial(join if self.is_root else nested, path), node.stack)
        made: list[Node] = []
        for inner in body.nodes:
            name = wanted.get(inner.name) or self.names.fresh(inner.name)
            moved = inner.evolve(name=name, stack=there.stack(inner.stack))
            made.append(moved.using(known) if known else moved)
            known[inner.name] = Ref(name)
        output = replace_refs(body.output, known)
        self.results[node.name] = output if type(output) is tuple else (output,)
        return made


def _results_taken(graph: Graph) -> dict[str, dict[int, str]]:
    # For each operator of which single results are taken, the first value that is each; those used as a whole are left out.
    taken: dict[str, dict[int, str]] = {node.name: {} for node in graph.nodes if wrapped(node) is not None}
    for name in graph.output_refs():
        taken.pop(name, None)
    for node in graph.nodes:
        whole, index = node.projection or ("", 0)
        if whole in taken:
            taken[whole].setdefault(index, node.name)
            continue
        for name in node.refs():
            taken.pop(name, None)
    return taken
