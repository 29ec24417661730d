"""Nodes that call bodies: the branches of ``cond``, the inside of a ``no_grad`` region.

Bodies are drawn like the root.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .flow import Flow, Frames, Kind, Style, Value, combine, infer

__all__ = ["add_cond", "add_region", "branch", "predicate", "region"]

aten: Any = torch.ops.aten
cond: Any = torch.ops.higher_order.cond

DROPPED = (0.5, True)
PLAIN = Style(is_functional=True, is_strict=False)


def branch(number: int, p: Kind, q: Kind) -> torch.fx.GraphModule:
    """Return a branch of ``cond``: it takes two operands and gives one value of the kind of the first.

    >>> from .flow import tensor_kind
    >>> branch(0, tensor_kind(torch.float32, 4), tensor_kind(torch.float32)).code.strip().splitlines()[-2].strip()
    'neg = torch.ops.aten.neg.default(p);  p = None'
    """
    return _branch(number % 8, p, q)


@cache
def _branch(number: int, p: Kind, q: Kind) -> torch.fx.GraphModule:
    return _module(PLAIN, None, {"p": p, "q": q}, lambda flow, a, b: [_compute(number, flow, a, b)])


def _compute(number: int, flow: Flow, p: Value, q: Value) -> Value:
    match number:
        case 0:
            return flow.emit(aten.neg.default, p)
        case 1:
            by = 0.5 if p.kind.dtype is torch.float32 else 3  # a branch gives what the other gives
            return _same(flow.emit(aten.mul.Tensor, p, q), p) or flow.emit(aten.mul.Tensor, p, by)
        case 2 | 3 if p.kind.dtype is torch.float32:
            return flow.emit(aten.add.Tensor, flow.emit(aten.rand_like.default, p), p)
        case 4 if p.kind.dtype is torch.float32:
            return flow.emit(aten.dropout.default, p, *DROPPED)
        case 5:
            flow.modules |= {"true_graph_0": _branch(2, p.kind, q.kind), "false_graph_0": _branch(1, p.kind, q.kind)}
            bodies = [flow.graph.get_attr(name) for name in flow.modules]
            kind = infer(aten.clone.default, (p.kind,), {})
            made = flow.node(cond, (predicate(flow, q), *bodies, (p, q)), {}, (kind,))
            return flow.parts(made, (kind,), (None,))[0]
        case 6:
            flow.emit(aten.sin.default, q)
            return flow.emit(aten.clone.default, p)
        case _:
            return flow.emit(aten.add.Tensor, p, 1)


def _same(made: Value | None, p: Value) -> Value | None:
    return made if made is not None and made.kind is p.kind else None


def predicate(flow: Flow, value: Value) -> Value:
    """Add what a ``cond`` decides by: whether the sum of a value is above a number."""
    return flow.emit(aten.gt.Scalar, flow.emit(aten.sum.default, value), 0.5)


def region(number: int, style: Style, frames: Frames, p: Value, q: Value) -> tuple[torch.fx.GraphModule, tuple[Kind, ...], bool]:
    """Return the inside of a ``no_grad`` region, the kinds of its two results, and whether the first is the first operand's."""
    writes = number % 4 == 1 and not style.is_functional and p.is_writable and p.kind.is_plain
    views = number % 4 == 2 and len(p.kind.dims) > 0
    return *_region(1 if writes else 2 if views else number % 2 * 3, style, frames, p.kind, q.kind), writes or views


@cache
def _region(number: int, style: Style, frames: Frames, p: Kind, q: Kind) -> tuple[torch.fx.GraphModule, tuple[Kind, ...]]:
    firsts: dict[int, Callable[[Flow, Value], Value]] = {
        0: lambda flow, a: flow.emit(aten.neg.default, a),
        1: lambda flow, a: flow.emit(aten.add_.Tensor, a, 2),
        2: lambda flow, a: flow.emit(aten.slice.Tensor, a, 0, 0, 2, of=a),
        3: lambda flow, a: flow.emit(aten.mul.Tensor, a, 2),
    }
    kinds: list[Kind] = []

    def fill(flow: Flow, a: Value, b: Value) -> list[Value]:
        values = [firsts[number](flow, a), flow.emit(aten.abs.default, b)]
        kinds.extend(value.kind for value in values)
        return values

    return _module(style, frames, {"p": p, "q": q}, fill), tuple(kinds)


def _module(
    style: Style, frames: Frames | None, operands: dict[str, Kind], fill: Callable[..., list[Value]]
) -> torch.fx.GraphModule:
    flow = Flow(torch.fx.Graph(), style, is_body=True)
    flow.frames = frames or ()
    values: list[Value] = []
    for name, kind in operands.items():
        node = flow.graph.placeholder(name)
        node.meta["val"] = flow.fake(kind)
        values.append(Value(node, kind, object()))
    flow.graph.output(tuple(value.node for value in fill(flow, *values)))
    if frames is None:
        # The exporter gives the nodes in a branch an empty stack.
        for node in flow.graph.nodes:
            if node.op == "call_function":
                node.meta["nn_module_stack"] = OrderedDict()
    return torch.fx.GraphModule(dict(flow.modules), flow.graph)


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
