"""Splitting a program into parts that run: ours, and ``torch.fx.passes.split_utils.split_by_tags``.

Both start from the input that they accept (a program with sunk state; the graph module of the exported program, with tagged
nodes) and end with a module that can be called and shares the tensors.  torch compiles its parts at once and purefx on their
first call, so the first call is timed as well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.passes.split_utils import split_by_tags as split_by_tags_of_torch

import purefx as px
from bench.measure import alternate
from bench.workloads import Workload

__all__ = ["HEADER", "line", "splitting"]

HEADER = (
    f"{'splitting':<12} {'nodes':>6} {'parts':>6} {'split ms':>9} {'and lower':>11} {'torch ms':>9} {'ratio':>7} "
    f"{'with call':>9} {'outlined ms':>11}  equal"
)


def splitting(load: Workload, parts: int, rounds: int) -> dict[str, Any]:
    """Time splitting a workload into parts of about as many operators each.

    Args:
        load: what is split.
        parts: how many parts.
        rounds: of timing.
    """
    tree = px.transform(px.import_ep(load.ep))
    flat = px.transform(px.import_ep(load.ep), *px.DEFAULT[:3])
    graph_module = load.ep.module()
    called = [
        node
        for node in graph_module.graph.nodes
        if node.op not in ("placeholder", "output", "get_attr")
    ]
    tags = [f"p{number}" for number in range(parts)]
    of: dict[str, str] = {}
    for number, node in enumerate(called):
        node.tag = of[node.name] = tags[number * parts // len(called)]
    # The same tags by position: names of nodes are not the same in both.
    mine = [node.name for node in flat.main.nodes if isinstance(node.do, px.Op)]
    by_name = {name: tags[number * parts // len(mine)] for number, name in enumerate(mine)}

    def split() -> px.Program:
        return px.split_by_tags(flat, tags, tag_of=lambda node: by_name[node.name])

    def ours() -> Any:
        return px.lower(split(), state="share")

    def theirs() -> Any:
        return split_by_tags_of_torch(graph_module, tags)

    times = alternate(
        {
            "split": split,
            "ours": ours,
            "torch": theirs,
            "ours, called": lambda: ours()(*load.args),
            "torch, called": lambda: theirs()(*load.args),
            "ours, outlined": lambda: px.lower(px.split_balanced(tree, parts, cost=lambda _: 1)),
        },
        rounds=rounds,
    )
    found, other = ours()(*load.args), theirs()(*load.args)
    expected = load.model(*load.args)
    return {
        "name": load.name,
        "nodes": len(flat.main.nodes),
        "parts": parts,
        "seconds": times,
        "ratio": times["torch"] / times["ours"],
        "with call": times["torch, called"] / times["ours, called"],
        "equal": torch.equal(found, expected) and torch.equal(_first(other), expected),
    }


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) else result


def line(figures: dict[str, Any]) -> str:
    """Return the line of the table for one workload."""
    times = {who: seconds * 1e3 for who, seconds in figures["seconds"].items()}
    return (
        f"{figures['name']:<12} {figures['nodes']:>6} {figures['parts']:>6} {times['split']:>9.1f} {times['ours']:>11.1f} "
        f"{times['torch']:>9.1f} {figures['ratio']:>6.1f}x {figures['with call']:>8.1f}x "
        f"{times['ours, outlined']:>11.1f}  {figures['equal']}"
    )
