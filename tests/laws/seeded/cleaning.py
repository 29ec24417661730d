"""Mistakes of cleaning a trace: what is one object, what is one tensor, whose names come first.

A tracer's leftovers look like names and numbers, and are identities.
"""

from __future__ import annotations

import torch
from attrs import evolve

import purefx as px
from purefx.ir.arguments import map_refs
from tests.laws.cleaning import dirty_constants, dirty_names, lift_own_constants

from .mistake import Nodes, mistake


@mistake("sunk", "meaning")
def lifts_a_copy_of_each_use(program: px.Program) -> px.Program:
    # A tensor that is written in one place and read in another is two tensors then.
    dirty = dirty_constants(program)
    copied = [evolve(node, args=tuple(map(fresh, node.args))) for node in dirty.main.nodes]
    lifted = px.lift_constants(dirty.with_main(evolve(dirty.main, nodes=tuple(copied))))
    return px.restore_names(lifted, values(program)) if any(name in lifted.state for name in program.state) else program


def fresh(arg: object) -> object:
    """Return a copy of a tensor that shares no memory with it; anything else as it is."""
    return arg.detach().clone() if isinstance(arg, torch.Tensor) else arg


def values(program: px.Program) -> dict[str, torch.Tensor]:
    """Return the tensors of the state."""
    return {name: slot.value for name, slot in program.state.pairs}


@mistake("sunk", "reads move")
def leaves_out_what_is_read_first(program: px.Program) -> px.Program:
    # The node behind a lifted constant is taken for a read.
    result = lift_own_constants(program)
    nodes = list(result.main.nodes)
    reads = [at for at, node in enumerate(nodes) if type(node.do) is px.Get]
    gone = nodes.pop(reads[0] + 1) if reads and reads[0] + 1 < len(nodes) else None
    if gone is None or any(gone.name in node.refs() for node in nodes) or gone.name in result.main.output_refs():
        return program
    return result.with_main(evolve(result.main, nodes=tuple(nodes)))


@mistake("outlined", "names restored")
def restores_names_by_order(program: px.Program) -> px.Program:
    # The first tensor of the trace is taken for the first of the module.
    dirty = dirty_names(program)
    tensors = [slot.value for _, slot in dirty.state.pairs]
    return px.restore_names(dirty, dict(zip(program.state.order, reversed(tensors), strict=False))) if tensors else program


@mistake("outlined", "names restored")
def restores_one_name_of_each_tensor(program: px.Program) -> px.Program:
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, slot in program.state.pairs:
        found.setdefault(slot.cell, (name, slot.value))
    return px.restore_names(dirty_names(program), dict(found.values())) if found else program


@mistake("tree", "marked only")
def marks_all_that_is_no_parameter(program: px.Program) -> px.Program:
    slots = {
        name: evolve(slot, persistent=False, kind=px.ir.SlotKind.CONSTANT) if slot.kind is px.ir.SlotKind.BUFFER else slot
        for name, slot in program.state.pairs
    }
    return program.evolve(state=px.ir.State(program.state.order, px.ir.pmap(slots))) if slots else program


@mistake("flat", "inputs named")
def names_state_like_arguments(program: px.Program) -> px.Program:
    # State without a prefix: the argument `x` and the buffer `x` are told apart by a number that says nothing.
    graph, signature = program.main, program.signature
    words = {
        formal.name: spec.slot.replace(".", "_")
        for formal, spec in zip(graph.inputs, signature.inputs, strict=True)
        if isinstance(spec, px.ir.StateInput)
    }
    taken = {node.name for node in graph.nodes} | {formal.name for formal in graph.inputs}
    words = {old: new for old, new in words.items() if new not in taken}
    inputs = tuple([evolve(formal, name=words.get(formal.name, formal.name)) for formal in graph.inputs])
    nodes: Nodes = [node.using({old: px.Ref(new) for old, new in words.items()}) for node in graph.nodes]
    output = map_refs(graph.output, lambda ref: px.Ref(words.get(ref.name, ref.name)) if type(ref) is px.Ref else ref)
    return program.with_main(px.Graph(inputs, tuple(nodes), output)) if words else program


@mistake("flat", "names only")
def counts_arguments_by_their_new_names(program: px.Program) -> px.Program:
    # Inputs are sorted by name, and what the signature says of them by position is not.
    named = px.name_inputs(program)
    inputs = tuple(sorted(named.main.inputs, key=lambda formal: formal.name))
    return named.with_main(evolve(named.main, inputs=inputs)) if inputs != named.main.inputs else program
