"""``some_numbers``: programs in which some values are numbers, which the generators of programs do not draw by themselves.

One idea: of integers some are told to be numbers, by their meta, which no evaluation looks at; among real operators sizes of
some tensors are put, and added to others.  Which ones depends on what operators are, not on names.
"""

from __future__ import annotations

import zlib
from types import MappingProxyType

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref
from ...ir.effects.happenings import happenings
from ...ir.effects.resolved import NOTHING
from ...ir.effects.storages import storages
from ...ir.names import Names
from ...ir.node import Node, Op
from ...ir.operators import op_of
from ...ir.program import Program
from ...transforms import Transformation, transformation

__all__ = ["some_numbers"]

SIZE, ADD = op_of(torch.ops.aten.sym_size.int), op_of(torch.ops.aten.add.Scalar)


@transformation(laws=["some values are numbers"])
def _some_numbers(program: Program) -> Program:
    """Return a flat program in which some values are numbers."""
    told = _told(program)
    sized = _with_sizes(told)
    return program if sized is program else sized


some_numbers: Transformation = _some_numbers


def _told(program: Program) -> Program:
    graph = program.main
    done = happenings(program, graph)
    memory = storages(program, graph, done)
    written = {memory.find(name) for happening in done for name in happening.writes}
    # What a real operator takes is a tensor: it would refuse a number.
    tensors = {name for node in graph.nodes if _operator(node).startswith("aten.") for name in node.refs()}
    nodes: list[Node] = []
    for number, (node, happening) in enumerate(zip(graph.nodes, done, strict=True)):
        toy = _operator(node).startswith("toy.") and happening == NOTHING and node.name not in tensors
        if toy and memory.find(node.name) not in written and _draw("told", number, node) % 2:
            node = evolve(node, meta=MappingProxyType({**node.meta, "val": 1}))
        nodes.append(node)
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return program.with_main(evolve(graph, nodes=tuple(nodes))) if changed else program


def _operator(node: Node) -> str:
    return node.do.name if type(node.do) is Op else ""


def _with_sizes(program: Program) -> Program:
    # The size of an earlier value is added to a later one, which those after it then use.
    graph = program.main
    names = Names([*(formal.name for formal in graph.inputs), *(node.name for node in graph.nodes)])
    tensors: list[str] = []
    instead: dict[str, Arg] = {}
    nodes: list[Node] = []
    for number, node in enumerate(graph.nodes):
        nodes.append(node.using(instead) if instead else node)
        value = node.meta.get("val")
        if type(node.do) is not Op or not isinstance(value, torch.Tensor) or not value.dim():
            continue
        if tensors and value.is_floating_point() and not node.do.effects.writes and _draw("sized", number, node) % 3 == 0:
            size, total = names.fresh("size"), names.fresh("sum")
            other = tensors[_draw("of", number, node) % len(tensors)]
            nodes.append(Node(size, SIZE, (Ref(other), 0), stack=node.stack))
            nodes.append(Node(total, ADD, (Ref(node.name), Ref(size)), stack=node.stack, meta=node.meta))
            instead[node.name] = Ref(total)
        tensors.append(node.name)
    if not instead:
        return program
    output = Node("", SIZE, (graph.output,)).using(instead).args[0]
    return program.with_main(evolve(graph, nodes=tuple(nodes), output=output))


def _draw(*what: object) -> int:
    node = what[-1]
    assert isinstance(node, Node)
    return zlib.crc32(repr((*what[:-1], _operator(node), *map(str, node.stack))).encode())
