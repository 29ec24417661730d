"""Liveness: what of a program its outputs and its effects need, through all calls.

Marks values, nodes, results of bodies and their inputs, from the outputs and the effects of the root on.  A body that several
calls share needs what one of them needs.  Nothing is removed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from attrs import evolve

from ...ir.arguments import Arg, bodies_in, refs_in
from ...ir.calls.parts import part_names
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Call, Graph, Node
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ..memory import Memory, computes

__all__ = ["Liveness", "results_of", "with_boundaries"]


def results_of(graph: Graph) -> tuple[Arg, ...]:
    """Return the results of a body; a caller takes them one by one, unless the body gives one value itself.

    >>> from purefx.ir import Ref
    >>> results_of(Graph((), (), (Ref("x"), Ref("y")))), results_of(Graph((), (), Ref("x")))
    ((Ref(name='x'), Ref(name='y')), (Ref(name='x'),))
    """
    return graph.output if type(graph.output) is tuple else (graph.output,)


class Liveness:
    """What is needed, of a whole program; one walk over what is.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Input, Op, Ref
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),)) for name in "ab")
    >>> sorted(Liveness(Program.of({"": Graph((Input("x"),), nodes, (Ref("b"),))})).values[""])
    ['b', 'x']
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects = program_effects(program)
        self.parts = frozenset(part_names(program))
        self.preserved = with_boundaries(program)
        """The bodies that contain boundaries of preserved calls, themselves or in others."""
        self.values: defaultdict[str, set[str]] = defaultdict(set)
        """The inputs and nodes of each graph that are needed, by name."""
        self.results: defaultdict[str, set[int]] = defaultdict(set)
        """The results of each body that are needed."""
        self.fixed: set[str] = {program.root}
        """The graphs whose inputs and results all stay: the root, and bodies of operators."""
        self.calls: defaultdict[str, set[str]] = defaultdict(set)
        """The calls that are needed, by the graph that they are in."""
        self._sites: defaultdict[str, list[tuple[str, Node]]] = defaultdict(list)
        # The same by body, each with its caller.
        self._memory: dict[str, Memory] = {}
        self._writers: dict[str, dict[object, list[str]]] = {}
        # For each graph the nodes that write memory which nothing outside sees, by that memory.
        self._todo: list[tuple[Any, ...]] = [(self._enter, program.root)]
        self._need(program.root, program.main.output_refs())
        while self._todo:
            step, *args = self._todo.pop()
            step(*args)

    def _need(self, graph: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.values[graph]:
                self.values[graph].add(name)
                self._todo.append((self._look_at, graph, name))

    def _look_at(self, graph: str, name: str) -> None:
        node = self.program.graphs[graph].by_name.get(name)
        self._touch(graph, name)
        if node is None:
            number = [formal.name for formal in self.program.graphs[graph].inputs].index(name)
            for caller, site in self._sites[graph]:
                self._pass(caller, (site.args[number],))
        elif type(node.do) is Call:
            self._need_call(graph, node)
            for number in range(len(results_of(self.program.graphs[node.do.graph]))):
                self._need_result(node.do.graph, number)
        elif (item := self._item(graph, node)) is not None:
            call, number = item
            self._need_call(graph, call)
            self._need_result(call.callees[0], number)
        else:
            self._pass(graph, (node.args, node.kwargs))
            for body in bodies_in(node.args, node.kwargs):
                self.fixed.add(body)
                self._todo.append((self._enter, body))
                inner = self.program.graphs[body]
                self._need(body, [*inner.output_refs(), *[formal.name for formal in inner.inputs]])

    def _item(self, graph: str, node: Node) -> tuple[Node, int] | None:
        # The call of which a node takes one result, and its number.
        whole, index = node.projection or ("", 0)
        call = self.program.graphs[graph].by_name.get(whole)
        if call is None or type(call.do) is not Call:
            return None
        output = self.program.graphs[call.do.graph].output
        count = len(output) if type(output) is tuple else 0
        return (call, index % count) if -count <= index < count else None

    def _need_call(self, graph: str, node: Node) -> None:
        # The call, whatever is needed of its results.
        if node.name in self.calls[graph]:
            return
        (callee,) = node.callees
        self.calls[graph].add(node.name)
        self._sites[callee].append((graph, node))
        self._todo.append((self._enter, callee))
        needed = self.values[callee]
        formals = zip(self.program.graphs[callee].inputs, node.args, strict=True)
        self._pass(graph, tuple([arg for formal, arg in formals if formal.name in needed]))

    def _need_result(self, callee: str, number: int) -> None:
        if number not in self.results[callee]:
            self.results[callee].add(number)
            self._need(callee, refs_in((results_of(self.program.graphs[callee])[number],)))

    def _pass(self, graph: str, args: tuple[Arg, ...]) -> None:
        names = refs_in(args)
        self._need(graph, names)
        for name in names:
            self._touch(graph, name)

    # -- effects ----------------------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        # What of a graph is needed for its effects.
        if name in self._writers:
            return
        writers = self._writers[name] = defaultdict(list)
        graph, effects = self.program.graphs[name], self.effects[name]
        if any(does.writes for does in effects):
            self._memory[name] = Memory(self.program, name, effects)
        for node, does in zip(graph.nodes, effects, strict=True):
            if self._acts(node, does) or self._is_seen(name, does):
                self._need_node(name, node)
            elif does.writes:
                for memory in self._memory[name].touched(does):
                    writers[memory].append(node.name)
        for used in list(self.values[name]):  # what was marked before it was known who writes
            self._touch(name, used)

    def _need_node(self, graph: str, node: Node) -> None:
        # Of a call the effects alone are needed, as long as nobody asks for a result.
        if type(node.do) is Call:
            self._todo.append((self._need_call, graph, node))
        else:
            self._need(graph, (node.name,))

    def _acts(self, node: Node, does: NodeEffects) -> bool:
        do = node.do
        if type(do) is Call and (do.graph in self.preserved or do.instance.path in self.parts):
            return True
        if is_boundary(node) or not self.preserved.isdisjoint(bodies_in(node.args, node.kwargs)):
            return True
        return not computes(evolve(does, writes=()))

    def _is_seen(self, graph: str, does: NodeEffects) -> bool:
        return bool(does.writes) and self._memory[graph].reaches_outside(does)

    def _touch(self, graph: str, name: str) -> None:
        # Whoever writes memory that something needed looks at is needed.
        writers = self._writers.get(graph)
        if writers:
            for writer in writers.pop(self._memory[graph].find(name), ()):
                self._need_node(graph, self.program.graphs[graph].by_name[writer])


def with_boundaries(program: Program) -> frozenset[str]:
    """Return the bodies that contain boundaries of preserved calls, themselves or in others.

    >>> with_boundaries(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    found: set[str] = set()
    for name in program.bottom_up if len(program.call_signatures) else ():
        graph = program.graphs[name]
        if any(map(is_boundary, graph.nodes)) or not found.isdisjoint(graph.callees):
            found.add(name)
    return frozenset(found)
