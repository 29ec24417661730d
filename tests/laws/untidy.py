"""Programs that a clean-up has something to do in: what is computed twice, views that change nothing, copies of constants.

``with_...`` put them in where a program as it is allows it, for laws that say that they go; the others are aims, of programs
without writes.
"""

from __future__ import annotations

from types import MappingProxyType

import torch

from purefx.ir.arguments import Items, Ref
from purefx.ir.effects.declared import PURE
from purefx.ir.effects.resolved import node_effects, slot_storage, storages
from purefx.ir.graph import Get, Graph, Node, Op
from purefx.ir.operators import op_of
from purefx.ir.own_operators import is_boundary
from purefx.ir.program import Program
from purefx.ir.rewriter import Rewriter
from purefx.ir.signature import StateGradient, StateInput, StateMutation
from purefx.ir.state import SlotKind
from purefx.laws.toy import CLONE
from tests.laws.aims import without_writes

__all__ = [
    "MADE",
    "copied",
    "repeated",
    "repeated_for_nobody",
    "viewed",
    "views_of",
    "with_copies",
    "with_repetitions",
    "with_views",
]

MADE = "copied_by_the_law"
"""The meta of what was put in."""

VIEW = op_of(torch.ops.aten.view.default)


def with_repetitions(program: Program) -> Program:
    """Return a program in which every second use of what nobody writes or hands out is of a copy, computed where it is used."""
    graphs = {name: _with_each_again(program, program.graphs[name]) for name in program.order}
    return program.with_graphs(graphs)


def _with_each_again(program: Program, graph: Graph) -> Graph:
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


def repeated(program: Program) -> Program:
    """Return a program without writes, with repetitions."""
    return with_repetitions(without_writes(program))


def repeated_for_nobody(program: Program) -> Program:
    """Return a program without writes, with repetitions; in each graph something is computed once more that nobody uses."""
    program = repeated(program)
    return program.with_graphs({name: _with_one_again(program.graphs[name]) for name in program.order})


def _with_one_again(graph: Graph) -> Graph:
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        if type(node.do) is Op and node.do.effects == PURE and not is_boundary(node):
            edit.after(number, node.evolve(name=edit.names.fresh(node.name)))
            break
    return edit.graph()


def with_views(program: Program) -> Program:
    """Return a program whose root uses views to the same sizes, of values that nobody writes or hands out."""
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


def viewed(program: Program) -> Program:
    """Return a program without writes, with repetitions and views."""
    return with_views(repeated(program))


def with_copies(program: Program) -> Program:
    """Return a program in which users of constants of the root that nothing writes use copies of them.

    Not of those of which a value may be a view that may be one of something else as well: that is as good as handed out.
    """
    graph, effects = program.main, node_effects(program, program.main)
    memory = storages(program, graph, effects)
    if any(does.writes or does.writes_slots or does.scope != (0, 0) or does.completes for does in effects):
        return program
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    slots.update({formal.name: spec.slot for formal, spec in program.inputs if type(spec) is StateInput})
    written = {spec.slot for spec in program.signature.outputs if isinstance(spec, StateMutation | StateGradient)}
    cells = {program.state[slot].storage for slot in written}
    # What is a parameter under another name is trained.
    cells.update([state.storage for _, state in program.state.pairs if state.kind is SlotKind.PARAMETER])
    given = {memory.find(name) for name in graph.output_refs()}
    mixed = {one for views in views_of(program).values() if len(views) > 1 for one in views}
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


def copied(program: Program) -> Program:
    """Return a program without writes, with copies of constants."""
    return with_copies(without_writes(program))


def views_of(program: Program) -> dict[str, set[object]]:
    """Return what each value of the root may be a view of: inputs, state, and values that are views of nothing."""
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
