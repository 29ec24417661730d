"""Moving a program: every device that its nodes name becomes another one.

One idea: devices are literals (``device(type='cpu')``, the device type of an autocast region), so moving is mapping
literals.  The state is moved by ``tensors.py``.
"""

from __future__ import annotations

import torch
from attrs import evolve

from ..ir.arguments import CONTAINERS, Arg, children_of, with_children
from ..ir.graph import Graph
from ..ir.node import Node, Op
from ..ir.persistent import pmap
from ..ir.program import Program

__all__ = ["moved"]

DEVICE_TYPE_OPERATORS = frozenset({"higher_order.wrap_with_autocast"})
"""Operators whose first argument names a device type as a string."""


def moved(program: Program, device: torch.device) -> Program:
    """Return the program with every device literal replaced; the same object where none differs.

    >>> from purefx.ir import Graph, Node, Op, Program
    >>> node = Node("a", Op("aten.arange.default"), (4,), (("device", torch.device("cpu")),))
    >>> moved(Program.of({"": Graph((), (node,))}), torch.device("meta")).main.nodes[0].kwargs
    (('device', device(type='meta')),)
    """
    graphs = {name: _moved_graph(program.graphs[name], device) for name in program.order}
    if all(graphs[name] is program.graphs[name] for name in graphs):
        return program
    return program.evolve(graphs=pmap(graphs))


def _moved_graph(graph: Graph, device: torch.device) -> Graph:
    nodes = tuple([_moved_node(node, device) for node in graph.nodes])
    return graph if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)) else evolve(graph, nodes=nodes)


def _moved_node(node: Node, device: torch.device) -> Node:
    args, kwargs = _moved_arg(node.args, device), _moved_arg(node.kwargs, device)
    if type(node.do) is Op and node.do.name in DEVICE_TYPE_OPERATORS and args and isinstance(args[0], str):
        args = (device.type, *args[1:])
    return node if args is node.args and kwargs is node.kwargs else evolve(node, args=args, kwargs=kwargs)


def _moved_arg(arg: Arg, device: torch.device) -> Arg:
    if isinstance(arg, torch.device):
        return arg if arg == device else device
    if type(arg) not in CONTAINERS:
        return arg
    return with_children(arg, [_moved_arg(part, device) for part in children_of(arg)])
