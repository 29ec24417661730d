"""Running what was made: against eager, the exported program's own module, and the peer.

All of them get the same call with the same inputs, alternately; the overhead of each is its time less eager's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

import purefx as px
from bench.measure import alternate
from bench.workloads import Workload

__all__ = ["HEADER", "forward", "many_inputs"]

HEADER = (
    f"{'forward':<15} {'eager us':>9} {'ours':>6} {'interpreter':>11} {'ep.module()':>11} {'torch':>6}"
    "   interpreter, us an operator"
)


class Many(nn.Module):
    """Takes any number of inputs, and adds them up."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total


def many_inputs(count: int) -> Workload:
    """Return a model of many tensor inputs that share one dynamic size."""
    xs = tuple(torch.ones(4, 3) for _ in range(count))
    size = Dim("n", min=2)
    ep = torch.export.export(Many(), xs, dynamic_shapes={"xs": tuple({0: size} for _ in xs)})
    return Workload(f"inputs-{count}", Many(), xs, {}, ep)


def forward(load: Workload, rounds: int) -> dict[str, Any]:
    """Time one call of what was made.

    Args:
        load: what is called.
        rounds: of timing, ten calls each.
    """
    program = px.transform(px.import_ep(load.ep))
    candidates = {
        "eager": load.model,
        "ours": px.lower(program),
        "interpreter": px.lower(program, to="interpreter"),
        "ep.module()": load.ep.module(),
        "torch": torch.export.unflatten(load.ep),
    }
    with torch.no_grad():
        runs = {name: _call(module, load) for name, module in candidates.items()}
        times = alternate(runs, rounds=rounds, calls=10)
    operators = sum(node.op == "call_function" for node in load.ep.graph.nodes)
    step = (times["interpreter"] - times["ours"]) / operators
    return {
        "name": load.name,
        "operators": operators,
        "seconds": times,
        "interpreter, seconds an operator": step,
    }


def _call(module: Any, load: Workload) -> Any:
    return lambda: module(*load.args, **load.kwargs)


def line(figures: dict[str, Any]) -> str:
    """Return the line of the table for one workload."""
    times = figures["seconds"]
    eager = times["eager"]
    cells = "".join(
        f"{times[name] / eager:>{width}.2f}x"
        for name, width in (("ours", 6), ("interpreter", 11), ("ep.module()", 11), ("torch", 6))
    )
    return f"{figures['name']:<15} {eager * 1e6:>9.0f}{cells}   {figures['interpreter, seconds an operator'] * 1e6:.1f}"
