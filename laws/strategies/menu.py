"""``MENU``: what the kinds of nodes are: each entry adds the operators that one drawn node stands for.

An entry looks at what exists and adds what is possible there, nothing if nothing is; in functional style it adds
the operators that ``run_decompositions`` would have made of a write.  Which entry comes when is drawn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from ...ir.torch_private import resolve_operator
from ..toy import TALLY
from .flow import REFUSED, Flow, Frames, Kind, Style, Value, combine, infer, tensor_kind

__all__ = ["DOING", "MENU", "add_cond", "add_region", "branch", "predicate", "region"]

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
            bodies = [
                flow.body(f"{name}_graph_0", _branch(2 - index, p.kind, q.kind)) for index, name in enumerate(("true", "false"))
            ]
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
    yes = flow.body(f"true_graph_{number}", branch(second, p.kind, q.kind))
    no = flow.body(f"false_graph_{number}", branch(first + 1, p.kind, q.kind))
    kind = infer(aten.clone.default, (p.kind,), {})
    made = flow.node(hop.cond, (decide, yes, no, (p, q)), {}, (kind,))
    flow.parts(made, (kind,), (None,))


def add_region(flow: Flow, first: int, second: int) -> None:
    """Add a ``no_grad`` region, which may write to its operands, and whose own stack may be that of the caller."""
    p, q = _operands(flow, first, second)
    if p is None or q is None:
        return
    inside = flow.frames
    body, kinds, is_first = region(second, flow.style, inside, p, q)
    held = flow.body(f"submod_{len(flow.modules)}", body)
    flow.frames = inside[:-1] if second > 3 else inside
    made = flow.node(hop.wrap_with_set_grad_enabled, (False, held, p, q), {}, kinds)
    flow.frames = inside
    flow.parts(made, kinds, (p if is_first else None, None))


def _operands(flow: Flow, first: int, second: int) -> tuple[Value | None, Value | None]:
    found = [value for value in (flow.value(first), flow.own(second) or flow.value(second)) if value.kind.dtype is not torch.bool]
    if len(found) < 2 or not combine(*(value.kind for value in found)):
        return None, None
    return found[0], found[1]


# -- the menu --------------------------------------------------------------------------------------------------------------------


PRINT: Any = resolve_operator("aten", "_print", "default")
ASSERT: Any = resolve_operator("aten", "_assert_async", "msg")
BATCH_NORM: Any = resolve_operator("aten", "_native_batch_norm_legit_functional", "default")
DIRICHLET: Any = resolve_operator("aten", "_sample_dirichlet", "default")

UNARY = (
    aten.neg.default, aten.sin.default, aten.relu.default, aten.tanh.default, aten.abs.default, aten.clone.default,
    aten.gelu.default, aten.sigmoid.default,
)  # fmt: skip
BINARY = (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.maximum.default)
BEHIND_LINEAR = (
    (aten.relu.default, ()), (aten.gelu.default, ()), (aten.softmax.int, (-1,)), (aten.relu.default, ()),
    (aten.layer_norm.default, ([4],)), (aten.silu.default, ()), (aten.relu.default, ()), (aten.dropout.default, (0.5, False)),
)  # fmt: skip
"""What stands behind a linear layer in models, and what rewrites look for there."""
BY_NUMBER = ((aten.add_.Tensor, aten.add.Tensor), (aten.mul_.Tensor, aten.mul.Tensor), (aten.sub_.Tensor, aten.sub.Tensor))
RANDOM = (
    (aten.dropout.default, (0.5, True)), (aten.rand_like.default, ()), (aten.bernoulli.p, (0.5,)),
    (aten.native_dropout.default, (0.5, True)), (aten.dropout.default, (0.5, False)), (aten.randn_like.default, ()),
    (aten.bernoulli.p, (0.0,)), (aten.native_dropout.default, (0.0, True)),
)  # fmt: skip
"""The last two give what is known before, and draw all the same."""
NORM = ((True, 0.1, 1e-5, False), (False, 0.1, 1e-5, False))
"""Of ``batch_norm``: whether it updates the running statistics, momentum, epsilon, cudnn."""
STATISTIC = tensor_kind(torch.float32, 4)
RANDOM_WRITES = ((aten.normal_.default, aten.randn_like.default), (aten.uniform_.default, aten.rand_like.default))


def _unary(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    # Not everything that meta tensors of integers let pass is implemented for real ones.
    flow.emit(UNARY[second if a.kind.dtype is torch.float32 else second % 6], a)


def _binary(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    b = flow.like(second, a)
    flow.emit(BINARY[(first + second) % len(BINARY)], a, 2 if b is None else b)


def _scaled(flow: Flow, first: int, second: int) -> None:
    flow.emit(aten.add.Tensor, flow.value(first), second + 1, alpha=0.5 if second % 2 else 2)


def _linear(flow: Flow, first: int, second: int) -> None:
    weight, bias = flow.own(second, ("4", "4")), flow.own(second, ("4",))
    a = _some(flow, first, lambda value: value.kind.dims[-1:] == ("4",) and value.kind.dtype is torch.float32)
    if a is not None and weight is not None:
        flow.emit(aten.linear.default, a, weight, *(() if bias is None else (bias,)))


def _layer(flow: Flow, first: int, second: int) -> None:
    a = _some(flow, first, lambda value: value.kind.dims[-1:] == ("4",) and value.kind.dtype is torch.float32)
    weight = flow.own(second, ("4", "4")) or next((given for given in flow.given if given.kind.dims == ("4", "4")), None)
    if a is None:
        return
    if weight is None and second % 2:
        weight = flow.emit(aten.full.default, [4, 4], 0.25 * (second - 4), device=torch.device("cpu"), pin_memory=False)
    if weight is not None:
        bias = flow.own(second, ("4",))
        made = flow.emit(aten.linear.default, a, weight, *(() if bias is None else (bias,)))
    else:
        turned = flow.emit(aten.transpose.int, a, 0, 1, of=a) if len(a.kind.dims) == 2 else None
        square = turned and flow.emit(aten.matmul.default, a, turned)
        made = square and flow.emit(aten.matmul.default, square, a)
    if made:
        target, args = BEHIND_LINEAR[(first + second) % len(BEHIND_LINEAR)]
        flow.emit(target, made, *args, of=made if target is aten.dropout.default else None)


def _with_own(flow: Flow, first: int, second: int) -> None:
    own, a = flow.own(second), flow.value(first)
    if own is not None and not _apart(own, a):
        flow.emit(BINARY[second % 2], a, own)


def _update(flow: Flow, first: int, second: int) -> None:
    write, pure = BY_NUMBER[second % 3]
    _write(flow, flow.value(first), write, pure, second + 1)


def _update_own(flow: Flow, first: int, second: int) -> None:
    own = flow.own(first)
    if own is not None:
        _write(flow, own, *BY_NUMBER[second % 2], second + 1)


def _copy(flow: Flow, first: int, second: int) -> None:
    target = flow.own(first) if second % 2 else flow.value(first)
    source = target and flow.like(second, target)
    if target is not None and source is not None and len(source.kind.dims) <= len(target.kind.dims):
        _write(flow, target, aten.copy_.default, aten.copy.default, _separate(flow, target, source))


def _combine_into(flow: Flow, first: int, second: int) -> None:
    target = flow.own(first) if second % 2 else flow.value(first)
    source = target and flow.like(second, target)
    if target is not None and source is not None and len(source.kind.dims) <= len(target.kind.dims) and _holds(target, source):
        _write(flow, target, *BY_NUMBER[second % 2], _separate(flow, target, source))


def _write(flow: Flow, target: Value, write: Any, pure: Any, *args: Any) -> None:
    if flow.style.is_functional:
        made = flow.emit(pure, target, *args)
        if made is not None:
            flow.write(target, made)
    elif target.is_writable and target.kind.is_plain:
        flow.emit(write, target, *args, of=target)


def _holds(target: Value, source: Value) -> bool:
    # Meta tensors let integers be written with floats, real ones do not.
    return target.kind.dtype in (torch.float32, source.kind.dtype)


def _separate(flow: Flow, target: Value, source: Value) -> Value:
    # Torch refuses to write to memory that it reads through another window.
    return flow.emit(aten.clone.default, source) if source.memory == target.memory and source is not target else source


def _view(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    rank = len(a.kind.dims)
    if second == 0 and rank:
        flow.emit(aten.select.int, a, rank - 1, 1, of=a)
    elif second == 1 and rank:
        flow.emit(aten.slice.Tensor, a, rank - 1, 1, 3, of=a)
    elif second == 2 and rank == 2 and a.kind.is_contiguous:
        flow.emit(aten.view.default, a, [-1], of=a)
    elif second == 3 and rank < 2:
        flow.emit(aten.unsqueeze.default, a, 0, of=a)
    elif second == 4 and rank == 2:
        flow.emit(aten.transpose.int, a, 0, 1, of=a)
    elif second == 5 and rank < 2:
        flow.emit(aten.expand.default, a, [3, *([-1] * rank)], of=a)
    elif second == 6:
        flow.emit(aten.to.dtype, a, torch.float32, of=a)
    else:
        flow.emit(aten.detach.default, a, of=a)


def _through_view(flow: Flow, first: int, second: int) -> None:
    target = flow.own(first) if second % 2 else flow.value(first)
    if target is None or not target.kind.dims or not target.kind.is_plain:
        return
    if second < 4:
        window, place, scatter = aten.select.int, (0, second % 2), aten.select_scatter.default
    else:
        window, place, scatter = aten.slice.Tensor, (0, 0, 2), aten.slice_scatter.default
    part = flow.emit(window, target, *place, of=target)
    if part is None:
        return
    write, pure = BY_NUMBER[second % 2]
    if not flow.style.is_functional:
        _write(flow, part, write, pure, second + 1)
        return
    made = flow.emit(pure, part, second + 1)
    whole = made and flow.emit(scatter, target, made, *place)
    if whole:
        flow.write(target, whole)


def _out(flow: Flow, first: int, second: int) -> None:
    target = flow.own(second) if second % 2 else flow.value(second)
    if target is None:
        return
    a = _some(flow, first, lambda value: value.kind.dims == target.kind.dims and _holds(target, value))
    if a is None:
        return
    if flow.style.is_functional:
        _write(flow, target, None, aten.copy.default, flow.emit(aten.add.Tensor, a, second) or a)
    elif target.is_writable and target.kind.is_plain:
        flow.emit(aten.add.out, _separate(flow, target, a), second, of=target, out=target)


def _random(flow: Flow, first: int, second: int) -> None:
    target, args = RANDOM[second % len(RANDOM)]
    a = _some(flow, first, lambda value: value.kind.dtype is torch.float32)
    if a is not None:
        flow.emit(target, a, *args, of=a if args == (0.5, False) else None)


def _random_write(flow: Flow, first: int, second: int) -> None:
    target = flow.own(first) if second % 2 else flow.value(first)
    if target is not None and target.kind.dtype is torch.float32:
        _write(flow, target, *RANDOM_WRITES[second % 2])


def _print(flow: Flow, first: int, second: int) -> None:
    flow.order(PRINT, f"t{first}{second}")


def _assert(flow: Flow, first: int, second: int) -> None:
    count = flow.emit(aten.count_nonzero.default, flow.value(first))
    holds = count and flow.emit(aten.ge.Scalar, count, 0)
    if holds:
        flow.emit(ASSERT, holds, f"t{second}")


def _several(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    if not a.kind.dims:
        return
    match second % 4:
        case 0:
            flow.emit(aten.split.Tensor, a, 2, len(a.kind.dims) - 1, of=a)
        case 1:
            flow.emit(aten.unbind.int, a, len(a.kind.dims) - 1, of=a)
        case 2 if a.kind.dims[0] != "0" and a.kind.dims[0].isalnum():
            # Fake tensors let the maximum of nothing be asked for, real ones do not; a size that is computed may come to nothing.
            flow.emit(aten.max.dim, a, 0)
        case _:
            flow.emit(aten.var_mean.correction, a, [0])


def _sizes(flow: Flow, first: int, second: int) -> None:
    number = flow.numbers[-1 - first % len(flow.numbers)] if flow.numbers else 3
    match second:
        case 0 | 1:
            dynamic = _some(flow, first, lambda value: value.kind.dims[:1] not in ((), ("4",), ("2",)))
            if dynamic is not None:
                flow.emit(aten.sym_size.int, dynamic, 0)
        case 2 | 3:
            a = _some(flow, first, lambda value: value.kind.dims == ("4",))
            if a is not None:
                flow.emit(aten.expand.default, a, [number, 4], of=a)
        case 4:
            flow.emit(aten.full.default, [number, 4], 0.5, device=torch.device("cpu"), pin_memory=False)
        case _:
            flow.emit(aten.mul.Tensor, flow.value(first), number)


def _batch_norm(flow: Flow, first: int, second: int) -> None:
    a = _some(flow, first, lambda value: value.kind.dims == ("3", "4") and value.kind.dtype is torch.float32)
    found = {given.memory: given for given in flow.given if given.is_writable and given.kind.dims == ("4",)}
    buffers = list(found.values())
    if a is None or len(buffers) < 2:
        return
    mean, var = (flow.now(buffers[(second + shift) % len(buffers)]) for shift in (0, 1))
    if len({a.memory, mean.memory, var.memory}) < 3:
        return
    if not flow.style.is_functional:
        flow.emit(aten.batch_norm.default, a, None, None, mean, var, *NORM[second % 2])
        return
    made = flow.emit(BATCH_NORM, a, None, None, mean, var, *NORM[0][:3])
    if made:
        flow.write(mean, made[3])
        flow.write(var, made[4])


def _hidden(flow: Flow, first: int, second: int) -> None:
    # The effects of these are in no schema.
    a = flow.value(first)
    match second:
        case 0 | 1 | 7:
            _writes_statistics(flow, first)
        case 2:
            flow.emit(aten.lift.default, a, of=a)
        case 3:
            flow.emit(TALLY, a) if first % 2 else flow.emit(aten.data.default, a, of=a)
        case 4:
            b = flow.value(first + 1)
            kinds = infer(aten.atleast_3d.Sequence, ([a.kind, b.kind],), {})
            if kinds is not REFUSED:
                flow.parts(flow.node(aten.atleast_3d.Sequence, ([a, b],), {}, kinds), kinds, (a, b))
        case 5:
            flat = _some(flow, first, lambda value: value.kind.dims == ("4",))
            part = flat and flow.emit(aten.slice.Tensor, flat, 0, 0, 2, of=flat)
            if part:
                flow.emit(aten.unflatten_dense_tensors.default, flat, [part, part], of=flat)
        case _:
            sizes = flow.emit(aten.full.default, [4], 0.5 + first, device=torch.device("cpu"), pin_memory=False)
            if sizes:
                flow.keep(Value(flow.node(DIRICHLET, (sizes,), {}, sizes.kind), sizes.kind, object()))


def _writes_statistics(flow: Flow, first: int) -> None:
    a = _some(flow, first, lambda value: value.kind.dims == ("3", "4") and value.kind.dtype is torch.float32)
    buffers = [given for given in flow.given if given.is_writable and given.kind.text == STATISTIC.text]
    if a is None or len(buffers) < 2 or flow.style.is_functional:
        return
    mean, var = (buffers[(first + shift) % len(buffers)] for shift in (0, 1))
    if len({a.memory, mean.memory, var.memory}) < 3:
        return
    if first % 2:
        flow.emit(aten.native_batch_norm.default, a, None, None, mean, var, *NORM[0][:3])
    else:
        kinds = (STATISTIC, STATISTIC)
        flow.parts(flow.node(aten.batch_norm_update_stats.default, (a, mean, var, 0.1), {}, kinds), kinds, (None, None))


def _stack(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    b = _some(flow, second, lambda value: value.kind.dims == a.kind.dims)
    if b is None:
        return
    if second % 4 == 3 and a.kind.dims:
        flow.emit(aten.cat.default, [a, b], len(a.kind.dims) - 1)
    elif second % 4 == 2:
        larger = flow.emit(aten.gt.Tensor, a, b)
        if larger:
            flow.emit(aten.where.self, larger, a, b)
    elif len(a.kind.dims) < 2:
        flow.emit(aten.stack.default, [a, b])


def _reduce(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    if a.kind.dims and second % 2:
        flow.emit(aten.sum.dim_IntList, a, [0])
    else:
        flow.emit(aten.sum.default, a)


def _some(flow: Flow, number: int, fits: Callable[[Value], bool]) -> Value | None:
    return next((value for value in map(flow.value, range(number, number + 12)) if fits(value)), None)


def _apart(left: Value, right: Value) -> bool:
    pairs = zip(reversed(left.kind.dims), reversed(right.kind.dims), strict=False)
    return any(a != b and "1" not in (a, b) for a, b in pairs)


MENU: tuple[Callable[[Flow, int, int], None], ...] = (
    _unary, _binary, _scaled, _linear, _layer, _with_own, _with_own, _update, _update_own, _update_own, _copy,
    _combine_into, _view, _through_view, _through_view, _out, _random, _random_write, _print, _assert, add_cond, add_region,
    _several, _sizes, _batch_norm, _hidden, _stack, _reduce,
)  # fmt: skip

DOING: Mapping[str, tuple[Callable[[Flow, int, int], None], ...]] = {
    "random": (_random, _random_write, _hidden),
    "effects": (_print, _assert),
    "regions": (add_cond, add_region),
    "training": (_batch_norm,),
    "views": (_view, _through_view, _several, _hidden),
    "new contents": (_update, _update_own, _copy, _combine_into, _random_write),
}
"""Which entries do what, for programs that do not."""
