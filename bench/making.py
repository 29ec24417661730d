"""Making a module hierarchy from an exported program: ours, the peer's, and a floor below which no solution can go.

The floor does, in the same run, the least that every solution must do: read each exported node once, create as many empty
modules, and register as many tensors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import purefx as px
from bench.measure import alternate
from bench.workloads import Workload
from purefx.ir.torch_private import pytree

__all__ = ["HEADER", "floor", "looked_at", "making"]

HEADER = (
    f"{'making':<15} {'nodes':>6} {'modules':>7} {'ours ms':>8} {'torch ms':>9} {'ratio':>7} {'of floor':>8} "
    f"{'with forward':>12} {'looked at':>9}  equal"
)


def making(load: Workload, rounds: int, *, alone: bool = False) -> dict[str, Any]:
    """Time the main job, alone, with the first forward, and with every graph and every code looked at.

    Args:
        load: what is made.
        rounds: of timing.
        alone: do not time the last two: for workloads that take the peer minutes.
    """
    ep, args, kwargs = load.ep, load.args, load.kwargs

    def ours() -> nn.Module:
        return px.lower(px.transform(px.import_ep(ep)))

    def peer() -> nn.Module:
        return torch.export.unflatten(ep)

    candidates: dict[str, Callable[[], Any]] = {
        "ours": ours,
        "torch": peer,
        "floor": lambda: floor(ep),
    }
    more: dict[str, Callable[[], Any]] = {
        "ours, forward": lambda: ours()(*args, **kwargs),
        "torch, forward": lambda: peer()(*args, **kwargs),
        "ours, looked at": lambda: looked_at(ours()),
        "torch, looked at": lambda: looked_at(peer()),
    }
    times = alternate(candidates if alone else candidates | more, rounds=rounds)
    nothing = math.nan
    return {
        "name": load.name,
        "nodes": len(ep.graph.nodes),
        "modules": sum(1 for _ in load.model.modules()),
        "seconds": times,
        "ratio": times["torch"] / times["ours"],
        "of floor": times["ours"] / times["floor"],
        "with forward": times.get("torch, forward", nothing) / times.get("ours, forward", nothing),
        "looked at": times.get("torch, looked at", nothing) / times.get("ours, looked at", nothing),
        "equal": equal(ours(), load),
    }


def line(figures: dict[str, Any]) -> str:
    """Return the line of the table for one workload."""
    times = figures["seconds"]
    peer = "Recursion" if math.isnan(times["torch"]) else f"{times['torch'] * 1e3:.1f}"
    return (
        f"{figures['name']:<15} {figures['nodes']:>6} {figures['modules']:>7} {times['ours'] * 1e3:>8.1f} {peer:>9} "
        f"{figures['ratio']:>6.1f}x {figures['of floor']:>7.1f}x {figures['with forward']:>11.1f}x {figures['looked at']:>8.1f}x"
        f"  {figures['equal']}"
    )


def equal(module: nn.Module, load: Workload) -> bool:
    """Say whether three calls in a row give what the eager model gives, to the last bit."""
    model = copy.deepcopy(load.model)
    for _ in range(3):
        found, expected = module(*load.args, **load.kwargs), model(*load.args, **load.kwargs)
        pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
        if not all(torch.equal(a, b) for a, b in pairs if isinstance(a, torch.Tensor)):
            return False
    return True


def floor(ep: torch.export.ExportedProgram) -> nn.Module:
    """Read every exported node once, make as many empty modules, and register as many tensors, and no more."""
    for node in ep.graph.nodes:
        for argument in node.args:
            type(argument)
        seen = (
            node.name,
            node.op,
            node.target,
            node.kwargs,
            node.meta.get("val"),
            node.meta.get("nn_module_stack"),
        )
        del seen
    made = [nn.Module() for _ in ep.module_call_graph]
    for number, value in enumerate(ep.state_dict.values()):
        if isinstance(value, nn.Parameter):
            made[0].register_parameter(f"p{number}", value)
        else:
            made[0].register_buffer(f"b{number}", value)
    return made[0]


def looked_at(module: Any) -> int:
    """Look at the graph and the code of every module, and return how much text there was."""
    length = 0
    for found in module.modules():
        if isinstance(found, torch.fx.GraphModule):
            length += len(found.graph.nodes) + len(found.code)
        elif hasattr(found, "graph_module"):
            length += len(found.graph.nodes) + len(found.graph_module.code)
    return length
