"""Laws of the clean-up: what is left is needed, once, and in one order.

Each is asked of the result alone or of both programs, and shares no code with the transformations.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from types import MappingProxyType

import torch

from ..ir.analysis.digest import digest
from ..ir.arguments import Items, Ref, bodies_in
from ..ir.effects.aliases import slot_storage, storages
from ..ir.effects.declared import PURE
from ..ir.effects.resolved import node_effects
from ..ir.graph import Call, Get, Graph, Node, Op
from ..ir.operators import op_of
from ..ir.own_operators import is_boundary
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from ..ir.signature import StateGradient, StateInput, StateMutation
from ..ir.state import SlotKind
from .aims import without_writes
from .evaluate import meaning_differences
from .law import Case, Transform, law
from .toy import CLONE
from .variants import reordered

__all__ = [
    "all_needed",
    "boundary_stays",
    "computed_once",
    "constants_added",
    "copies_fold",
    "nodes_same",
    "nothing_new",
    "orders_agree",
    "repeats_go",
    "sharing_stays",
    "views_go",
]


def _repeated(program: Program) -> Program:
    # Of the values that nobody writes or hands out, every second use is of a copy that is computed where it is used.
    graphs = {name: _with_repetitions(program, program.graphs[name]) for name in program.order}
    return program.with_graphs(graphs)


def _with_repetitions(program: Program, graph: Graph) -> Graph:
    effects = node_effects(program, graph)
    acts = any(does.writes or does.writes_slots or does.scope != (0, 0) or does.completes for does in effects)
    if acts:
        return graph
    memory = storages(program, graph, effects)
    given = {memory.find(name) for name in graph.output_refs()}
    pure = {node.name: node for node in graph.nodes if type(node.do) is Op and node.do.effects == PURE}
    pure = {name: node for name, node in pure.items() if memory.find(name) not in given}
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        for name in dict.fromkeys(node.refs()):
            if name in pure and graph.users[name][0] != node.name:
                copy = pure[name].evolve(name=edit.names.fresh(name))
                edit.before(number, copy)
                edit.use(number, name, Ref(copy.name))
    return edit.graph()


def _repeated_without_writes(program: Program) -> Program:
    return _repeated(without_writes(program))


def _with_views(program: Program) -> Program:
    # Of values of the root that nobody writes or hands out.
    graph, effects = program.main, node_effects(program, program.main)
    memory = storages(program, graph, effects)
    if any(does.scope != (0, 0) for of in program.order for does in node_effects(program, program.graphs[of])):
        return program
    seen = {memory.find(name) for does in effects for name in (*does.writes, *does.completes)}
    seen.update(memory.find(name) for name in graph.output_refs())
    seen.update(memory.find(slot_storage(program, slot)) for does in effects for slot in does.writes_slots)
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        value = node.meta.get("val")
        plain = isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)
        known = any(is_boundary(graph.by_name[user]) for user in graph.users.get(node.name, ()))
        if plain and not known and memory.find(node.name) not in seen and isinstance(value, torch.Tensor):
            meta = MappingProxyType({**node.meta, MADE: True})
            view = Node(edit.names.fresh(node.name), VIEW, (Ref(node.name), Items(value.shape)), (), node.stack, meta)
            edit.after(number, view)
            edit.replace(node.name, Ref(view.name))
    return program.with_graphs({program.root: edit.graph()})


VIEW = op_of(torch.ops.aten.view.default)


def _untidy(program: Program) -> Program:
    return _with_views(_repeated_without_writes(program))


@law("every node is used or does something, and every input and result of a body is used")
def all_needed(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    handed = {body for _, node in program.nodes() for body in bodies_in(node.args, node.kwargs)}
    taken = _results_taken(program)
    found: list[str] = []
    for name in program.order:
        graph = program.graphs[name]
        used = {*graph.users, *graph.output_refs()}
        for node, does in zip(graph.nodes, node_effects(program, graph), strict=True):
            acts = does.writes or does.writes_slots or does.random or does.ordered or does.domains or does.completes
            if node.name not in used and not (acts or does.scope != (0, 0) or _stays(program, node)):
                found.append(f"{name} / {node.name} is unused")
        if name not in handed and name != program.root:
            found += [f"{name} does not use its input {one.name}" for one in graph.inputs if one.name not in used]
            if type(graph.output) is tuple and None not in taken[name]:
                found += [f"nobody takes result {k} of {name}" for k in range(len(graph.output)) if k not in taken[name]]
    return found


def _stays(program: Program, node: Node) -> bool:
    # Boundaries and what contains them, and parts.
    if is_boundary(node):
        return True
    do = node.do
    if type(do) is Call and any(
        module.path == do.instance.path and module.type_name == "purefx.Part" for module in program.modules
    ):
        return True
    todo = [do.graph] if type(do) is Call else bodies_in(node.args, node.kwargs)
    bodies: list[Graph] = []
    while todo:
        bodies.append(program.graphs[todo.pop()])
        todo.extend(bodies[-1].callees)
    return any(is_boundary(inner) for body in bodies for inner in body.nodes)


def _results_taken(program: Program) -> dict[str, set[int | None]]:
    # Which results of each body its calls use; None where one uses them as one value.
    found: dict[str, set[int | None]] = {name: set() for name in program.order}
    for name in program.order:
        graph = program.graphs[name]
        calls = {node.name: node.do.graph for node in graph.nodes if type(node.do) is Call}
        for node in graph.nodes:
            item = node.projection
            for used in node.refs():
                if used in calls:
                    width = max(1, len(program.graphs[calls[used]].output)) if item is not None else 1
                    found[calls[used]].add(item[1] % width if item is not None else None)
        for used in graph.output_refs():
            if used in calls:
                found[calls[used]].add(None)
    return found


def _writes_nothing(transform: Transform, case: Case) -> bool:
    program = transform(case.program)
    effects = [does for name in program.order for does in node_effects(program, program.graphs[name])]
    return not any(does.writes or does.writes_slots for does in effects)


@law(
    "no operator of no effects at all does what an earlier one did, in programs that write nothing",
    where=_writes_nothing,
    aim=_repeated_without_writes,
)
def computed_once(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    found: list[str] = []
    for name in program.order:
        graph, seen = program.graphs[name], dict[object, str]()
        memory = storages(program, graph, node_effects(program, graph))
        given = {memory.find(output) for output in graph.output_refs()}
        for node in graph.nodes:
            if type(node.do) is Op and node.do.effects == PURE:
                # A preserved call computes what it gives, and says by itself what it takes.
                within = tuple(frame for frame in node.stack if frame in program.call_signatures)
                first = seen.setdefault((Node("", node.do, node.args, node.kwargs), within), node.name)
                # Where both are handed out, or views of both, they are two tensors to whoever gets them.
                if first != node.name and not {memory.find(first), memory.find(node.name)} <= given:
                    found.append(f"{name} / {node.name} is computed a second time")
            elif type(node.do) is Op and node.do.effects.scope:
                seen.clear()
    return found


@law("where nodes were repeated before, it is the program without the repetitions, and means the same")
def repeats_go(transform: Transform, case: Case) -> list[str]:
    result, again = transform(case.program), transform(_repeated(case.program))
    if digest(result) != digest(again):
        return [f"with nodes repeated it becomes another program:\n{again}"]
    return meaning_differences(case.meaning(again), case.meaning(case.program), tolerance=case.tolerance)


@law("legal orders of one program become one program, to the names of the nodes")
def orders_agree(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found: list[str] = []
    for seed in range(case.seed, case.seed + ORDERS):
        other = transform(reordered(case.program, seed=seed))
        if digest(other) != digest(result):
            found.append(f"another order has another digest:\n{other}")
        elif other != result:
            found.append(f"another order has other names:\n{other}")
    return found


ORDERS = 4


@law("nodes have another place and another name, and nothing else")
def nodes_same(transform: Transform, case: Case) -> list[str]:
    def shown(program: Program) -> Counter[str]:
        nodes = [f"{name}: {node.do!r} {[str(frame) for frame in node.stack]}" for name, node in program.nodes()]
        return Counter(nodes)

    before, after = shown(case.program), shown(transform(case.program))
    return [f"{line} is on one side only" for line in ((before - after) + (after - before))]


@law("views to the same sizes that are put in go again, and the values are the same to the last bit")
def views_go(transform: Transform, case: Case) -> list[str]:
    dirty = _with_views(case.program)
    result = transform(dirty)
    found = [f"{node.name} changes nothing" for _, node in result.nodes() if node.meta.get(MADE)]
    return found or meaning_differences(case.meaning(result), case.meaning(case.program), tolerance=case.tolerance)


MADE = "copied_by_the_law"


def _with_copies(program: Program) -> Program:
    # Users of constants of the root that nothing writes use copies of them; not those of which a value may be a view that may be
    # one of something else as well, which is then as good as handed out.
    graph, effects = program.main, node_effects(program, program.main)
    memory = storages(program, graph, effects)
    if any(does.writes or does.writes_slots or does.scope != (0, 0) or does.completes for does in effects):
        return program
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    slots.update({formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput})
    written = {spec.slot for spec in program.signature.outputs if isinstance(spec, StateMutation | StateGradient)}
    cells = {program.state[slot].storage for slot in written}
    given = {memory.find(name) for name in graph.output_refs()}
    mixed = {one for views in _views(program).values() if len(views) > 1 for one in views}
    edit = Rewriter(graph)
    for name, slot in slots.items():
        state = program.state[slot]
        free = state.kind in (SlotKind.BUFFER, SlotKind.CONSTANT) and state.storage not in cells
        inside = memory.find(name) not in given and slot_storage(program, slot) not in mixed
        if free and inside and isinstance(state.value, torch.Tensor):
            meta = MappingProxyType({**graph.metas[name], "val": graph.metas[name].get("val", state.value), MADE: True})
            users = [number for number, node in enumerate(graph.nodes) if name in node.refs() and not is_boundary(node)]
            copy = Node(edit.names.fresh(name), CLONE, (Ref(name),), (), (), meta)
            for number in users:
                edit.use(number, name, Ref(copy.name))
            edit.after(edit.position[name], *([copy] if users else []))
    return program.with_graphs({program.root: edit.graph()})


def _copying(program: Program) -> Program:
    return _with_copies(without_writes(program))


@law("what is computed of a constant and used inside is a constant, and means the same", aim=without_writes)
def copies_fold(transform: Transform, case: Case) -> list[str]:
    dirty = _with_copies(case.program)
    result = transform(dirty)
    left = [node for name in dirty.order for node in result.graphs[name].nodes if node.meta.get(MADE)]
    found = [f"{node.name} is computed of a constant" for node in left]
    return found or meaning_differences(case.meaning(result), case.meaning(case.program), tolerance=case.tolerance)


@law("state that was there stays, and what is added are constants", aim=_copying)
def constants_added(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.state, transform(case.program).state
    found = [f"{name} is another" for name in before if name not in after or after[name] is not before[name]]
    return found + [f"{name} is new" for name in after if name not in before and after[name].kind is not SlotKind.CONSTANT]


@law("outputs share memory as they did", aim=_untidy)
def sharing_stays(transform: Transform, case: Case) -> list[str]:
    before, after = _shared(case.program), _shared(transform(case.program))
    return [f"outputs {pair} come to share memory" for pair in sorted(after - before)]


def _shared(program: Program) -> set[tuple[int, int]]:
    # Two outputs may share memory where both may be views of one value; what holds two values is no bridge between them.
    views = _views(program)
    output = [views.get(arg.name, {arg.name}) if type(arg) is Ref else set() for arg in program.main.output]
    return {(one, other) for one, other in combinations(range(len(output)), 2) if output[one] & output[other]}


def _views(program: Program) -> dict[str, set[object]]:
    # What each value of the root may be a view of: inputs, state, and values that are views of nothing.
    graph, found = program.main, dict[str, set[object]]()
    known = {formal.name: spec.slot for formal, spec in program.inputs if isinstance(spec, StateInput)}
    for formal in graph.inputs:
        found[formal.name] = {slot_storage(program, known[formal.name]) if formal.name in known else formal.name}
    effects = dict(zip([node.name for node in graph.nodes], node_effects(program, graph), strict=True))
    for node in graph.nodes:
        does = effects[node.name]
        if type(node.do) is Get:
            found[node.name] = {slot_storage(program, node.do.slot)}
            continue
        own: object = node.name
        of, slots = does.aliases, does.aliases_slots
        if (item := node.projection) is not None and item[0] in effects and (results := effects[item[0]].results):
            shared = results[item[1] % len(results)]
            of, slots, own = shared.values, shared.slots, (item[0], shared.first)
        views = {one for name in of for one in found[name]} | {slot_storage(program, slot) for slot in slots}
        found[node.name] = views or {own}
    return found


@law("no node is added, and none does something else", aim=_untidy)
def nothing_new(transform: Transform, case: Case) -> list[str]:
    def shown(program: Program) -> Counter[str]:
        graphs = {name: program.graphs[name] for name in program.order}
        return Counter(
            f"{name}: {node.do.instance if type(node.do) is Call else node.do!r}"
            for name, graph in graphs.items()
            for node in graph.nodes
        )

    return [f"{line} was not there" for line in shown(transform(case.program)) - shown(case.program)]


@law("the inputs and outputs of the program stay", aim=_untidy)
def boundary_stays(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found: list[str] = []
    if [one.name for one in before.main.inputs] != [one.name for one in after.main.inputs]:
        found.append("the program has other inputs")
    if len(before.main.output) != len(after.main.output) or before.signature != after.signature:
        found.append("the program has other outputs, or another signature")
    return found
