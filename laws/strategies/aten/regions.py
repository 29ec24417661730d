"""Nodes that call bodies: ``cond`` and ``no_grad`` regions.

One idea: the body is looked up, the node hands it two values that exist, and its results are values like others.
"""

from __future__ import annotations

from typing import Any

import torch

from .bodies import branch, predicate, region
from .flow import Flow, Value
from .kinds import combine, infer

__all__ = ["add_cond", "add_region"]

aten: Any = torch.ops.aten
hop: Any = torch.ops.higher_order


def add_cond(flow: Flow, first: int, second: int) -> None:
    """Add a ``cond`` with two branches."""
    p, q = _operands(flow, first, second)
    if p is None or q is None:
        return
    decide = predicate(flow, q)
    number = len(flow.modules)
    bodies = (branch(second, p.kind, q.kind), branch(first + 1, p.kind, q.kind))
    names = (f"true_graph_{number}", f"false_graph_{number}")
    flow.modules.update(zip(names, bodies, strict=True))
    kind = infer(aten.clone.default, (p.kind,), {})
    made = flow.node(hop.cond, (decide, *map(flow.graph.get_attr, names), (p, q)), {}, (kind,))
    flow.parts(made, (kind,), (None,))


def add_region(flow: Flow, first: int, second: int) -> None:
    """Add a ``no_grad`` region, which may write to its operands, and whose own stack may be that of the caller."""
    p, q = _operands(flow, first, second)
    if p is None or q is None:
        return
    inside = flow.frames
    body, kinds, is_first = region(second, flow.style, inside, p, q)
    name = f"submod_{len(flow.modules)}"
    flow.modules[name] = body
    flow.frames = inside[:-1] if second > 3 else inside
    made = flow.node(hop.wrap_with_set_grad_enabled, (False, flow.graph.get_attr(name), p, q), {}, kinds)
    flow.frames = inside
    flow.parts(made, kinds, (p if is_first else None, None))


def _operands(flow: Flow, first: int, second: int) -> tuple[Value | None, Value | None]:
    found = [value for value in (flow.value(first), flow.own(second) or flow.value(second)) if value.kind.dtype is not torch.bool]
    if len(found) < 2 or not combine(*(value.kind for value in found)):
        return None, None
    return found[0], found[1]
