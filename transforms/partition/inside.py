"""Outlining inside parts: what stands in module calls inside a part becomes calls of bodies.

One idea: to ``outline`` a part is a module like others, so the parts are inlined and all is outlined at once.  That knows
nothing of the order in which parts take their inputs, nor of parts that do nothing; both are put right afterwards.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.graph import Graph
from ...ir.inlining import inlined
from ...ir.names import Names
from ...ir.node import Call, Frame, Node
from ...ir.parts import parts
from ...ir.persistent import pmap
from ...ir.program import Program
from ..inline import inline
from ..outline import outline

__all__ = ["flat_inside", "outlined_inside", "with_bodies_of"]


def outlined_inside(program: Program) -> Program:
    """Return a split program with its parts outlined.

    Args:
        program: a split program whose parts are flat inside.
    """
    made = outline(inline(program))
    graphs = {name: made.graphs[name] for name in made.order}
    chunks = _chunks(made.main)
    rank = {name: number for number, name in enumerate([formal.name for formal in made.main.inputs])}
    ids, names = Names(made.graphs), Names([*rank, *(node.name for node in made.main.nodes)])
    nodes: list[Node] = []
    for part in parts(program):
        chunk = chunks.get(part.name)
        if chunk is None:  # it does nothing, so inlining left nothing of it
            graph = ids.fresh(part.graph)
            graphs[graph] = program.graphs[part.graph]
            chunk = [evolve(part.node, name=names.fresh(part.node.name), do=Call(Frame(part.name), graph))]
        else:
            chunk[0] = _in_order(chunk[0], graphs, rank)
        for node in chunk:
            rank[node.name] = len(rank)
        nodes += chunk
    graphs[made.root] = evolve(made.main, nodes=tuple(nodes))
    return made.evolve(graphs=pmap(graphs))


def flat_inside(program: Program) -> Program:
    """Return a split program with its parts flat inside.

    Args:
        program: a split program; the calls of its parts stay.
    """
    bodies = {part.graph for part in parts(program)}
    flat = {name: inlined(program, program.graphs[name], into=_everything) for name in bodies}
    made = program.evolve(graphs=program.graphs.update(flat))
    return made.evolve(graphs=pmap({name: made.graphs[name] for name in made.order}))


def with_bodies_of(before: Program, after: Program) -> Program:
    """Return a program in which the bodies that came out as they were are the objects that they were.

    Args:
        before: what it was made of.
        after: the program.

    >>> from purefx.ir import Graph
    >>> old, new = (Program.of({"": Graph((), ())}) for _ in range(2))
    >>> with_bodies_of(old, new).main is old.main
    True
    """
    pairs = [(name, before.graphs.get(name)) for name in after.order]
    same = {name: graph for name, graph in pairs if graph is not None and graph == after.graphs[name]}
    return after.evolve(graphs=after.graphs.update(same)) if same else after


def _everything(_: str) -> bool:
    return True


def _chunks(graph: Graph) -> dict[str, list[Node]]:
    # The call of each part with the nodes that take its results apart.
    chunks: dict[str, list[Node]] = {}
    chunk: list[Node] = []
    for node in graph.nodes:
        if type(node.do) is Call:
            chunk = chunks[node.do.instance.path] = []
        chunk.append(node)
    return chunks


def _in_order(node: Node, graphs: dict[str, Graph], rank: dict[str, int]) -> Node:
    # Inputs in the order of the root: outlining has them by first use, so that equal layers are equal bodies.
    assert type(node.do) is Call
    body = graphs[node.do.graph]
    order = sorted(range(len(node.args)), key=lambda index: rank[node.args[index].name])
    if order == list(range(len(order))):
        return node
    graphs[node.do.graph] = evolve(body, inputs=tuple([body.inputs[index] for index in order]))
    return evolve(node, args=tuple([node.args[index] for index in order]))
