"""Mistakes of splitting: what crosses a boundary, where the state is, and what the order of parts has to respect.

A part runs as a whole, so whatever is forgotten at its boundary is forgotten for all nodes behind it.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.ir.effects.declared import PURE
from purefx.laws.strategies.programs import legal_tags, split_somewhere

from .mistake import Nodes, mistake, with_nodes


@mistake("sunk", "meaning")
def splits_by_data_alone(program: px.Program) -> px.Program:
    # Nodes that only writes and draws keep in order are placed as if nothing did.
    known = {node.name: node.do for node in program.main.nodes}
    pure = [evolve(node, do=evolve(node.do, effects=PURE)) if is_simple(node) else node for node in program.main.nodes]
    bare = with_nodes(program, pure)
    tags, tag_of = legal_tags(bare, seed=3)
    return with_dos(px.split_by_tags(bare, tags, tag_of=tag_of), known)


def is_simple(node: px.Node) -> bool:
    """Say whether a node is an operator without bodies, and opens no region."""
    do = node.do
    return type(do) is px.Op and not do.effects.through_bodies and not do.effects.scope and do.name != "operator.getitem"


def with_dos(program: px.Program, known: dict[str, px.Node]) -> px.Program:
    """Return a program whose operators are those of another, by name of node."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        nodes = [evolve(node, do=known.get(node.name, node.do)) if is_simple(node) else node for node in graph.nodes]
        graphs[name] = evolve(graph, nodes=tuple(nodes))
    return program.evolve(graphs=px.ir.pmap(graphs))


@mistake("sunk", "parts tight")
def passes_inputs_by_first_use(program: px.Program) -> px.Program:
    result = split_somewhere(program)
    graphs = {name: result.graphs[name] for name in result.order}
    nodes: Nodes = []
    for node in result.main.nodes:
        if type(node.do) is px.Call:
            body = graphs[node.do.graph]
            graphs[node.do.graph] = evolve(body, inputs=tuple(reversed(body.inputs)))
            node = evolve(node, args=tuple(reversed(node.args)))
        nodes.append(node)
    graphs[result.root] = evolve(result.main, nodes=tuple(nodes))
    return result.evolve(graphs=px.ir.pmap(graphs))


@mistake("sunk", "state placed")
def gives_every_part_all_state(program: px.Program) -> px.Program:
    result = split_somewhere(program)
    names = [part.name for part in px.parts(result)]
    slots = dict(result.state.pairs)
    for name, slot in result.state.pairs:
        slots.update({f"{part}.{name.partition('.')[2]}": slot for part in names})
    modules = dict.fromkeys(result.modules)
    for part in names:
        modules.update(dict.fromkeys([px.ir.Module(f"{part}.{module.path}", module.type_name) for module in program.modules[1:]]))
    return result.evolve(state=px.ir.State(tuple(slots), px.ir.pmap(slots)), modules=tuple(modules))


@mistake("sunk", "names move")
def lists_state_part_by_part(program: px.Program) -> px.Program:
    result = split_somewhere(program)
    order = sorted(result.state.order, key=lambda name: name.partition(".")[0])
    return result if order == list(result.state.order) else result.evolve(state=evolve(result.state, order=tuple(order)))


@mistake("sunk", "joins")
def orders_parts_by_need(program: px.Program) -> px.Program:
    # Within a part nodes are sorted by name: legal for values, and not for effects.
    result = split_somewhere(program)
    graphs = {name: result.graphs[name] for name in result.order}
    for part in px.parts(result):
        body = graphs[part.graph]
        writes = [node for node in body.nodes if type(node.do) is px.Op and (node.do.effects.writes or node.do.effects.ordered)]
        rest = [node for node in body.nodes if node not in writes]
        used = {name for node in rest for name in node.refs()}
        if not used & {node.name for node in writes}:
            graphs[part.graph] = evolve(body, nodes=(*rest, *writes))
    return result.evolve(graphs=px.ir.pmap(graphs)) if graphs != dict(result.graphs) else result


@mistake("split", "no parts")
def joins_the_graphs_alone(program: px.Program) -> px.Program:
    return px.inline(program)


@mistake("split", "valid")
def joins_the_names_alone(program: px.Program) -> px.Program:
    joined = px.join(program)
    return program.evolve(state=joined.state, modules=joined.modules)
