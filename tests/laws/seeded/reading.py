"""Mistakes with state: where it is read, under which name, and what is one tensor.

A slot is a name, a tensor and a memory, and those are three things.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px

from .mistake import Nodes, mistake, values_used, with_nodes


@mistake("in place", "reads below")
def sinks_to_the_first_user(program: px.Program) -> px.Program:
    result = px.sink_state(program)
    stacks = {name: node.stack for node in reversed(result.main.nodes) for name in node.refs()}
    nodes = [
        evolve(node, stack=stacks.get(node.name, ())) if type(node.do) is px.Get else node for node in result.main.nodes
    ]  # fmt: skip
    return with_nodes(result, nodes)


@mistake("flat", "valid")
def sinks_without_counting_anew(program: px.Program) -> px.Program:
    result = px.sink_state(program)
    return (
        result.evolve(signature=evolve(result.signature, outputs=program.signature.outputs)) if result is not program else result
    )


@mistake("sunk", "valid")
def lifts_without_counting_anew(program: px.Program) -> px.Program:
    result = px.lift_state(program)
    return result if result is program else result.evolve(signature=evolve(result.signature, inputs=program.signature.inputs))


@mistake("sunk", "meaning")
def unties_state(program: px.Program) -> px.Program:
    seen: set[int] = set()
    slots: dict[str, px.ir.Slot] = {}
    for number, (name, slot) in enumerate(program.state.pairs):
        own = slot.storage in seen
        value = slot.value.detach().clone() if own else slot.value
        slots[name] = evolve(slot, value=value, cell=100 + number, storage=100 + number) if own else slot
        seen.add(slot.storage)
    return program.evolve(state=px.ir.State(program.state.order, px.ir.pmap(slots)))


@mistake("sunk", "meaning")
def forgets_state_that_nobody_reads(program: px.Program) -> px.Program:
    # It is in the state_dict of the original all the same.
    read = {node.do.slot for node in program.main.nodes if type(node.do) is px.Get}
    slots = {name: slot for name, slot in program.state.pairs if name in read}
    return program if len(slots) == len(program.state) else program.evolve(state=px.ir.State(tuple(slots), px.ir.pmap(slots)))


@mistake("flat", "all read")
def reads_what_nobody_uses(program: px.Program) -> px.Program:
    # Every input that was state becomes a read, used or not.
    result = px.sink_state(program)
    used = values_used(program)
    unused: Nodes = [
        px.Node(formal.name, px.Get(spec.slot))
        for formal, spec in zip(program.main.inputs, program.signature.inputs, strict=True)
        if type(spec) is px.ir.StateInput and formal.name not in used
    ]
    return with_nodes(result, [*unused, *result.main.nodes]) if unused else result
