"""The figures of ``docs/decisions.md``: ``python -m bench.decisions``, seconds.

Each decision is timed against its alternative on data made for the purpose; processor time, minimum of seven runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

import purefx as px
from purefx.ir.analysis.digest import graph_tokens
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of
from purefx.ir.operators import op_of
from purefx.ir.tensors import cell_key

__all__ = ["figures"]

COUNT = 10_000
"""Nodes of a graph, and entries of a map."""

RELU, ADD_ = op_of(torch.ops.aten.relu.default), op_of(torch.ops.aten.add_.Tensor)


def chain(*, writes: int = 0) -> px.Graph:
    """Return a chain of nodes of which each that ``writes`` divides writes its operand."""
    nodes: list[px.Node] = []
    for number in range(COUNT):
        operand = px.Ref(f"v{number - 1}" if number else "x")
        write = bool(writes) and number % writes == 0
        nodes.append(
            px.Node(f"v{number}", ADD_ if write else RELU, (operand, 1) if write else (operand,))
        )
    return px.Graph((px.Input("x"),), tuple(nodes), (px.Ref(f"v{COUNT - 1}"),))


def microseconds(run: Callable[[], Any], *, of: int = 1) -> float:
    """Return the processor time of one of as many things as a call does."""
    found: list[float] = []
    for _ in range(7):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found) * 1e6 / of


def figures() -> dict[str, float]:
    """Time everything; microseconds by what is timed."""
    return {**of_names(), **of_dependencies(), **of_maps(), **of_tensors()}


def of_names() -> dict[str, float]:
    """Time edits of a graph, and what is derived from names."""
    graph, new = chain(), px.Node("new", RELU, (px.Ref("v5000"),))
    nodes, half = graph.nodes, COUNT // 2

    def rebuilt() -> tuple[px.Node, ...]:
        again = [
            px.Node(node.name, node.do, node.args, node.kwargs, node.stack, node.meta)
            for node in nodes[half:]
        ]
        return (*nodes[:half], new, *again)

    return {
        "insert a node in the middle": microseconds(lambda: (*nodes[:half], new, *nodes[half:])),
        "the same, and make all nodes after it again": microseconds(rebuilt),
        "users, a node": microseconds(
            lambda: px.Graph(graph.inputs, nodes, graph.output).users, of=COUNT
        ),
        "tokens of a body's identity, a node": microseconds(
            lambda: graph_tokens(graph, {}), of=COUNT
        ),
    }


def of_dependencies() -> dict[str, float]:
    """Time the relation, and effects of an operator that was met before."""
    found: dict[str, float] = {}
    for name, graph in {
        "pure nodes": chain(),
        "a write every tenth node": chain(writes=10),
    }.items():
        program = px.Program.of({"": graph})
        found[f"dependencies, a node, {name}"] = microseconds(
            partial(dependencies, program, graph), of=COUNT
        )
    relu = torch.ops.aten.relu.default
    return {
        **found,
        "effects of an operator": microseconds(
            lambda: [effects_of(relu) for _ in range(COUNT)], of=COUNT
        ),
    }


def of_maps() -> dict[str, float]:
    """Time look-ups and edits of maps."""
    plain = {f"k{number}": number for number in range(COUNT)}
    made = px.ir.pmap(plain)
    edited = made.set("k5", 0)
    maps = {"dict": plain, "PMap as made": made, "PMap after an edit": edited}

    def look_up_all(found: Mapping[str, int]) -> list[int]:
        return [found[key] for key in plain]

    looked = {
        name: microseconds(partial(look_up_all, found), of=COUNT) for name, found in maps.items()
    }
    return {
        **{f"look-up in a {name}": time for name, time in looked.items()},
        "edit of a PMap": microseconds(
            lambda: [edited.set("k77", number) for number in range(100)], of=100
        ),
        "copy of a dict": microseconds(lambda: dict(plain)),
    }


def of_tensors() -> dict[str, float]:
    """Time the identity of a tensor."""
    tensor = torch.ones(4)
    return {
        "identity of a tensor": microseconds(
            lambda: [cell_key(tensor) for _ in range(1000)], of=1000
        )
    }


if __name__ == "__main__":
    for name, time_taken in figures().items():
        print(f"{name:45} {time_taken:10.2f} us")
