"""What values cost at least: each elementary step of the main job, done once for all nodes and nothing else.

The sum of these steps is a lower bound for any solution that produces immutable values, as the floor of ``making`` is for any
solution at all; what the main job takes beyond it is what our own code could still save.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

import purefx as px
from bench.edits import anew
from bench.making import floor
from bench.measure import alternate
from bench.workloads import Workload
from purefx.ir.forks import collector_paused

__all__ = ["limits"]


def limits(load: Workload, rounds: int) -> dict[str, float]:
    """Time the steps in turn with the main job, print each in microseconds a node, and their sum.

    Args:
        load: what is made.
        rounds: of timing.
    """
    ep = load.ep
    fx_nodes = list(ep.graph.nodes)
    flat = px.import_ep(ep)
    nodes = px.transform(flat, *px.DEFAULT[:3]).main.nodes
    whole = px.transform(flat)
    tensors = [slot.value for _, slot in flat.state.pairs]
    steps: dict[str, Callable[[], Any]] = {
        "floor: read nodes once, empty modules, register": lambda: floor(ep),
        "arguments as references": lambda: [
            tuple([px.Ref(part.name) for part in node.all_input_nodes]) for node in fx_nodes
        ],
        "a frozen copy of the meta": lambda: [
            MappingProxyType(dict(node.meta)) for node in fx_nodes
        ],
        "a frozen node": lambda: _remade(nodes),
        "what each node does, looked up for a body's identity": lambda: [
            (id(node.do), tuple(node.refs())) for node in nodes
        ],
        "copies of the state": lambda: [
            torch.nn.Parameter(tensor.detach().clone()) for tensor in tensors
        ],
        "verify the program, where nobody saw it made": lambda: px.verify(anew(flat)),
    }
    jobs: dict[str, Callable[[], Any]] = {
        "the main job": lambda: px.lower(px.transform(px.import_ep(ep))),
        **_paused(steps),
    }
    times = alternate(jobs, rounds=rounds)
    times["sum of all but the last"] = sum([times[name] for name in steps][:-1])
    print(
        f"\nlimits of {load.name}: {len(fx_nodes)} nodes, {len(whole.order)} bodies, microseconds a node"
    )
    for name, seconds in times.items():
        print(f"{name:<54}{seconds / len(fx_nodes) * 1e6:>7.1f}")
    return times


def _paused(steps: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    def paused(step: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with collector_paused():
                return step()

        return run

    return {name: paused(step) for name, step in steps.items()}


def _remade(nodes: tuple[px.Node, ...]) -> list[px.Node]:
    return [
        px.Node(node.name, node.do, node.args, node.kwargs, node.stack, node.meta) for node in nodes
    ]
