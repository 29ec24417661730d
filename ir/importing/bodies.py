"""Stacks around and inside the bodies of higher-order operators.

One idea: a region operator (no_grad, autocast) stands in the innermost module call that holds all that is inside it,
whatever stack the exporter gave it; and the stacks inside a body are relative to the call that the operator stands in,
like those of any body, so that equal regions of equal modules are equal.  Tracepoints of preserved calls in a body say
nothing to anybody (the exporter reads those of the root only) and have no gradients: what they mark is used in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from attrs import evolve

from ..arguments import Arg, Ref, bodies_in, replace_refs
from ..errors import InvalidProgram, Violation
from ..graph import Graph
from ..node import Frame, Node, Op, Stack, common_prefix
from ..paths import relative

__all__ = ["settle_bodies"]

TRACEPOINT = "higher_order._export_tracepoint"

REGIONS = frozenset(
    {
        "higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast", "higher_order.hints_wrapper",
        "higher_order.tag_activation_checkpoint",
    }
)  # fmt: skip
"""Operators that the exporter cuts out of the traced graph: the stacks inside are the traced ones."""


def check_output(graph: Any, name: str) -> None:
    """Raise unless an fx graph has one ``output``, as its last node: torch returns there, and runs nothing after it.

    Args:
        graph: the fx graph.
        name: what the program calls it.

    Raises:
        InvalidProgram: it has none, or several, or nodes after it.

    >>> import torch
    >>> check_output(torch.fx.symbolic_trace(torch.nn.ReLU()).graph, "")
    """
    nodes = list(graph.nodes)
    places = [place for place, node in enumerate(nodes) if node.op == "output"]
    if len(places) == 1 and places[0] == len(nodes) - 1:
        return
    if len(places) == 1:
        said = f"the fx graph has {nodes[places[0] + 1].name!r} after its output, where nothing runs"
    else:
        said = f"the fx graph has {len(places) or 'no'} output nodes, not one"
    advice = "let graph.output(...) be called once and be the last node"
    raise InvalidProgram([Violation("signature-outputs", said, graph=name, node="output", advice=advice)])


def settle_bodies(graphs: dict[str, Graph], unknown: Mapping[str, frozenset[str]]) -> None:
    """Put region operators where their bodies are, and make the stacks in bodies relative; changes ``graphs``.

    Args:
        graphs: all graphs that were read, each after the one that names it.
        unknown: for each graph, the nodes that the exporter gave no stack.
    """
    for name in reversed(list(graphs)):
        graphs[name] = _without_tracepoints(graphs[name]) if name else graphs[name]
        graphs[name] = _with_regions_placed(graphs, name, unknown)
    bases: dict[str, Stack] = {}
    for name in list(graphs):
        base = bases.get(name)
        for node in graphs[name].nodes:
            for inner in _bodies(node):
                bases.setdefault(inner, node.stack)
        if base:
            graphs[name] = evolve(graphs[name], nodes=tuple([_relative(node, base) for node in graphs[name].nodes]))


def _without_tracepoints(graph: Graph) -> Graph:
    if not any(node.do.name == TRACEPOINT for node in graph.nodes if type(node.do) is Op):
        return graph
    marked: dict[str, tuple[Arg, ...]] = {}
    instead: dict[str, Arg] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = node.using(instead)
        first = node.args[0] if node.args else None
        if type(node.do) is Op and node.do.name == TRACEPOINT:
            marked[node.name] = node.args
        elif type(first) is Ref and first.name in marked and node.do.name == "operator.getitem":  # type: ignore[union-attr]
            instead[node.name] = marked[first.name][cast(int, node.args[1])]
        else:
            nodes.append(node)
    return Graph(graph.inputs, tuple(nodes), replace_refs(graph.output, instead))


def _bodies(node: Node) -> list[str]:
    return bodies_in(node.args, node.kwargs) if type(node.do) is Op and node.do.effects.through_bodies else []


def _with_regions_placed(graphs: Mapping[str, Graph], name: str, unknown: Mapping[str, frozenset[str]]) -> Graph:
    graph = graphs[name]
    moved: dict[str, Stack] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if type(node.do) is Op and node.do.name in REGIONS:
            inside = [
                part.stack
                for inner in _bodies(node)
                if inner in graphs
                for part in graphs[inner].nodes
                if part.name not in unknown.get(inner, ())
            ]
            if inside:
                moved[node.name] = common_prefix(inside)
        elif node.args and type(node.args[0]) is Ref and node.args[0].name in moved and node.do.name == "operator.getitem":  # type: ignore[union-attr]
            moved[node.name] = moved[node.args[0].name]
        nodes.append(evolve(node, stack=moved[node.name]) if node.name in moved else node)
    return evolve(graph, nodes=tuple(nodes)) if moved else graph


def _relative(node: Node, base: Stack) -> Node:
    if node.stack[: len(base)] != base:
        return evolve(node, stack=()) if node.stack else node
    outer = base[-1].path
    return evolve(node, stack=tuple([Frame(relative(frame.path, outer), frame.call) for frame in node.stack[len(base) :]]))
