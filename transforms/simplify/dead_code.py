"""``eliminate_dead_code``: what neither an output nor an effect needs goes, in all bodies at once.

What is needed is told by ``liveness``; here the rest is taken out: nodes, results and inputs of bodies with what calls pass for
them, bodies that nothing calls any more, and on request state and modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...ir.arguments import Ref
from ...ir.calls.call_graph import module_calls
from ...ir.calls.parts import PART
from ...ir.graph import Call, Graph, Node
from ...ir.meta import Meta
from ...ir.names import way_to
from ...ir.program import Module, Program
from ...ir.rewriter import Rewriter
from ...ir.signature import StateGradient, StateInput, StateMutation
from ...ir.state_changes import state_uses, without_slots
from ..transformation import UNLIMITED, Fuel, transformation
from .liveness import Liveness, results_of

__all__ = ["eliminate_dead_code"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "what is left is needed by an output or an effect",
        "no node is added, and none changes what it does",
        "inputs and outputs of the program stay",
    ],
)
def eliminate_dead_code(program: Program, *, state: bool = False, fuel: Fuel = UNLIMITED) -> Program:
    """Remove what neither an output nor an effect of the program needs.

    Before::

        y, z = call mlp -> mlp (x, w)           # nothing uses z; the body does not use w
        n = aten.neg.default(x)                 # unused
        return y

    After::

        y = call mlp -> mlp (x)
        return y

    Writes, random draws (they move the generator on), operators in order (assertions, prints, communication, operators of
    other libraries), regions and operators with unknown effects stay, with all that they need; a write stays unless it is to
    memory that neither the caller, nor the state, nor anything that is needed sees.  A body that several calls share keeps the
    inputs and results that one of them needs.  The inputs and outputs of the program, of operators' bodies and of calls with a
    preserved signature stay; so do parts of a split program.

    Args:
        program: a program at any stage.
        state: whether state that nothing reads goes, with the modules that are neither called nor hold any: then the
            ``state_dict`` of the lowered module has fewer entries, and a checkpoint of the whole model is no longer loaded
            with ``strict=True``.  By default state and modules stay.
        fuel: a rewrite is all that nothing needs, or one piece of state that goes.

    Returns:
        The program with what is needed.

    >>> import purefx as px
    >>> nodes = tuple(px.Node(name, px.Op("toy.neg"), (px.Ref("x"),)) for name in "ab")
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref("b"),))})
    >>> [node.name for node in px.eliminate_dead_code(program).main.nodes]
    ['b']
    """
    result = program
    # What goes may be all that joined two memories: then a write to one of them is not seen any more.
    while (smaller := _without_dead(result, fuel)) is not result:
        result = smaller
    return _without_state(result, fuel) if state else result


def _without_dead(program: Program, fuel: Fuel) -> Program:
    found = Liveness(program)
    made = program.with_graphs({name: _Sweep(program, name, found).run() for name in program.order}).pruned()
    if made is program or fuel.burn("remove what nothing needs", f"({_size(program) - _size(made)} nodes)"):
        return made
    return program


def _size(program: Program) -> int:
    return sum(len(program.graphs[name].nodes) for name in program.order)


# -- taking it out --------------------------------------------------------------------------------------------------------------


class _Sweep:
    """Takes out of one graph what is not needed."""

    def __init__(self, program: Program, name: str, found: Liveness) -> None:
        self.program = program
        self.name = name
        self.found = found
        self.graph = program.graphs[name]
        self.needed = found.values[name]
        self.edit = Rewriter(self.graph)

    def run(self) -> Graph:
        """Return what is left of the graph; the same object if that is all."""
        graph, edit, calls = self.graph, self.edit, self.found.calls[self.name]
        edit.erase(*[node.name for node in graph.nodes if node.name not in self.needed and node.name not in calls])
        for number, node in enumerate(graph.nodes if calls else ()):
            if node.name in calls:
                self._adjust(number, node)
        if self.name in self.found.fixed:
            return edit.graph()
        inputs = tuple([formal for formal in graph.inputs if formal.name in self.needed])
        inputs = graph.inputs if len(inputs) == len(graph.inputs) else inputs
        left, results = self._left(self.name), results_of(graph)
        if left is None:
            return edit.graph(inputs=inputs)
        return edit.graph(
            inputs=inputs, output=results[left[0]] if self._is_one(self.name) else tuple([results[k] for k in left])
        )

    def _left(self, body: str) -> list[int] | None:
        # The results that a body still gives, if they are fewer than before.
        results, needed = results_of(self.program.graphs[body]), self.found.results[body]
        return None if body in self.found.fixed or len(needed) == len(results) else sorted(needed)

    def _is_one(self, body: str) -> bool:
        # Whether a body gives its one result itself from now on.
        left, results = self._left(body), results_of(self.program.graphs[body])
        return left is not None and len(left) == 1 and type(results[left[0]]) is Ref

    def _adjust(self, number: int, call: Node) -> None:
        # What a call passes and is given back, as its body takes and gives it from now on.
        assert type(call.do) is Call
        body, edit = call.do.graph, self.edit
        formals, needed = self.program.graphs[body].inputs, self.found.values[body]
        args = tuple([arg for formal, arg in zip(formals, call.args, strict=True) if formal.name in needed])
        call = call if body in self.found.fixed or len(args) == len(call.args) else call.evolve(args=args)
        left = self._left(body)
        if left is None:
            edit.put(number, call)
            return
        call, items = call.evolve(meta=_meta_of_some(call.meta, left, one=self._is_one(body))), self._items(call.name)
        if self._is_one(body):
            for node in items:
                edit.drop(node.name, Ref(items[0].name))
            edit.put(number, call.evolve(name=items[0].name, meta=items[0].meta) if items else call)
            return
        edit.put(number, call)
        width = len(results_of(self.program.graphs[body]))
        for node in items:
            place = (node.projection or ("", 0))[1] % width
            edit.put(edit.position[node.name], node.evolve(args=(Ref(call.name), left.index(place))))

    def _items(self, call: str) -> list[Node]:
        users = [self.graph.by_name[user] for user in self.graph.users.get(call, ()) if user in self.needed]
        return [node for node in users if node.projection is not None]


def _meta_of_some(meta: Meta, left: list[int], *, one: bool) -> Meta:
    # Of a call that gives fewer results; what is known of it besides their values stays.
    known = meta.get("val") if left or "val" not in meta else ()
    if type(known) is not tuple or not all(number < len(known) for number in left):
        return meta
    values = known[left[0]] if one else tuple([known[number] for number in left])
    return MappingProxyType({**meta, "val": values})


# -- state ----------------------------------------------------------------------------------------------------------------------


def _without_state(program: Program, fuel: Fuel) -> Program:
    program = _without_inputs(program, fuel)
    used = {*state_uses(program), *[spec.slot for spec in program.signature.inputs if type(spec) is StateInput]}
    state = program.state
    gone = {name for name in state.order if name not in used and fuel.burn("remove state", name)}
    kept = {name: slot for name, slot in state.pairs if name not in gone}
    modules = _modules_used(program, kept, fuel)
    if not gone and len(modules) == len(program.modules):
        return program
    return without_slots(program, gone).evolve(modules=modules)


def _without_inputs(program: Program, fuel: Fuel) -> Program:
    # Inputs that are state, which nothing uses.
    graph = program.main
    written = {spec.slot for spec in program.signature.outputs if isinstance(spec, StateMutation | StateGradient)}
    used = {*graph.users, *graph.output_refs()}
    gone = {
        formal.name
        for formal, spec in program.inputs
        if type(spec) is StateInput and formal.name not in used and spec.slot not in written
        if fuel.burn("remove input", formal.name)
    }
    if not gone:
        return program
    kept = [(formal, spec) for formal, spec in program.inputs if formal.name not in gone]
    root = graph.with_nodes(graph.nodes, inputs=tuple([formal for formal, _ in kept]))
    return program.with_boundary(root, [spec for _, spec in kept])


def _modules_used(program: Program, slots: Mapping[str, object], fuel: Fuel) -> tuple[Module, ...]:
    paths = [frame.path for frame in (*module_calls(program), *program.call_signatures)]
    paths += [name.rpartition(".")[0] for name in slots] + [name for name in program.state.modules if name in slots]
    paths += [module.path for module in program.modules if module.type_name == PART]
    used = {"", *(above for path in dict.fromkeys(paths) for above in way_to(path))}
    return tuple([one for one in program.modules if one.path in used or not fuel.burn("remove module", one.path)])
