"""Memory that programs and lowered modules retain for each node, and that a hundred versions of one program retain.

Python objects are counted; tensors are not, since they are shared.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve

import purefx as px
from bench.measure import kept
from bench.workloads import Workload

__all__ = ["memory"]

VERSIONS = 100


def memory(load: Workload) -> dict[str, float]:
    """Print and return bytes a node.

    Args:
        load: what is kept.
    """
    nodes = len(load.ep.graph.nodes)
    flat, program_bytes, program_peak = kept(lambda: px.import_ep(load.ep))
    _, versions_bytes, _ = kept(lambda: versions(flat))
    whole = px.transform(flat)
    _, lowered_bytes, _ = kept(lambda: px.lower(whole, state="share"))
    _, peer_bytes, peer_peak = kept(lambda: torch.export.unflatten(load.ep))
    found = {
        "program": program_bytes / nodes,
        "program, peak": program_peak / nodes,
        "lowered": lowered_bytes / nodes,
        "torch": peer_bytes / nodes,
        "torch, peak": peer_peak / nodes,
        "hundred versions, of one": (program_bytes + versions_bytes) / program_bytes,
    }
    print(
        f"\nmemory of {load.name}, bytes a node of {nodes}: "
        + ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    )
    return found


def versions(program: px.Program) -> list[px.Program]:
    """Return programs that differ from one by one edit each."""
    made: list[Any] = []
    for number in range(VERSIONS):
        main = program.main
        nodes = (
            *main.nodes[:number],
            evolve(main.nodes[number], name=f"renamed_{number}"),
            *main.nodes[number + 1 :],
        )
        made.append(program.with_main(evolve(main, nodes=nodes)))
    return made
