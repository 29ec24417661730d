"""Joint forward and backward programs: which module call each node is in, or is the gradient of.

One idea: torch (2.13) drops all provenance when it makes the joint graph, but the exported program that it was made from
still has it.  That one is traced again, which gives the same nodes with their origin; node by node the two graphs are laid on
top of each other, and a node that has no counterpart keeps what its own meta says.  The gradient of a call is a call of its
own, numbered behind those of the forward: it happens after the loss, when the forward call is long over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen
from torch.export import ExportedProgram

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..meta import is_backward
from ..node import Frame
from ..torch_private import retraced_joint

__all__ = ["Provenance", "read_provenance", "with_backward_calls"]

SAME_VALUE = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
"""What torch removes from one graph and not from the other: their result stands for what they took."""


@frozen
class Provenance:
    """Where the nodes of a joint graph come from."""

    stacks: Mapping[torch.fx.Node, Any]
    """The module stacks of the nodes, as torch writes them; a backward node has that of the node it is the gradient of."""
    backward: frozenset[str]
    """The names of the nodes of the backward."""


def read_provenance(ep: ExportedProgram, forward: ExportedProgram | None) -> Provenance:
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
        return Provenance({}, frozenset())
    if any(entry.signature is not None for entry in ep.module_call_graph[1:]):
        raise UnsupportedProgram(
            "this joint program was made from one with preserved call signatures, which name values that are no longer there; "
            "export again without preserve_module_call_signature"
        )
    origins = _origins(ep.graph_module, _traced(ep, forward)) if forward is not None else {}
    stacks: dict[torch.fx.Node, Any] = {}
    backward: set[str] = set()
    for node in ep.graph_module.graph.nodes:
        if node.op == "call_function":
            meta: Mapping[str, Any] = origins.get(node) or node.meta
            if is_backward(meta):
                backward.add(node.name)
            stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack")
            if not stack and "is_gradient_acc" in meta:
                stack = _around([stacks[arg] for arg in node.all_input_nodes if arg in stacks])
            if stack:
                stacks[node] = stack
    return Provenance(stacks, frozenset(backward))


def _around(stacks: list[Any]) -> Any:
    # A sum of gradients belongs to no module; it stands in the innermost call that holds all of them.
    entries = [list(stack.items()) for stack in stacks]
    depth = 0
    while entries and all(len(found) > depth and found[depth] == entries[0][depth] for found in entries):
        depth += 1
    return dict(entries[0][:depth]) if entries else None


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


def _key(node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]) -> tuple[object, ...]:
    written: list[object] = [node.target]
    todo: list[Any] = [node.kwargs, node.args]
    while todo:
        part = todo.pop()
        if isinstance(part, torch.fx.Node):
            written.append(("value", numbers.get(part, part)))
        elif isinstance(part, tuple | list):
            written.append(len(part))
            todo.extend(reversed(part))
        elif isinstance(part, Mapping):
            written.append(tuple(part))
            todo.extend(reversed(list(part.values())))
        else:
            written.append(f"{type(part).__name__} {part}")
    return tuple(written)


def with_backward_calls(graph: Graph, backward: frozenset[str]) -> Graph:
    """Return the root graph with the backward nodes in calls of their own.

    A module that the forward calls n times is called n times more: call ``n + k`` is the gradient of call ``k``.

    Args:
        graph: the flat root; its backward nodes are in the calls that they are the gradients of.
        backward: the names of those nodes.
    """
    if not backward:
        return graph
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.name not in backward:
            for frame in node.stack:
                counts[frame.path] = max(counts.get(frame.path, 0), frame.call + 1)
    moved = [
        evolve(node, stack=tuple([Frame(frame.path, counts.get(frame.path, 0) + frame.call) for frame in node.stack]))
        if node.name in backward and node.stack
        else node
        for node in graph.nodes
    ]
    return evolve(graph, nodes=tuple(moved))
