"""A chain of operators in a two-level hierarchy, built directly as a value, of any size.

It shows how time grows with the number of nodes, at sizes far beyond what the exporter handles.
"""

from __future__ import annotations

import torch

import purefx as px
from purefx.ir.operators import op_of

__all__ = ["chain"]


def chain(nodes: int, *, per_call: int = 5, calls: int = 10) -> px.Program:
    """Return a flat program of ``nodes`` negations in a two-level hierarchy, built without the exporter."""
    neg = op_of(torch.ops.aten.neg.default)
    made: list[px.Node] = []
    previous = "x"
    for index in range(nodes):
        block, layer = index // (calls * per_call), index // per_call % calls
        stack = (px.Frame(f"block{block}"), px.Frame(f"block{block}.layer{layer}"))
        made.append(px.Node(f"n{index}", neg, (px.Ref(previous),), (), stack))
        previous = f"n{index}"
    graph = px.Graph((px.Input("x"),), tuple(made), (px.Ref(previous),))
    signature = px.ir.Signature(
        (px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"),), (px.ir.UserOutput(),)
    )
    return px.Program.of({"": graph}, signature=signature, facts=frozenset({"flat"}))
