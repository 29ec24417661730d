"""``eliminate_dead_code``: drop nodes that neither an output nor an effect needs, in all bodies at once.

``Liveness`` marks the needed values, starting with the outputs and the effects of the root.  Everything else is dropped: nodes,
results and inputs of bodies with the arguments of their calls, uncalled bodies, and on request state and modules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve

from ...ir.arguments import Args, Ref, refs_in
from ...ir.calls.call_graph import module_calls, reaching
from ...ir.calls.parts import PART, part_names
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Call, Graph, Node
from ...ir.meta import Meta
from ...ir.names import parent_of, way_to
from ...ir.own_operators import is_boundary
from ...ir.program import Module, Program
from ...ir.rewriter import Rewriter
from ...ir.state_changes import state_uses, without_slots
from ..memory import Memory, computes
from ..transformation import UNLIMITED, Fuel, transformation


class Liveness:
    """The needed values of a whole program.

    >>> from purefx.ir import Input, Op, Ref
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),)) for name in "ab")
    >>> sorted(Liveness(Program.of({"": Graph((Input("x"),), nodes, (Ref("b"),))})).values[""])
    ['b', 'x']
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects = program_effects(program)
        self.parts = part_names(program)
        self.preserved = bodies_with_boundaries(program)
        """The bodies that contain boundaries of preserved calls, directly or through others."""
        self.values: defaultdict[str, set[str]] = defaultdict(set)
        """The needed inputs and nodes of each graph, by name."""
        self.results: defaultdict[str, set[int]] = defaultdict(set)
        """The needed results of each body."""
        self.fixed: set[str] = {program.root}
        """The graphs whose inputs and results all stay: the root, and bodies of operators."""
        self.calls: defaultdict[str, set[str]] = defaultdict(set)
        """The needed calls, by their graph."""
        self._sites: defaultdict[str, list[tuple[str, Node]]] = defaultdict(list)
        # The needed calls by body, each with its caller.
        self._memory: dict[str, Memory] = {}
        self._writers: dict[str, dict[object, list[str]]] = {}
        # For each graph the nodes that write memory which is invisible outside, by memory.
        self._todo: list[tuple[Any, ...]] = [(self._enter, program.root)]
        self._need(program.root, program.main.output_refs())
        while self._todo:
            step, *args = self._todo.pop()
            step(*args)

    def _need(self, graph: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.values[graph]:
                self.values[graph].add(name)
                self._todo.append((self._visit, graph, name))

    def _visit(self, graph: str, name: str) -> None:
        node = self.program.graphs[graph].by_name.get(name)
        self._touch(graph, name)
        if node is None:
            number = [formal.name for formal in self.program.graphs[graph].inputs].index(name)
            for caller, site in self._sites[graph]:
                self._pass(caller, (site.args[number],))
        elif type(node.do) is Call:
            self._need_call(graph, node)
            for number in range(len(self.program.graphs[node.do.graph].results)):
                self._need_result(node.do.graph, number)
        elif (item := self._item(graph, node)) is not None:
            call, number = item
            self._need_call(graph, call)
            self._need_result(call.callees[0], number)
        else:
            self._pass(graph, (node.args, node.kwargs))
            for body in node.bodies:
                self.fixed.add(body)
                self._todo.append((self._enter, body))
                inner = self.program.graphs[body]
                self._need(body, [*inner.output_refs(), *inner.input_names])

    def _item(self, graph: str, node: Node) -> tuple[Node, int] | None:
        # The call that a node projects, and the number of the result.
        whole, index = node.item
        call = self.program.graphs[graph].by_name.get(whole)
        if call is None or type(call.do) is not Call:
            return None
        output = self.program.graphs[call.do.graph].output
        count = len(output) if type(output) is tuple else 0
        return (call, index % count) if -count <= index < count else None

    def _need_call(self, graph: str, node: Node) -> None:
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
            self._need(callee, refs_in((self.program.graphs[callee].results[number],)))

    def _pass(self, graph: str, args: Args) -> None:
        names = refs_in(args)
        self._need(graph, names)
        for name in names:
            self._touch(graph, name)

    # -- effects ----------------------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        # Mark the effects of a graph.
        if name in self._writers:
            return
        writers = self._writers[name] = defaultdict(list)
        graph, effects = self.program.graphs[name], self.effects[name]
        if any(effect.writes for effect in effects):
            self._memory[name] = Memory(self.program, name, effects)
        for node, effect in zip(graph.nodes, effects, strict=True):
            if self._acts(node, effect) or (
                effect.writes and self._memory[name].reaches_outside(effect)
            ):
                self._need_node(name, node)
            elif effect.writes:
                for memory in self._memory[name].touched(effect):
                    writers[memory].append(node.name)
        for used in list(self.values[name]):  # marked before the writers were known
            self._touch(name, used)

    def _need_node(self, graph: str, node: Node) -> None:
        # Only the effects of a call are needed, until a result is.
        if type(node.do) is Call:
            self._todo.append((self._need_call, graph, node))
        else:
            self._need(graph, (node.name,))

    def _acts(self, node: Node, effect: NodeEffects) -> bool:
        do = node.do
        if type(do) is Call and (do.graph in self.preserved or do.instance.path in self.parts):
            return True
        if is_boundary(node) or not self.preserved.isdisjoint(node.bodies):
            return True
        return not computes(evolve(effect, writes=()))

    def _touch(self, graph: str, name: str) -> None:
        # Writers of memory that a needed node reads are needed.
        writers = self._writers.get(graph)
        if writers:
            for writer in writers.pop(self._memory[graph].find(name), ()):
                self._need_node(graph, self.program.graphs[graph].by_name[writer])


def bodies_with_boundaries(program: Program) -> frozenset[str]:
    """Return the bodies that contain boundaries of preserved calls, directly or through others.

    >>> bodies_with_boundaries(Program.of({"": Graph((), (), ())}))
    frozenset()
    """
    order = program.order if len(program.call_signatures) else ()
    own = [name for name in order if any(map(is_boundary, program.graphs[name].nodes))]
    return reaching(program, own)


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "an output or an effect needs every remaining node",
        "no node is added, and the remaining nodes keep their operators",
        "inputs and outputs of the program stay",
    ],
)
def eliminate_dead_code(
    program: Program, *, state: bool = False, fuel: Fuel = UNLIMITED
) -> Program:
    """Remove nodes that neither an output nor an effect of the program needs.

    Before::

        y, z = call mlp -> mlp (x, w)           # nothing uses z; the body does not use w
        n = aten.neg.default(x)                 # unused
        return y

    After::

        y = call mlp -> mlp (x)
        return y

    Writes, random draws (they advance the generator), ordered operators (assertions, prints, communication, operators of other
    libraries), regions and operators with unknown effects stay, with all of their operands.  A write is dropped if its memory is
    visible neither to the caller, nor in the state, nor to a needed value.  A shared body keeps the inputs and results that one
    of its calls needs.  The inputs and outputs of the program, of operators' bodies and of calls with a preserved signature stay;
    so do parts of a split program.

    Args:
        program: a program at any stage.
        state: whether to drop unused state, and modules that are neither called nor have state.  The ``state_dict`` of the
            lowered module then has fewer entries, and a checkpoint of the whole model no longer loads with ``strict=True``.
        fuel: a rewrite is all dead code, or one piece of state.

    Returns:
        The program without dead code.

    >>> import purefx as px
    >>> nodes = tuple(px.Node(name, px.Op("toy.neg"), (px.Ref("x"),)) for name in "ab")
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref("b"),))})
    >>> [node.name for node in px.eliminate_dead_code(program).main.nodes]
    ['b']
    """
    result = program
    # A dropped node may have joined two memories: then a write to one of them is no longer visible.
    while (smaller := _without_dead(result, fuel)) is not result:
        result = smaller
    return _without_state(result, fuel) if state else result


def _without_dead(program: Program, fuel: Fuel) -> Program:
    found = Liveness(program)
    made = program.with_graphs(
        {name: _Sweep(program, name, found).run() for name in program.order}
    ).pruned()
    return made if made is program or fuel.burn("remove dead code") else program


class _Sweep:
    """Drops the dead code of one graph."""

    def __init__(self, program: Program, name: str, found: Liveness) -> None:
        self.program = program
        self.name = name
        self.found = found
        self.graph = program.graphs[name]
        self.needed = found.values[name]
        self.edit = Rewriter(self.graph)

    def run(self) -> Graph:
        """Return the graph without dead code; the same object if it has none."""
        graph, edit, calls = self.graph, self.edit, self.found.calls[self.name]
        edit.erase(
            *[
                node.name
                for node in graph.nodes
                if node.name not in self.needed and node.name not in calls
            ]
        )
        for number, node in enumerate(graph.nodes if calls else ()):
            if node.name in calls:
                self._adjust(number, node)
        if self.name in self.found.fixed:
            return edit.graph()
        inputs = tuple([formal for formal in graph.inputs if formal.name in self.needed])
        left, results = self._left(self.name), graph.results
        if left is None:
            return edit.graph(inputs=inputs)
        return edit.graph(
            inputs=inputs,
            output=results[left[0]]
            if self._is_one(self.name)
            else tuple([results[k] for k in left]),
        )

    def _left(self, body: str) -> list[int] | None:
        # The needed results of a body, if some are not needed.
        results, needed = self.program.graphs[body].results, self.found.results[body]
        return None if body in self.found.fixed or len(needed) == len(results) else sorted(needed)

    def _is_one(self, body: str) -> bool:
        # Whether a body will return its single result without a tuple.
        left, results = self._left(body), self.program.graphs[body].results
        return left is not None and len(left) == 1 and type(results[left[0]]) is Ref

    def _adjust(self, number: int, call: Node) -> None:
        # Adapt the arguments and results of a call to the new body.
        assert type(call.do) is Call
        body, edit = call.do.graph, self.edit
        formals, needed = self.program.graphs[body].inputs, self.found.values[body]
        args = tuple(
            [arg for formal, arg in zip(formals, call.args, strict=True) if formal.name in needed]
        )
        call = (
            call
            if body in self.found.fixed or len(args) == len(call.args)
            else call.evolve(args=args)
        )
        left = self._left(body)
        if left is None:
            edit.put(number, call)
            return
        call, items = (
            call.evolve(meta=_meta_of_some(call.meta, left, one=self._is_one(body))),
            self._items(call.name),
        )
        if self._is_one(body):
            for node in items:
                edit.drop(node.name, Ref(items[0].name))
            edit.put(number, call.evolve(name=items[0].name, meta=items[0].meta) if items else call)
            return
        edit.put(number, call)
        width = len(self.program.graphs[body].results)
        for node in items:
            place = node.item[1] % width
            edit.put(
                edit.position[node.name], node.evolve(args=(Ref(call.name), left.index(place)))
            )

    def _items(self, call: str) -> list[Node]:
        users = self.graph.users_of(call)
        return [node for node in users if node.name in self.needed and node.projection is not None]


def _meta_of_some(meta: Meta, left: list[int], *, one: bool) -> Meta:
    # The metadata of a call that returns fewer results.
    known = meta.get("val") if left or "val" not in meta else ()
    if type(known) is not tuple or not all(number < len(known) for number in left):
        return meta
    values = known[left[0]] if one else tuple([known[number] for number in left])
    return MappingProxyType({**meta, "val": values})


# -- state ----------------------------------------------------------------------------------------------------------------------


def _without_state(program: Program, fuel: Fuel) -> Program:
    state, used = program.state, state_uses(program)
    gone = {name for name in state.order if name not in used and fuel.burn("remove state", name)}
    modules = _modules_used(
        program, {name: slot for name, slot in state.pairs if name not in gone}, fuel
    )
    if not gone and len(modules) == len(program.modules):
        return program
    return without_slots(program, gone).evolve(modules=modules)


def _modules_used(program: Program, slots: Mapping[str, object], fuel: Fuel) -> tuple[Module, ...]:
    paths = [frame.path for frame in (*module_calls(program), *program.call_signatures)]
    paths += [parent_of(name) for name in slots] + [
        name for name in program.state.modules if name in slots
    ]
    paths += [module.path for module in program.modules if module.type_name == PART]
    used = {"", *(above for path in dict.fromkeys(paths) for above in way_to(path))}
    return tuple(
        [
            one
            for one in program.modules
            if one.path in used or not fuel.burn("remove module", one.path)
        ]
    )
