"""Mistakes of what crosses between parts: values that are handed on, and numbers that are computed again.

A part runs on another machine, so what it takes must come from the one before it, and what it computes again must be
what the other computed.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.ir.arguments import replace_refs
from purefx.ir.calls.parts import parts
from purefx.transforms.transformation import Fuel

from .mistake import Nodes, mistake, with_nodes


@mistake("split", "straight")
def relays_all_but_the_last_skip(program: px.Program) -> px.Program:
    count = rewrites(px.relay_skips, program)
    return px.relay_skips(program, fuel=count - 1) if count else program


def rewrites(transform: px.Transformation, program: px.Program) -> int:
    """Return how many rewrites a transformation does."""
    fuel = Fuel(10_000)
    transform.spend(program, fuel)
    return len(fuel.labels)


@mistake("split", "meaning")
def gives_relayed_values_in_another_order(program: px.Program) -> px.Program:
    # The next part takes what it is given by position.
    result = px.relay_skips(program)
    if result is program:
        return program
    nodes: Nodes = []
    for before, node in zip((part.node for part in parts(program)), (part.node for part in parts(result)), strict=True):
        swapped = (
            evolve(node, args=(*node.args[:-2], node.args[-1], node.args[-2])) if len(node.args) > len(before.args) + 1 else node
        )
        nodes.append(swapped)
    return with_nodes(result, replaced(result, nodes))


def replaced(program: px.Program, calls: Nodes) -> Nodes:
    """Return the nodes of the root, with others for the calls."""
    by_name = {node.name: node for node in calls}
    return [by_name.get(node.name, node) for node in program.main.nodes]


@mistake("split", "nodes stay")
def relays_copies(program: px.Program) -> px.Program:
    # A part that hands a value on gives a copy of it, so that it may write to its own.
    result = px.relay_skips(program)
    graphs = {name: result.graphs[name] for name in result.order}
    for part in parts(result):
        body = graphs[part.graph]
        inputs = {formal.name for formal in body.inputs}
        handed = [name for name in dict.fromkeys(body.output_refs()) if name in inputs]
        copies = {name: f"{name}_copy" for name in handed}
        made = [px.Node(copies[name], px.Op("toy.copy", target=lambda value: value), (px.Ref(name),)) for name in handed]
        output = replace_refs(body.output, {name: px.Ref(copy) for name, copy in copies.items()})
        graphs[part.graph] = evolve(body, nodes=(*body.nodes, *made), output=output) if made else body
    return result.evolve(graphs=px.ir.pmap(graphs))


@mistake("split", "tensors stay")
def computes_what_is_cheap_again(program: px.Program) -> px.Program:
    # An operator of inputs alone is computed in the part that uses it: it is a tensor, though, and may draw.
    result = px.move_non_tensor_nodes(program)
    graphs = {name: result.graphs[name] for name in result.order}
    for before, after in zip(parts(result), parts(result)[1:], strict=False):
        first, second = graphs[before.graph], graphs[after.graph]
        given = {formal.name for formal in second.inputs}
        cheap = [
            node
            for node in first.nodes[:1]
            if type(node.do) is px.Op and set(node.refs()) <= given and node.name not in second.by_name
        ]
        free = [node for node in cheap if node.name not in given]
        graphs[after.graph] = evolve(second, nodes=(*free, *second.nodes)) if free else second
    return result.evolve(graphs=px.ir.pmap(graphs))
