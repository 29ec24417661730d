"""The copies into parameters of a lowered program: they run without gradients, as in the original.

The tensors themselves are made by ``transforms/convert/devices``.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ...ir.arguments import Ref
from ...ir.calls.call_graph import instances
from ...ir.graph import Get, Graph, Node, Op
from ...ir.names import join
from ...ir.program import Program
from ...ir.state import SlotKind

__all__ = ["copies_into_state", "write_parameter", "writing_parameters"]


COPY = "aten.copy_.default"


def write_parameter(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Copy a value into a parameter.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> write_parameter(weight, torch.ones(2)).tolist(), weight.requires_grad
    ([1.0, 1.0], True)
    """
    if not target.requires_grad:
        return target.copy_(value)
    with torch.no_grad():
        return target.copy_(value)


def writing_parameters(program: Program) -> Program:
    """Return the program with its copies into parameters made by ``write_parameter``; the same object if it has none.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> writing_parameters(program) is program
    True
    """
    copies = {name: found for name in program.order if (found := copies_into_state(program.graphs[name]))}
    if not copies:
        return program
    changed: dict[str, set[str]] = {}
    for name, path in instances(program):
        for node, slot in copies.get(name, {}).items():
            found = program.state.slots.get(join(path, slot))
            if found is not None and found.kind is SlotKind.PARAMETER:
                changed.setdefault(name, set()).add(node)
    if not changed:
        return program
    graphs = {name: _changed(program.graphs[name], nodes) for name, nodes in changed.items()}
    return program.evolve(graphs=program.graphs.update(graphs))


def copies_into_state(graph: Graph) -> dict[str, str]:
    """Return the slot that each copy into state writes, by name of node.

    >>> copies_into_state(Graph((), (), ()))
    {}
    """
    copies = [node for node in graph.nodes if type(node.do) is Op and node.do.name == COPY]
    if not copies:
        return {}
    slots = {node.name: node.do.slot for node in graph.nodes if type(node.do) is Get}
    pairs = [(node.name, node.args[0]) for node in copies]
    return {name: slots[arg.name] for name, arg in pairs if type(arg) is Ref and arg.name in slots}


def _changed(graph: Graph, names: set[str]) -> Graph:
    return evolve(graph, nodes=tuple([_written(node) if node.name in names else node for node in graph.nodes]))


def _written(node: Node) -> Node:
    assert type(node.do) is Op
    return evolve(node, do=evolve(node.do, target=write_parameter))
