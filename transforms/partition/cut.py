"""Cutting: a flat program becomes a root that calls one body for each part.

One idea: inside a part all names are the original ones, so nodes go into the bodies as the objects that they are; only a
read of state that several parts use is made again for each.  What crosses from part to part is an input of the one and
an output of the other, in the order of the graph.
"""

from __future__ import annotations

from attrs import define, evolve, field

from ...ir.arguments import Arg, Ref
from ...ir.graph import Graph, Input
from ...ir.names import Names
from ...ir.node import Call, Frame, Node
from ...ir.persistent import pmap
from ...ir.program import Program
from ..calls import call_nodes
from .placing import READ, Placing

__all__ = ["cut"]


@define
class _Body:
    nodes: list[Node] = field(factory=list)
    inputs: dict[str, None] = field(factory=dict)
    outputs: dict[str, None] = field(factory=dict)


def cut(program: Program, placing: Placing) -> Program:
    """Return the program with a body for each part; state, modules and signature still have the original names.

    Args:
        program: a flat program.
        placing: a part for each node, such that no node is in an earlier part than one that it depends on.
    """
    work = _Cutting(program, placing)
    work.take()
    return work.program()


class _Cutting:
    def __init__(self, program: Program, placing: Placing) -> None:
        self.source = program
        self.graph = program.main
        self.placing = placing
        self.bodies = [_Body() for _ in placing.names]
        self.names = Names([*(formal.name for formal in self.graph.inputs), *(node.name for node in self.graph.nodes)])
        self.home: dict[str, int] = dict.fromkeys([formal.name for formal in self.graph.inputs], -1)
        """The part that makes a value, -1 for the inputs of the root, in the order in which they are made."""

    def take(self) -> None:
        """Put each node into its part, part by part: the same whatever order the parts stood in before."""
        first = self._first_readers()
        members: list[list[int]] = [[] for _ in self.bodies]
        for number, (node, part) in enumerate(zip(self.graph.nodes, self.placing.of, strict=True)):
            members[first[node.name] if part == READ else part].append(number)
        for part, numbers in enumerate(members):
            self._take(part, numbers, first)
        self.home.update(first)
        for name in self.graph.output_refs():
            if self.home[name] >= 0:
                self.bodies[self.home[name]].outputs[name] = None

    def _take(self, part: int, numbers: list[int], first: dict[str, int]) -> None:
        body, reads = self.bodies[part], dict[str, Arg]()
        for number in numbers:
            node = self.graph.nodes[number]
            for name in node.refs():
                if name in first:
                    if first[name] != part and name not in reads:
                        read = evolve(self.graph.by_name[name], name=self.names.fresh(name))
                        reads[name] = Ref(read.name)
                        body.nodes.append(read)
                elif self.home.get(name, part) != part:
                    self._cross(name, body)
            body.nodes.append(node.using(reads) if reads else node)
            self.home[node.name] = part

    def _cross(self, name: str, body: _Body) -> None:
        body.inputs[name] = None
        if self.home[name] >= 0:
            self.bodies[self.home[name]].outputs[name] = None

    def _first_readers(self) -> dict[str, int]:
        # The first part that uses a read has it under its name; what the root gives back comes from there.
        nodes, users = self.graph.nodes, self.graph.users
        part_of = dict(zip([node.name for node in nodes], self.placing.of, strict=True))
        reads = [name for name, part in part_of.items() if part == READ]
        return {name: min([part_of[user] for user in users[name]]) for name in reads}

    def program(self) -> Program:
        """Freeze the parts and the root."""
        source, graph = self.source, self.graph
        makers: dict[str, Input | Node] = {**graph.by_name, **{formal.name: formal for formal in graph.inputs}}
        metas = {name: makers[name].meta for body in self.bodies for names in (body.inputs, body.outputs) for name in names}
        rank = {name: number for number, name in enumerate(self.home)}
        ids = Names(source.graphs)
        graphs = {name: source.graphs[name] for name in source.order[1:]}
        nodes: list[Node] = []
        for tag, body in zip(self.placing.names, self.bodies, strict=True):
            inputs = sorted(body.inputs, key=rank.__getitem__)
            outputs = sorted(body.outputs, key=rank.__getitem__)
            formals = tuple([Input(name, metas[name]) for name in inputs])
            refs = tuple([Ref(name) for name in outputs])
            name = ids.fresh(tag)
            graphs[name] = Graph(formals, tuple(body.nodes), refs[0] if len(refs) == 1 else refs)
            nodes += call_nodes(Call(Frame(tag), name), inputs, outputs, self.names, metas)
        return source.evolve(graphs=pmap({source.root: Graph(graph.inputs, tuple(nodes), graph.output), **graphs}))
