"""The menu: each entry adds the operators of one drawn node.

An entry chooses among the present values and does nothing if none fits.  In functional style it replaces writes as
``run_decompositions`` does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import torch

from ...ir.inference import ASSUMED
from ...ir.torch_private import resolve_operator
from .flow import Flow, Frames, Kind, Style, Value, combine, infer

Entry = Callable[[Flow, int, int], object]

aten: Any = torch.ops.aten
hop: Any = torch.ops.higher_order

PRINT: Any = resolve_operator("aten", "_print", "default")
ASSERT: Any = resolve_operator("aten", "_assert_async", "msg")
BATCH_NORM: Any = resolve_operator("aten", "_native_batch_norm_legit_functional", "default")

UNARY = (
    aten.neg.default, aten.sin.default, aten.relu.default, aten.tanh.default, aten.abs.default, aten.clone.default,
    aten.gelu.default, aten.sigmoid.default,
)  # fmt: skip
BINARY = (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.maximum.default)
VIEWS: tuple[tuple[Any, ...], ...] = (
    (aten.select.int, -1, 1), (aten.slice.Tensor, -1, 1, 3), (aten.view.default, [-1]), (aten.unsqueeze.default, 0),
    (aten.transpose.int, 0, 1), (aten.expand.default, [3, -1]), (aten.to.dtype, torch.float32), (aten.detach.default,),
    (aten.lift.default,), (aten.data.default,), (aten.lift_fresh.default,),
)  # fmt: skip
"""Operators whose results share memory with their operand, and their arguments; the schemas of the last three omit effects."""
SQUEEZES: tuple[tuple[Any, ...], ...] = (
    (aten.squeeze.dim, 0), (aten.squeeze.default,), (aten.squeeze.dims, [0]),
)  # fmt: skip
"""Operators that drop a dimension of size 1, and their arguments."""
RESTORES = (aten.reshape.default, aten.view.default)
"""Operators that restore it."""
BEHIND_LINEAR = (
    (aten.relu.default, ()), (aten.gelu.default, ()), (aten.softmax.int, (-1,)), (aten.silu.default, ()),
    (aten.layer_norm.default, ([4],)), (aten.relu.default, ()), (aten.dropout.default, (0.5, False)),
)  # fmt: skip
"""Operators that often follow a linear layer, where rewrites match them."""
BY_NUMBER = (
    (aten.add_.Tensor, aten.add.Tensor),
    (aten.mul_.Tensor, aten.mul.Tensor),
    (aten.sub_.Tensor, aten.sub.Tensor),
)
BY_VALUE = ((aten.copy_.default, aten.copy.default), *BY_NUMBER[:2])
RANDOM_WRITES = (
    (aten.normal_.default, aten.randn_like.default),
    (aten.uniform_.default, aten.rand_like.default),
)
RANDOM = (
    (aten.dropout.default, (0.5, True)), (aten.rand_like.default, ()), (aten.bernoulli.p, (0.5,)),
    (aten.native_dropout.default, (0.5, True)), (aten.dropout.default, (0.5, False)), (aten.randn_like.default, ()),
    (aten.bernoulli.p, (0.0,)), (aten.native_dropout.default, (0.0, True)),
)  # fmt: skip
"""The last two draw random numbers although their results are fixed."""
NORM = ((True, 0.1, 1e-5, False), (False, 0.1, 1e-5, False))
"""Arguments of ``batch_norm``: training, momentum, epsilon, cudnn."""
ON_CPU: dict[str, Any] = {"device": torch.device("cpu"), "pin_memory": False}


def _is_float(value: Value) -> bool:
    return value.kind.dtype is torch.float32


def _is_small(flow: Flow, value: Value, dim: int) -> bool:
    # Whether a dimension may have the size 0 or 1, where a part of two rows and the maximum do not exist.
    dims = value.kind.dims
    return flow.smallest < ASSUMED and len(dims) > 0 and not dims[dim].isdigit()


def _target(flow: Flow, first: int, second: int) -> Value | None:
    return flow.own(first) if second % 2 else flow.value(first)


# -- operators that compute ------------------------------------------------------------------------------------------------------


def _unary(flow: Flow, first: int, second: int) -> Any:
    a = flow.value(first)
    # Some operators accept integers as meta tensors only.
    return flow.emit(UNARY[second if _is_float(a) else second % 6], a)


def _binary(flow: Flow, first: int, second: int) -> Any:
    a = flow.value(first)
    b = flow.like(second, a)
    target = BINARY[(first + second) % len(BINARY)]
    scaled: dict[str, Any] = {"alpha": 2} if target is aten.add.Tensor and second % 4 == 3 else {}
    return flow.emit(target, a, 2 if b is None else b, **scaled)


def _layer(flow: Flow, first: int, second: int) -> None:
    a = flow.find(first, lambda value: _is_float(value) and value.kind.dims[-1:] == ("4",))
    if a is None:
        return
    weight = flow.own(second, ("4", "4")) or flow.emit(
        aten.full.default, [4, 4], 0.25 * (second - 4), **ON_CPU
    )
    bias = flow.own(second, ("4",))
    made = flow.emit(aten.linear.default, a, weight, *(() if bias is None else (bias,)))
    if made:
        target, args = BEHIND_LINEAR[(first + second) % len(BEHIND_LINEAR)]
        flow.emit(target, made, *args, of=made if target is aten.dropout.default else None)


def _with_own(flow: Flow, first: int, second: int) -> None:
    own, a = flow.own(second), flow.value(first)
    if own is not None and combine(own.kind, a.kind):
        flow.emit(BINARY[second % 2], a, own)


def _random(flow: Flow, first: int, second: int) -> Any:
    target, args = RANDOM[second % len(RANDOM)]
    a = flow.find(first, _is_float)
    return a and flow.emit(target, a, *args, of=a if args == (0.5, False) else None)


def _combined(flow: Flow, first: int, second: int) -> Any:
    a = flow.value(first)
    b = flow.find(second, lambda value: value.kind.dims == a.kind.dims)
    kind = second % 5
    if kind < 2 and b is not None and a.kind.dims:
        return flow.emit(aten.cat.default, [a, b], -1)
    if kind == 2 and b is not None and (larger := flow.emit(aten.gt.Tensor, a, b)):
        return flow.emit(aten.where.self, larger, a, b)
    return flow.emit(aten.sum.dim_IntList, a, [0]) if kind == 3 else flow.emit(aten.sum.default, a)


def _several(flow: Flow, first: int, second: int) -> None:
    a = flow.value(first)
    size = a.kind.dims[0] if a.kind.dims else ""
    kind = second % 4
    if kind == 0:
        flow.emit(aten.split.Tensor, a, 2, -1, of=a)
    elif kind == 1:
        flow.emit(aten.unbind.int, a, -1, of=a)
    elif a.kind.dims and _is_small(flow, a, 0):
        return
    elif kind == 2 and size.isalnum() and size != "0":
        # Real empty tensors have no maximum, and a computed size may be zero.
        flow.emit(aten.max.dim, a, 0)
    elif size not in ("", "0", "1"):  # torch warns of those
        flow.emit(aten.var_mean.correction, a, [0])


def _sizes(flow: Flow, first: int, second: int) -> None:
    number = flow.numbers[-1 - first % len(flow.numbers)] if flow.numbers else 3
    if second < 2:
        dynamic = flow.find(first, lambda value: value.kind.dims[:1] not in ((), ("4",), ("2",)))
        if dynamic is not None:
            flow.emit(aten.sym_size.int, dynamic, 0)
    elif second < 4:
        a = flow.find(first, lambda value: value.kind.dims == ("4",))
        if a is not None:
            flow.emit(aten.expand.default, a, [number, 4], of=a)
    elif second == 4:
        flow.emit(aten.full.default, [number, 4], 0.5, **ON_CPU)
    else:
        flow.emit(aten.mul.Tensor, flow.value(first), number)


# -- writes and views ------------------------------------------------------------------------------------------------------------


def _update(flow: Flow, first: int, second: int) -> None:
    target = _target(flow, first, second)
    if target is not None:
        _write(flow, target, *BY_NUMBER[(first + second) % 3], second + 1)


def _update_by_value(flow: Flow, first: int, second: int) -> None:
    target = _target(flow, first, second)
    source = target and flow.like(second, target)
    if (
        target is not None
        and source is not None
        and len(source.kind.dims) <= len(target.kind.dims)
        and _holds(target, source)
    ):
        _write(flow, target, *BY_VALUE[(first + second // 2) % 3], _separate(flow, target, source))


def _write(flow: Flow, target: Value, write: Any, pure: Any, *args: Any) -> None:
    if flow.style.is_functional:
        made = flow.emit(pure, target, *args)
        if made is not None:
            flow.write(target, made)
    elif target.is_writable and target.kind.is_plain:
        flow.emit(write, target, *args, of=target)


def _holds(target: Value, source: Value) -> bool:
    # Floats can be written to integer meta tensors, but not to real ones.
    return target.kind.dtype in (torch.float32, source.kind.dtype)


def _separate(flow: Flow, target: Value, source: Value) -> Value:
    # torch refuses to write to memory that it reads through another view.
    return (
        flow.emit(aten.clone.default, source)
        if source.memory == target.memory and source is not target
        else source
    )


def _out(flow: Flow, first: int, second: int) -> None:
    target = _target(flow, second, second)
    if (
        target is None
        or flow.style.is_functional
        or not target.is_writable
        or not target.kind.is_plain
    ):
        return
    a = flow.find(
        first, lambda value: value.kind.dims == target.kind.dims and _holds(target, value)
    )
    if a is not None:
        flow.emit(aten.add.out, _separate(flow, target, a), second, of=target, out=target)


def _random_write(flow: Flow, first: int, second: int) -> None:
    target = _target(flow, first, second)
    if target is not None and _is_float(target):
        _write(flow, target, *RANDOM_WRITES[second // 2 % 2])


def _view(flow: Flow, first: int, second: int) -> None:
    a, (target, *args) = flow.value(first), VIEWS[(first + second) % len(VIEWS)]
    if target is aten.slice.Tensor and a.kind.dims and _is_small(flow, a, -1):
        return
    if len(a.kind.dims) < 3:  # values do not get larger without end
        flow.emit(target, a, *args, of=a)


def _restored(flow: Flow, first: int, second: int) -> bool:
    # Squeeze rows that may be one, and restore them: at size 1 both do something, although torch records that they do not.
    rows = flow.find(first, lambda value: _is_small(flow, value, 0) and _is_rows(value))
    squeeze, *args = SQUEEZES[second % len(SQUEEZES)]
    known = len(flow.values)
    made = rows and flow.emit(squeeze, rows, *args, of=rows)
    if made and second > 3:
        made = flow.emit(aten.abs.default, made)
    del flow.values[known:]  # at size 1 they have another rank
    if not made or rows is None:
        return False
    sizes = [-1, *map(int, rows.kind.dims[1:])]
    return bool(flow.emit(RESTORES[first % len(RESTORES)], made, sizes, of=made))


def _is_rows(value: Value) -> bool:
    return all(map(str.isdigit, value.kind.dims[1:]))


def _through_view(flow: Flow, first: int, second: int) -> None:
    target = _target(flow, first, second)
    if target is None or not target.kind.dims or not target.kind.is_plain:
        return
    window, scatter = aten.slice.Tensor, aten.slice_scatter.default
    place: tuple[int, ...] = (0, 0, 2)
    if second < 4:
        window, scatter, place = aten.select.int, aten.select_scatter.default, (0, second % 2)
    if _is_small(flow, target, 0):
        return
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


# -- effects ---------------------------------------------------------------------------------------------------------------------


def _print(flow: Flow, first: int, second: int) -> None:
    flow.order(PRINT, f"t{first}{second}")


def _assert(flow: Flow, first: int, second: int) -> None:
    count = flow.emit(aten.count_nonzero.default, flow.value(first))
    holds = count and flow.emit(aten.ge.Scalar, count, 0)
    if holds:
        flow.emit(ASSERT, holds, f"t{second}")


def _batch_norm(flow: Flow, first: int, second: int) -> None:
    a = flow.find(first, lambda value: value.kind.dims == ("3", "4") and _is_float(value))
    buffers = list(
        {
            given.memory: given
            for given in flow.given
            if given.is_writable and given.kind.dims == ("4",)
        }.values()
    )
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


def _unflatten(flow: Flow, first: int, second: int) -> None:  # noqa: ARG001
    # Its schema omits that the results share memory with the operand.
    flat = flow.find(first, lambda value: value.kind.dims == ("4",))
    part = flat and flow.emit(aten.slice.Tensor, flat, 0, 0, 2, of=flat)
    if part:
        flow.emit(aten.unflatten_dense_tensors.default, flat, [part, part], of=flat)


# -- bodies of higher-order operators --------------------------------------------------------------------------------------------


def _cond(flow: Flow, first: int, second: int) -> Any:
    p, q = _operands(flow, first, second)
    return None if p is None or q is None else _add_cond(flow, p, q, second, first + 1)


def _add_cond(flow: Flow, p: Value, q: Value, *numbers: int) -> Value:
    decide = flow.emit(aten.gt.Scalar, flow.emit(aten.sum.default, q), 0.5)
    count = len(flow.modules)
    bodies = [
        flow.body(f"{name}_graph_{count}", _branch(number % 8, p.kind, q.kind))
        for name, number in zip(("true", "false"), numbers, strict=True)
    ]
    kind = infer(aten.clone.default, (p.kind,), {})
    made = flow.node(hop.cond, (decide, *bodies, (p, q)), {}, (kind,))
    return flow.parts(made, (kind,), (None,))[0]


@cache
def _branch(number: int, p: Kind, q: Kind) -> torch.fx.GraphModule:
    # Two operands and one result of the kind of the first, so that all branches are compatible.
    def fill(flow: Flow, a: Value, b: Value) -> list[Value]:
        if number == 5:
            return [_add_cond(flow, a, b, 2, 1)]
        entry: Entry = (_unary, _binary, _random, _combined)[number % 4]
        flow.given += [a, b]
        made = entry(flow, 7, number // 4)  # of the first operand
        fits = type(made) is Value and made.kind is infer(aten.clone.default, (p,), {})
        return [made if fits else flow.emit(aten.clone.default, a)]

    return _module(Style(is_functional=True, is_strict=False), None, {"p": p, "q": q}, fill)


def _region(flow: Flow, first: int, second: int) -> None:
    p, q = _operands(flow, first, second)
    if p is None or q is None:
        return
    writes = second % 4 == 1 and not flow.style.is_functional and p.is_writable and p.kind.is_plain
    views = second % 4 == 2 and len(p.kind.dims) > 0 and not _is_small(flow, p, 0)
    number = 1 if writes else 2 if views else second % 2 * 3
    body, kinds = _region_body(number, flow.style, flow.frames, p.kind, q.kind)
    held = flow.body(f"submod_{len(flow.modules)}", body)
    inside = flow.frames
    flow.frames = inside[:-1] if second > 3 else inside  # the caller may write the region itself
    made = flow.node(hop.wrap_with_set_grad_enabled, (False, held, p, q), {}, kinds)
    flow.frames = inside
    flow.parts(made, kinds, (p if writes or views else None, None))


@cache
def _region_body(
    number: int, style: Style, frames: Frames, p: Kind, q: Kind
) -> tuple[torch.fx.GraphModule, tuple[Kind, ...]]:
    kinds: list[Kind] = []

    def fill(flow: Flow, a: Value, b: Value) -> list[Value]:
        target, args = (
            (aten.neg.default, ()), (aten.add_.Tensor, (2,)), (aten.slice.Tensor, (0, 0, 2)), (aten.mul.Tensor, (2,)),
        )[number]  # fmt: skip
        values = [flow.emit(target, a, *args), flow.emit(aten.abs.default, b)]
        kinds.extend(value.kind for value in values)
        return values

    return _module(style, frames, {"p": p, "q": q}, fill), tuple(kinds)


def _module(
    style: Style, frames: Frames | None, operands: dict[str, Kind], fill: Callable[..., list[Value]]
) -> torch.fx.GraphModule:
    flow = Flow(torch.fx.Graph(), style, is_body=True)
    flow.frames = frames or ()
    values = [
        Value(flow.placeholder(name, flow.fake(kind)), kind, object())
        for name, kind in operands.items()
    ]
    flow.graph.output(tuple(value.node for value in fill(flow, *values)))
    for node in flow.graph.nodes if frames is None else ():
        if node.op == "call_function":
            node.meta["nn_module_stack"] = (
                OrderedDict()
            )  # as the exporter writes the nodes of branches
    return torch.fx.GraphModule(dict(flow.modules), flow.graph)


def _operands(flow: Flow, first: int, second: int) -> tuple[Value | None, Value | None]:
    p, q = flow.value(first), flow.own(second) or flow.value(second)
    return (p, q) if combine(p.kind, q.kind) else (None, None)


# -- the menu --------------------------------------------------------------------------------------------------------------------


MENU: tuple[Entry, ...] = (
    _unary, _binary, _layer, _combined, _with_own, _update, _update, _update, _update_by_value, _update_by_value,
    _view, _through_view, _through_view, _out, _random, _random_write, _print, _assert, _cond, _region,
    _several, _sizes, _batch_norm, _unflatten,
)  # fmt: skip

DOING: Mapping[str, tuple[Entry, ...]] = {
    "random": (_random, _random_write),
    "effects": (_print, _assert),
    "regions": (_cond, _region),
    "training": (_batch_norm,),
    "views": (_view, _through_view, _several, _unflatten),
    "new contents": (_update, _update_by_value, _random_write),
    "sizes": (_layer, _sizes, _batch_norm, _several, _unflatten),
    "in place": (_update, _update_by_value, _through_view, _out, _random_write, _batch_norm),
}
"""Entries by feature, for excluding them.  Functional programs write nothing in place."""


class MenuFlow(Flow):
    """A flow that chooses from the menu, without the entries of some features."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        style: Style,
        barred: Collection[str] = (),
        *,
        smallest: int = ASSUMED,
    ) -> None:
        super().__init__(graph, style)
        self.smallest = smallest
        gone = {entry for what in barred for entry in DOING.get(what, ())}
        self.kinds = [number for number, entry in enumerate(MENU) if entry not in gone]

    def item(self, node: Any) -> None:
        """Write the operators of one drawn node."""
        kind = node.kind if node.kind in self.kinds else self.kinds[node.kind % len(self.kinds)]
        is_view = MENU[kind] in DOING["views"]
        if not (is_view and _restored(self, node.first, node.second)):
            MENU[kind](self, node.first, node.second)
