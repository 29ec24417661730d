"""Liveness: what of a program its outputs and its effects need, through all calls.

Marks values, nodes, results of bodies and their inputs, from the outputs and the effects of the root on.  A body that several
calls share needs what one of them needs.  Nothing is removed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ...ir.arguments import Arg, bodies_in, refs_in
from ...ir.calls.parts import part_names
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import UnionFind, program_effects, slot_storage, storages
from ...ir.graph import Call, Graph, Node
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ..memory import OUTSIDE

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
    >>> found = Liveness(Program.of({"": Graph((Input("x"),), nodes, (Ref("b"),))}))
    >>> found.run()
    >>> sorted(found.values[""])
    ['b', 'x']
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects: Mapping[str, list[NodeEffects]] = program_effects(program)
        self.parts = frozenset(part_names(program))
        self.preserved = with_boundaries(program)
        """The bodies that contain boundaries of preserved calls, themselves or in others."""
        self.values: defaultdict[str, set[str]] = defaultdict(set)
        """The inputs and nodes of each graph that are needed, by name."""
        self.results: defaultdict[str, set[int]] = defaultdict(set)
        """The results of each body that are needed."""
        self.fixed: set[str] = {program.root}
        """The graphs whose inputs and results all stay: the root, and bodies of operators."""
        self.sites: defaultdict[str, list[tuple[str, Node]]] = defaultdict(list)
        """The calls of each body that are needed, each with its caller."""
        self.calls: defaultdict[str, set[str]] = defaultdict(set)
        """The same by caller: the names of the calls."""
        self._memory: dict[str, UnionFind] = {}
        self._writers: dict[str, dict[object, list[str]]] = {}
        """Of each graph that writes memory which nothing outside sees, the nodes that write it."""
        self._entered: set[str] = set()
        self._opened: list[str] = []
        self._todo: list[tuple[str, str]] = []

    def run(self) -> None:
        """Mark what the root needs."""
        root = self.program.root
        self._enter(root)
        self.need(root, self.program.main.output_refs())
        self._drain()

    def keep(self, graph: str, names: Iterable[str], results: Iterable[int] = ()) -> None:
        """Mark more of a graph: inputs and nodes with all that their bodies have, and results."""
        for name in names:
            self.need(graph, (name,))
            if (node := self.program.graphs[graph].by_name.get(name)) is not None:
                self._keep_bodies(node)
        for number in results:
            self._need_result(graph, number)
        self._drain()

    def need(self, graph: str, names: Iterable[str]) -> None:
        """Mark values of a graph."""
        known = self.values[graph]
        for name in names:
            if name not in known:
                known.add(name)
                self._todo.append((graph, name))

    def _drain(self) -> None:
        while self._opened or self._todo:
            if self._opened:
                self._look_at_effects(self._opened.pop())
                continue
            graph, name = self._todo.pop()
            node = self.program.graphs[graph].by_name.get(name)
            self._touch(graph, name)
            if node is None:
                self._need_arguments(graph, name)
            elif type(node.do) is Call:
                self._need_call(graph, node)
                self._need_results(node.do.graph)
            elif (item := self._item(graph, node)) is not None:
                self._need_item(graph, *item)
            else:
                self._need_operands(graph, node)

    def _need_operands(self, graph: str, node: Node) -> None:
        self.need(graph, node.refs())
        for name in node.refs():
            self._touch(graph, name)
        for body in bodies_in(node.args, node.kwargs):
            self.fixed.add(body)
            self._enter(body)
            self.need(body, [*self.program.graphs[body].output_refs(), *[one.name for one in self.program.graphs[body].inputs]])

    def _item(self, graph: str, node: Node) -> tuple[Node, int] | None:
        # The call of which a node takes one result, and its number.
        item = node.projection
        call = None if item is None else self.program.graphs[graph].by_name.get(item[0])
        if item is None or call is None or type(call.do) is not Call:
            return None
        body = self.program.graphs[call.do.graph]
        count = len(body.output) if type(body.output) is tuple else 0
        return (call, item[1] % count) if -count <= item[1] < count else None

    def _need_item(self, graph: str, call: Node, number: int) -> None:
        assert type(call.do) is Call
        self._need_call(graph, call)
        self._need_result(call.do.graph, number)

    def _need_call(self, graph: str, node: Node) -> None:
        # The call, whatever is needed of its results.
        assert type(node.do) is Call
        callee = node.do.graph
        if node.name in self.calls[graph]:
            return
        self.calls[graph].add(node.name)
        self.sites[callee].append((graph, node))
        self._enter(callee)
        for formal, arg in zip(self.program.graphs[callee].inputs, node.args, strict=True):
            if formal.name in self.values[callee]:
                self._pass(graph, arg)

    def _need_results(self, callee: str) -> None:
        for number in range(len(results_of(self.program.graphs[callee]))):
            self._need_result(callee, number)

    def _need_result(self, callee: str, number: int) -> None:
        if number not in self.results[callee]:
            self.results[callee].add(number)
            self.need(callee, refs_in((results_of(self.program.graphs[callee])[number],)))

    def _need_arguments(self, callee: str, formal: str) -> None:
        number = [one.name for one in self.program.graphs[callee].inputs].index(formal)
        for caller, node in self.sites[callee]:
            self._pass(caller, node.args[number])

    def _pass(self, graph: str, arg: Arg) -> None:
        names = refs_in((arg,))
        self.need(graph, names)
        for name in names:
            self._touch(graph, name)

    # -- effects ----------------------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        if name not in self._entered:
            self._entered.add(name)
            self._opened.append(name)

    def _look_at_effects(self, name: str) -> None:
        # What of a graph is needed for its effects.
        graph, effects = self.program.graphs[name], self.effects[name]
        writers: dict[object, list[str]] = {}
        for node, does in zip(graph.nodes, effects, strict=True):
            if self._acts(node, does):
                self._need_node(name, node)
            elif does.writes:
                inside = self._inside(name, does.writes)
                for memory in inside or ():
                    writers.setdefault(memory, []).append(node.name)
                if inside is None:
                    self._need_node(name, node)
        self._writers[name] = writers
        for used in list(self.values[name]):  # what was marked before it was known who writes
            self._touch(name, used)

    def _need_node(self, graph: str, node: Node) -> None:
        # Of a call the effects alone are needed, as long as nobody asks for a result.
        if type(node.do) is Call:
            self._need_call(graph, node)
        else:
            self.need(graph, (node.name,))

    def _acts(self, node: Node, does: NodeEffects) -> bool:
        do = node.do
        if type(do) is Call and (do.graph in self.preserved or do.instance.path in self.parts):
            return True
        told = does.random or does.ordered or does.domains or does.completes or does.writes_slots or does.scope != (0, 0)
        return bool(told) or is_boundary(node) or not self.preserved.isdisjoint(bodies_in(node.args, node.kwargs))

    def _inside(self, name: str, written: Iterable[str]) -> Collection[object] | None:
        # The memory that is written, if nothing outside of the graph sees it.
        if name not in self._memory:
            graph, effects = self.program.graphs[name], self.effects[name]
            memory = self._memory[name] = storages(self.program, graph, effects)
            for formal in graph.inputs:
                memory.join(OUTSIDE, formal.name)
            for does in effects:
                for slot in (*does.aliases_slots, *does.reads_slots):
                    memory.join(OUTSIDE, slot_storage(self.program, slot))
        memory = self._memory[name]
        found = {memory.find(value) for value in written}
        return None if memory.find(OUTSIDE) in found else found

    def _touch(self, graph: str, name: str) -> None:
        # Whoever writes memory that something needed looks at is needed.
        writers = self._writers.get(graph)
        if writers:
            for writer in writers.pop(self._memory[graph].find(name), ()):
                self._need_node(graph, self.program.graphs[graph].by_name[writer])

    def _keep_bodies(self, node: Node) -> None:
        todo = node.callees
        kept: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in kept:
                kept.add(name)
                graph = self.program.graphs[name]
                self.need(name, graph.metas)
                for number in range(len(results_of(graph))):
                    self._need_result(name, number)
                todo.extend(graph.callees)


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
