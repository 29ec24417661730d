"""The clean-up passes as transformations without arguments, and what holds for them beyond the generic laws.

A program is made dirty as a tracer would have left it (constants among the arguments, names of a tracer), and cleaned;
what comes out must be the program that it was.  It shares no code with the passes.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Arg, Body, Ref, map_refs
from purefx.ir.calls.call_graph import all_instances
from purefx.ir.graph import Get, Graph, Node
from purefx.ir.names import FROM_ROOT, join
from purefx.ir.persistent import pmap
from purefx.ir.program import Program
from purefx.ir.signature import StateGradient, StateInput, StateMutation, SunkInput, Token
from purefx.ir.state import Slot, State
from purefx.ir.tensors import cell_key
from purefx.laws.law import Case, Transform
from purefx.laws.variants import canonical
from purefx.transforms import Transformation, lift_constants, restore_names
from tests.laws.aimed import law

OF_STATE = (StateInput, StateMutation, StateGradient)


def dirty_constants(program: Program) -> Program:
    """Return a program with tensors among the arguments instead of in the state; the same object if it has none to move."""
    places = all_instances(program)
    chosen = _movable(program, places)
    if not chosen:
        return program
    graphs = {
        name: _with_literals(program.graphs[name], places[name], chosen) for name in program.order
    }
    slots = {name: slot for name, slot in program.state.pairs if name not in chosen}
    lifted = tuple([place for place in program.signature.lifted if place.slot not in chosen])
    state = State(tuple(slots), pmap(slots))
    return program.evolve(
        graphs=pmap(graphs), state=state, signature=evolve(program.signature, lifted=lifted)
    )


def _movable(program: Program, places: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    # Tensors that nothing else is a second name or window of, and that reads name alone.
    state, signature = program.state, program.signature
    named = {
        spec.slot for spec in (*signature.inputs, *signature.outputs) if isinstance(spec, OF_STATE)
    }
    keys = [cell_key(slot.value)[0] for _, slot in state.pairs]
    read: set[str] = set()
    given = {name: set(program.graphs[name].output_refs()) for name in program.order}
    for name, node in program.nodes():
        if type(node.do) is Get:
            found = {join(place, node.do.slot) for place in places[name]}
            inside = node.name in program.graphs[name].users and node.name not in given[name]
            (read if len(found) == 1 and inside else named).update(found)
    return {
        name: slot.value
        for name, slot in state.pairs
        if name in read - named
        and isinstance(slot.value, torch.Tensor)
        and keys.count(cell_key(slot.value)[0]) == 1
    }


def _with_literals(graph: Graph, places: tuple[str, ...], chosen: dict[str, Any]) -> Graph:
    values = {
        node.name: chosen[slot]
        for node in graph.nodes
        if type(node.do) is Get and (slot := join(places[0], node.do.slot)) in chosen
    }

    def known(ref: Ref | Body) -> Arg:
        return values.get(ref.name, ref) if type(ref) is Ref else ref

    if not values:
        return graph
    nodes = [node.with_refs(known) for node in graph.nodes if node.name not in values]
    return Graph(graph.inputs, tuple(nodes), map_refs(graph.output, known))


def _values(program: Program) -> dict[str, Any]:
    return {
        name: slot.value
        for name, slot in program.state.pairs
        if isinstance(slot.value, torch.Tensor)
    }


def _lift_own_constants(program: Program) -> Program:
    dirty = dirty_constants(program)
    if dirty is program:
        return program
    result = restore_names.apply(lift_constants.apply(dirty), _values(program))
    # A tensor among the arguments does not say whether it was a buffer.
    pairs = [(name, slot, program.state.slots.get(name, slot)) for name, slot in result.state.pairs]
    slots = {
        name: evolve(slot, kind=was.kind, persistent=was.persistent) for name, slot, was in pairs
    }
    result = result.evolve(state=State(result.state.order, pmap(slots)))
    return program if result == program else _with_old_graphs(result, program)


def _with_old_graphs(result: Program, program: Program) -> Program:
    # Graphs that were made dirty and are clean again are those that they were.
    same = {
        name: graph for name, graph in program.graphs.items() if result.graphs.get(name) == graph
    }
    return result.evolve(graphs=result.graphs.update(same))


lift_own_constants: Transformation = evolve(lift_constants, apply=_lift_own_constants)
"""``lift_constants`` of a program whose own constants were put among the arguments; they get their names back."""


def dirty_names(program: Program) -> Program:
    """Return a program whose state is called as a tracer calls it, each tensor by one name where that is enough."""
    places = all_instances(program)
    used = {
        spec.slot
        for spec in (*program.signature.inputs, *program.signature.outputs)
        if isinstance(spec, OF_STATE)
    }
    used |= {place.slot for place in program.signature.lifted}
    used |= {
        join(place, node.do.slot)
        for name, node in program.nodes()
        if type(node.do) is Get
        for place in places[name]
    }
    names: dict[str, str] = {}
    slots: dict[str, Slot] = {}
    for name, slot in program.state.pairs:
        tied = [new for new in slots if slots[new].cell == slot.cell]
        if tied and name not in used and slots[tied[0]] == slot:
            continue
        names[name] = f"_tensor{len(names)}"
        slots[names[name]] = slot
    return _renamed(program, names, State(tuple(slots), pmap(slots)), places)


def _renamed(
    program: Program, names: dict[str, str], state: State, places: dict[str, tuple[str, ...]]
) -> Program:
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph, place = program.graphs[name], places[name][0]
        root = "" if not place else FROM_ROOT
        nodes: list[Node] = []
        for node in graph.nodes:
            if type(node.do) is Get:
                slot = names[join(place, node.do.slot)]
                node = Node(node.name, Get(root + slot), (), (), node.stack, node.meta)
            nodes.append(node)
        graphs[name] = Graph(graph.inputs, tuple(nodes), graph.output)

    def spec(one: Any) -> Any:
        return evolve(one, slot=names[one.slot]) if isinstance(one, (*OF_STATE, SunkInput)) else one

    signature = program.signature
    new = evolve(
        signature,
        inputs=tuple(map(spec, signature.inputs)),
        outputs=tuple(map(spec, signature.outputs)),
        lifted=tuple(map(spec, signature.lifted)),
    )
    return program.evolve(graphs=pmap(graphs), state=state, signature=new)


def _restore_own_names(program: Program) -> Program:
    if not _is_renamed(program):
        return program
    result = restore_names.apply(dirty_names(program), _values(program))
    return program if result == program else _with_old_graphs(result, program)


def _is_renamed(program: Program) -> bool:
    return (
        bool(program.state.order)
        and len(_values(program)) == len(program.state)
        and not _shares(program)
    )


def _shares(program: Program) -> bool:
    return any(len(places) > 1 for places in all_instances(program).values())


restore_own_names: Transformation = evolve(restore_names, apply=_restore_own_names)
"""``restore_names`` of a program whose state was called as a tracer calls it, with the names that it had."""


@law("nothing but reads of constants is added, removed or moved")
def reads_move(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found: list[str] = []
    for name in before.order:
        mine, theirs = (_but_reads(program.graphs[name].nodes) for program in (after, before))
        found += (
            []
            if mine == theirs
            else [f"in the graph {name!a} something other than reads was added, removed or moved"]
        )
    return found


def _but_reads(nodes: tuple[Node, ...]) -> list[tuple[object, ...]]:
    return [
        (node.name, node.do, node.stack, len(node.args))
        for node in nodes
        if type(node.do) is not Get
    ]


@law("state that lost its names gets them back")
def names_restored(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    found = [] if result.state == program.state else ["the state has other names"]
    same = canonical(_by_tensor(result)) == canonical(_by_tensor(program))
    return found if same else [*found, "the program reads other state than it did"]


def _by_tensor(program: Program) -> Program:
    # Which of its names a tensor is read by is lost with the names: each read has the first one.
    first: dict[int, str] = {}
    names = {name: first.setdefault(slot.cell, name) for name, slot in program.state.pairs}
    graphs: dict[str, Graph] = {}
    for name, (path, *_) in all_instances(program).items():
        graph = program.graphs[name]
        slots = {
            node.name: names.get(join(path, node.do.slot))
            for node in graph.nodes
            if type(node.do) is Get
        }
        nodes = [
            node.evolve(do=Get(slot)) if (slot := slots.get(node.name)) is not None else node
            for node in graph.nodes
        ]
        graphs[name] = graph.with_nodes(nodes)
    return program.with_graphs(graphs)


@law("nothing but names of values changes")
def names_only(transform: Transform, case: Case) -> list[str]:
    same = canonical(transform(case.program)) == canonical(case.program)
    return [] if same else ["something other than names of values is another"]


@law("an input has the name of its argument or state, with a number where two would")
def inputs_named(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found: list[str] = []
    for formal, spec in result.inputs:
        if isinstance(spec, StateInput):
            wanted = (
                f"{result.state[spec.slot].kind.value[0]}_{re.sub('[^0-9A-Za-z]', '_', spec.slot)}"
            )
        else:
            wanted = (
                "token"
                if isinstance(spec, Token)
                else formal.name
                if not spec.argument.isidentifier()
                else spec.argument
            )
        rest = formal.name.removeprefix(wanted.lower())
        if rest and not (rest != formal.name and rest[0] == "_" and rest[1:].isdecimal()):
            found.append(f"an input is called {formal.name}, not {wanted}")
    return found
