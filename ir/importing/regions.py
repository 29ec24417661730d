"""Nodes that the exporter leaves without a module stack: bodies of higher-order operators, regions, gradients.

Each gets the stack of the innermost call that holds what it uses, or of the forward node that it is the gradient of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any

import torch
import torch.fx
from attrs import evolve
from torch.export import ExportedProgram

from ..arguments import Arg, bodies_in
from ..errors import UnsupportedProgram
from ..graph import Graph, Node, Op, Stack, common_prefix
from ..names import relative
from ..rewriter import Relocation, Rewriter
from ..torch_private import retraced_joint
from .backward import Traced, traced_backward

TRACEPOINT = "higher_order._export_tracepoint"

REGIONS = frozenset(
    {
        "higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast", "higher_order.hints_wrapper",
        "higher_order.tag_activation_checkpoint",
    }
)  # fmt: skip
"""Operators that the exporter cuts out of the traced graph: the stacks inside are the traced ones."""


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
            graphs[name] = _inside(graphs[name], base)


def _without_tracepoints(graph: Graph) -> Graph:
    if not any(node.do.name == TRACEPOINT for node in graph.nodes if type(node.do) is Op):
        return graph
    edit = Rewriter(graph)
    marked: dict[str, tuple[Arg, ...]] = {}
    for node in graph.nodes:
        whole, index = node.projection or ("", 0)
        if type(node.do) is Op and node.do.name == TRACEPOINT:
            marked[node.name] = node.args
            edit.erase(node.name)
        elif whole in marked:
            edit.drop(node.name, marked[whole][index])
    return edit.graph()


def _bodies(node: Node) -> list[str]:
    return bodies_in(node.args, node.kwargs) if type(node.do) is Op and node.do.effects.through_bodies else []


def _with_regions_placed(graphs: Mapping[str, Graph], name: str, unknown: Mapping[str, frozenset[str]]) -> Graph:
    graph = graphs[name]
    moved: dict[str, Stack] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        whole, _ = node.projection or ("", 0)
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
        elif whole in moved:
            moved[node.name] = moved[whole]
        nodes.append(node.evolve(stack=moved.get(node.name)))
    return graph.with_nodes(nodes)


def _inside(graph: Graph, base: Stack) -> Graph:
    # The body of an operator that is inside some calls; what claims to be in others is in none.
    count, there = len(base), Relocation(lambda path: relative(path, base[-1].path))
    stacks = [there.stack(node.stack[count:]) if node.stack[:count] == base else () for node in graph.nodes]
    return graph.with_nodes([node.evolve(stack=stack) for node, stack in zip(graph.nodes, stacks, strict=True)])


def is_from_region(meta: Mapping[str, Any]) -> bool:
    """Return whether the meta of a node names a region operator as where it was traced.

    >>> is_from_region({"torch_fn": ("wrap_with_set_grad_enabled", "")}), is_from_region({})
    (True, False)
    """
    origin: Any = meta.get("torch_fn")
    return isinstance(origin, tuple) and bool(origin) and str(origin[0]).startswith("wrap_with_")


def place_strays(nodes: list[Node], strays: Collection[str], outside: Collection[str]) -> list[Node]:
    """Return nodes in which those that no module call is known of stand in the innermost call that holds their neighbours.

    Args:
        nodes: the nodes of a graph.
        strays: the names of nodes in no call.
        outside: values that the graph takes from the caller or returns.

    >>> from purefx.ir import Frame, Op, Ref
    >>> neg, stack = Op("toy.neg"), (Frame("m"),)
    >>> a, b, c = Node("a", neg, (), (), stack), Node("b", neg, (Ref("a"),)), Node("c", neg, (Ref("b"),), (), stack)
    >>> place_strays([a, b, c], {"b"}, ())[1].stack == stack
    True
    """
    known = {node.name: node.stack for node in nodes if node.name not in strays}
    users: dict[str, list[str]] = {}
    for node in nodes:
        for name in node.refs():
            users.setdefault(name, []).append(node.name)
    placed: list[Node] = []
    for is_stray, group in groupby(nodes, lambda node: node.name in strays):
        run = list(group)
        stack = _around(run, known, users, outside) if is_stray else ()
        placed += [evolve(stray, stack=stack) for stray in run] if stack else run
    return placed


def place_boundaries(nodes: list[Node]) -> list[Node]:
    """Return nodes in which the boundaries of regions stand in the innermost call that holds their neighbours.

    Args:
        nodes: the nodes of a graph.

    >>> from purefx.ir import Effects, Frame, Op
    >>> neg, leave, stack = Op("toy.neg"), Op("toy.leave", Effects(scope=-1)), (Frame("m"),)
    >>> nodes = [Node("a", neg, (), (), stack), Node("b", leave), Node("c", neg, (), (), stack)]
    >>> place_boundaries(nodes)[1].stack == stack
    True
    """
    following: Stack | None = None
    after: list[Stack | None] = []
    for node in reversed(nodes):
        after.append(following)
        following = following if _is_boundary(node) else node.stack
    placed: list[Node] = []
    before: Stack | None = None
    for node, behind in zip(nodes, reversed(after), strict=True):
        if not _is_boundary(node):
            before = node.stack
        inner = common_prefix([before, behind]) if before is not None and behind is not None and _is_boundary(node) else ()
        placed.append(node.evolve(stack=inner) if len(inner) > len(node.stack) else node)
    return placed


def _is_boundary(node: Node) -> bool:
    return type(node.do) is Op and node.do.effects.scope != 0


def _around(run: list[Node], known: Mapping[str, Stack], users: Mapping[str, list[str]], outside: Collection[str]) -> Stack:
    beside = {name for node in run for name in (node.name, *node.refs(), *users.get(node.name, ()))}
    if any(name in outside for name in beside if name not in known):
        return ()
    return common_prefix([known[name] for name in beside if name in known])


SAME_VALUE = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
"""What torch removes from one graph and not from the other: their result stands for what they took."""


def read_provenance(ep: ExportedProgram, forward: ExportedProgram | None) -> Traced:
    """Return the origin of the nodes of an exported program; nothing is known of one that is not joint.

    Args:
        ep: any exported program.
        forward: the one that a joint ``ep`` was made from, or None.

    Raises:
        UnsupportedProgram: ``forward`` is not what ``ep`` was made from, or call signatures were preserved.
    """
    if ep.graph_signature.backward_signature is None:
        if forward is not None:
            raise UnsupportedProgram("forward= is for joint programs, and this one has no backward; call import_ep(ep) alone")
        return Traced({}, frozenset())
    if any(entry.signature is not None for entry in ep.module_call_graph[1:]):
        raise UnsupportedProgram(
            "this joint program was made from one with preserved call signatures, which name values that are no longer there; "
            "export again without preserve_module_call_signature"
        )
    origins = _origins(ep.graph_module, _traced(ep, forward)) if forward is not None else {}
    return traced_backward(ep.graph_module.graph, origins)


def _traced(ep: ExportedProgram, forward: ExportedProgram) -> torch.fx.GraphModule:
    ours, theirs = ([(spec.kind, spec.target) for spec in program.graph_signature.input_specs] for program in (ep, forward))
    if forward.graph_signature.backward_signature is not None or ours != theirs:
        raise UnsupportedProgram("forward= must be the exported program that the joint one was made from: their inputs differ")
    return retraced_joint(forward)


def _origins(module: torch.fx.GraphModule, traced: torch.fx.GraphModule) -> dict[torch.fx.Node, Mapping[str, Any]]:
    # Equal operators on equal values are one another's counterparts, in the order in which they stand.
    ours = [node for node in module.graph.nodes if node.op == "placeholder"]
    theirs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    numbers: dict[torch.fx.Node, int] = {}
    values: dict[torch.fx.Node, int] = {}
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):  # tangents, which nothing uses, come last
        values[mine] = numbers[other] = number
    waiting: dict[Any, list[torch.fx.Node]] = {}
    for number, node in enumerate(traced.graph.nodes, len(ours)):
        if node.op in ("call_function", "get_attr"):
            waiting.setdefault(_key(node, numbers), []).append(node)
            numbers[node] = _value(node, numbers, number)
    taken: dict[Any, int] = {}
    origins: dict[torch.fx.Node, Mapping[str, Any]] = {}
    for node in module.graph.nodes:
        if node.op in ("call_function", "get_attr"):
            key = _key(node, values)
            found = waiting.get(key, ())
            place = taken[key] = taken.get(key, -1) + 1
            if place < len(found):
                origins[node] = found[place].meta
                values[node] = numbers[found[place]]
            elif node.target in SAME_VALUE and node.args[0] in values:
                values[node] = values[node.args[0]]
    return origins


def _value(node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int], fresh: int) -> int:
    source = node.args[0] if node.target in SAME_VALUE else None
    return numbers[source] if isinstance(source, torch.fx.Node) else fresh


def _key(node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]) -> tuple[object, str]:
    return node.target, repr(torch.fx.map_arg((node.args, node.kwargs), lambda one: f"value {numbers.get(one, one)}"))
