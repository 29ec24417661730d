"""Bodies of operators that read state or call modules: they stand in the module whose body holds the operator.

One idea: such a body is a module of its own, with everything that the module around it has; so it reads the same tensors and
calls the same children, whichever of the modules that share the operator it is.  It is made for each run, and kept nowhere.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir.arguments import bodies_in
from ..ir.node import Op
from ..ir.program import Program

__all__ = ["standing_in", "that_stand"]

OWN = frozenset({"purefx_place", "purefx_answers", "purefx_plan", "graph", "_graph", "_code", "graph_module"})
"""What a module does not share with the bodies that stand in it."""


def that_stand(program: Program) -> frozenset[str]:
    """Return the ids of the graphs that read state or call modules, or are given such a graph to an operator.

    >>> from purefx.ir import Get, Graph, Node
    >>> sorted(that_stand(Program.of({"": Graph((), (Node("w", Get("w")),))})))
    ['']
    """
    found: set[str] = set()
    for name in program.bottom_up:
        for node in program.graphs[name].nodes:
            if type(node.do) is not Op or (
                node.do.effects.through_bodies and not found.isdisjoint(bodies_in(node.args, node.kwargs))
            ):
                found.add(name)
                break
    return frozenset(found)


def standing_in(holder: torch.nn.Module, body: torch.nn.Module) -> torch.nn.Module:
    """Return the module of a body as it stands in another module."""
    made: Any = body.__class__.__new__(body.__class__)
    made.__dict__.update({name: value for name, value in holder.__dict__.copy().items() if name not in OWN})
    made.__dict__.update({name: value for name, value in body.__dict__.copy().items() if name in OWN})
    return made
