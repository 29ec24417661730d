"""Mistakes of transformations that put one value in the place of another, or arguments in another order.

A value is used by arguments, by what is inside arguments, and by the output; a view is right to remove, and
what used it must all be told.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.laws import toy

from .mistake import Nodes, mistake, resolved, using, with_nodes


def views(program: px.Program) -> set[str]:
    """Return the names of the views in the root: to use what they show instead is right."""
    return {node.name for node in program.main.nodes if node.do == toy.VIEW}


@mistake("flat", "valid")
def tells_nodes_but_not_the_output(program: px.Program) -> px.Program:
    gone = views(program)
    instead = resolved(list(program.main.nodes), gone)
    return with_nodes(
        program, [evolve(node, args=using(node.args, instead)) for node in program.main.nodes if node.name not in gone]
    )


@mistake("flat", "valid")
def looks_at_the_surface_of_arguments(program: px.Program) -> px.Program:
    # Operands of a cond are inside a tuple.
    gone = views(program)
    instead = resolved(list(program.main.nodes), gone)
    nodes: Nodes = []
    for node in program.main.nodes:
        args = tuple(using(arg, instead) if type(arg) is px.Ref else arg for arg in node.args)
        if node.name not in gone:
            nodes.append(evolve(node, args=args))
    return with_nodes(program, nodes).with_main(px.Graph(program.main.inputs, tuple(nodes), using(program.main.output, instead)))


@mistake("flat", "meaning")
def sorts_operands(program: px.Program) -> px.Program:
    # To find equal things sooner: right for a sum, and wrong for a pair that merely looks like one.
    nodes = [
        evolve(node, args=tuple(sorted(node.args, key=lambda ref: ref.name))) if node.do in (toy.ADD, toy.PAIR) else node
        for node in program.main.nodes
    ]
    return with_nodes(program, nodes)


@mistake("outlined", "meaning")
def sorts_what_bodies_take(program: px.Program) -> px.Program:
    # The inputs of bodies are brought into one order, the arguments of their calls are not.
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        called = name != program.root and not name.startswith("$")
        inputs = tuple(sorted(graph.inputs, key=lambda formal: formal.name)) if called else graph.inputs
        graphs[name] = graph if inputs == graph.inputs else evolve(graph, inputs=inputs)
    return program if all(graphs[name] is program.graphs[name] for name in graphs) else program.evolve(graphs=px.ir.pmap(graphs))


@mistake("flat", "meaning")
def exchanges_outputs(program: px.Program) -> px.Program:
    # The user's outputs are grouped: values first, constants after them.
    pairs = list(zip(program.main.output, program.signature.outputs, strict=True))
    pairs.sort(key=lambda pair: type(pair[0]) is not px.Ref)
    output, outputs = tuple(arg for arg, _ in pairs), tuple(spec for _, spec in pairs)
    if output == program.main.output:
        return program
    return program.with_main(evolve(program.main, output=output), signature=evolve(program.signature, outputs=outputs))
