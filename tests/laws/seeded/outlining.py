"""Mistakes of transformations that bring back module calls.

A call is its module, its number and its part, and takes and gives exactly what crosses its boundary; each of
these forgets one of those, or gathers nodes that may not move.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.ir.effects.declared import PURE
from purefx.ir.graph import common_prefix

from .mistake import Nodes, mistake, with_nodes


@mistake("sunk", "order")
def outlines_runs_of_nodes(program: px.Program) -> px.Program:
    runs: dict[px.Frame, int] = {}
    last: tuple[px.Frame, ...] = ()
    now: tuple[px.Frame, ...] = ()
    nodes: Nodes = []
    for node in program.main.nodes:
        if node.stack != last:
            shared = len(common_prefix([last, node.stack]))
            fresh = [evolve(frame, call=100 * frame.call + count(runs, frame)) for frame in node.stack[shared:]]
            last, now = node.stack, (*now[:shared], *fresh)
        nodes.append(evolve(node, stack=now))
    return px.outline(with_nodes(program, nodes))


def count(runs: dict[px.Frame, int], frame: px.Frame) -> int:
    """Return how often a frame was counted before."""
    runs[frame] = runs.get(frame, -1) + 1
    return runs[frame]


@mistake("sunk", "inlines")
def loses_call_numbers(program: px.Program) -> px.Program:
    nodes = [evolve(node, stack=tuple(evolve(frame, call=0) for frame in node.stack)) for node in program.main.nodes]
    return px.outline(with_nodes(program, nodes))


@mistake("sunk", "meaning")
def gathers_by_data_alone(program: px.Program) -> px.Program:
    # Nodes of one call are brought together wherever no value stands in the way; a write is not seen.
    known = {node.name: node.do for node in program.main.nodes}
    pure = [evolve(node, do=evolve(node.do, effects=PURE)) if is_plain(node) else node for node in program.main.nodes]
    result = px.outline(with_nodes(program, pure))
    graphs: dict[str, px.Graph] = {}
    for name in result.order:
        graph = result.graphs[name]
        nodes = [evolve(node, do=known.get(node.name, node.do)) if is_plain(node) else node for node in graph.nodes]
        graphs[name] = evolve(graph, nodes=tuple(nodes))
    return result.evolve(graphs=px.ir.pmap(graphs))


def is_plain(node: px.Node) -> bool:
    """Say whether a node is an operator of the flat program, without bodies."""
    return type(node.do) is px.Op and not node.do.effects.through_bodies and node.do.name != "operator.getitem"


@mistake("sunk", "valid")
def gives_back_what_nodes_use(program: px.Program) -> px.Program:
    # What only the output of the whole program uses is used as well.
    result = px.outline(program.with_main(evolve(program.main, output=()), signature=evolve(program.signature, outputs=())))
    return result.with_main(evolve(result.main, output=program.main.output), signature=program.signature)


@mistake("sunk", "calls tight")
def gives_back_everything(program: px.Program) -> px.Program:
    # Nothing is lost, but every value of every module lives until the end, and equal bodies are no longer equal.
    values = tuple(px.Ref(node.name) for node in program.main.nodes)
    specs = tuple(px.ir.UserOutput() for _ in values)
    main = evolve(program.main, output=values)
    result = px.outline(program.with_main(main, signature=evolve(program.signature, outputs=specs)))
    return result.with_main(evolve(result.main, output=program.main.output), signature=program.signature)
