"""What published passes look for, as functions on example arguments: ``make audit`` draws programs around it."""

from __future__ import annotations

from typing import Any

import torch

from tests.models import parent

aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

X, Y, Z = torch.ones(2, 3), torch.full((2, 3), 2.0), torch.full((3,), 3.0)
M, N, B = torch.ones(3, 4), torch.ones(4, 4), torch.ones(4)
WHOLE = torch.tensor([[1, 2, 3], [4, 5, 6]])
AT = torch.tensor([1, 0])

ADDED = ((lambda x, y: x + y, (X, Y)), (lambda x, y: x + y * 2, (X, Z)))

NEGATED = ((lambda x: aten.neg.default(aten.neg.default(x)), (X,)),)

TWICE = (
    (lambda x: x.sin() + x.sin(), (X,)),
    (lambda x: x.view(6).sin() + x.view(6), (X,)),
    (lambda x: torch.rand_like(x) - torch.rand_like(x), (X,)),
    (lambda x: aten.clone.default(x) + aten.clone.default(x), (X,)),
    (lambda x: (x + 1).mul_(2) + (x + 1), (X,)),
    (lambda x: aten.div.Tensor(x, 2) + aten.div.Tensor(x, 2.0), (WHOLE,)),
)

CONSTANTS = (
    (lambda x: x + aten.full.default([2, 3], 0.0), (X,)),
    (lambda x: aten.full.default([2, 3], 0) + x, (X,)),
    (lambda x: x * aten.full.default([3], 1), (X,)),
    (lambda x: x - aten.full.default([2, 3], 0.0), (Z,)),
    (lambda x: aten.full.default([2, 3], 0.0) - x, (X,)),
    (lambda x: x / aten.full.default([2, 3], 1), (X,)),
    (lambda x: x / aten.full.default([2, 3], 1), (WHOLE,)),
    (lambda x: x + aten.full.default([1], 0.0), (WHOLE,)),
    (lambda x: aten.expand.default(aten.full.default([1, 3], 2.0), [2, 3]) * x, (X,)),
    (lambda x: aten.add.Tensor(x, aten.full.default([2, 3], 0.0), alpha=3), (X,)),
    (lambda x: aten.full.default([2, 3], 1).to(torch.bool).logical_not() | (x > 0), (X,)),
    (lambda x: aten.full_like.default(x, 2.0).cumsum(1) + x, (X,)),
)

SAME = (
    (lambda x: aten.slice.Tensor(x, 1, 0, 9223372036854775807), (X,)),
    (lambda x: aten.slice_scatter.default(x, x * 2, 0, 0, 9223372036854775807), (X,)),
    (lambda x, y: aten.slice_scatter.default(x, y, 0, 0, 2), (X, Y.double())),
    (lambda x: aten.repeat.default(x, [1, 1]), (X,)),
    (lambda x: aten.repeat.default(x, [1, 1, 1]), (X,)),
    (lambda x: aten.constant_pad_nd.default(x, [0, 0]), (X,)),
    (lambda x: prims.convert_element_type.default(x, torch.float32), (X,)),
    (lambda x: aten.ceil.default(x) + aten.round.default(x), (WHOLE,)),
    (lambda x: aten.pow.Tensor_Scalar(x, 1), (X,)),
    (lambda x: aten.pow.Tensor_Scalar(x, True), (WHOLE,)),
    (lambda x: aten.cat.default([x], 0), (X,)),
    (lambda x: aten.view.default(x, [2, 3]), (X,)),
    (lambda x: aten.view.dtype(x, torch.float32), (X,)),
    (lambda x, y: aten.copy.default(x, y), (X, Y)),
    (lambda x, y: aten.copy.default(x, y), (X, Z)),
    (lambda x: aten.clone.default(x).t(), (X,)),
    (lambda x: aten.clone.default(x.t()), (X,)),
    (lambda x: aten.alias.default(x) + 1, (X,)),
)

REINTERPRETED = (
    (lambda x: aten.view.dtype(aten.view.dtype(x, torch.int32), torch.float32), (X,)),
    (lambda x: aten.view.dtype(x, torch.int32) + aten.view.dtype(x, torch.int32), (X,)),
    (lambda x: aten.view.dtype(aten.view.dtype(x, torch.int32), torch.int16).sum(), (X,)),
)

CONVERTED = (
    (lambda x: x.to(torch.float16).to(torch.float32), (X,)),
    (
        lambda x: prims.convert_element_type.default(
            prims.convert_element_type.default(x, torch.float64), torch.float32
        ),
        (X,),
    ),
    (
        lambda x: prims.convert_element_type.default(
            prims.convert_element_type.default(x, torch.int32), torch.float32
        ),
        (X,),
    ),
    (lambda x: aten.permute.default(aten.permute.default(x, [1, 0]), [1, 0]), (X,)),
    (lambda x: aten.permute.default(x, [0, 1]), (X,)),
    (lambda x: aten.view.default(aten.view.default(x, [6]), [2, 3]), (X,)),
    (lambda x, y: aten.bmm.default(x.unsqueeze(0), y.unsqueeze(0)), (X, M)),
    (lambda x, y: (x * y).softmax(-1), (X, Y)),
    (lambda x: (x / 2.0).softmax(-1), (X,)),
    (lambda x: aten.amax.default(x * 3, [1], True) - x * 3, (X,)),
    (lambda x: aten.scatter.value(aten.full.default([2, 3], 0.0), 1, AT.view(2, 1), 1.0) + x, (X,)),
)

MULTIPLIED = (
    (lambda x, y, z: aten.mm.default(x, y) + z, (X, M, B)),
    (lambda x, y, z: aten.mm.default(x, y) + z, (X, M, torch.ones(2, 4))),
    (lambda x, y, z: z + aten.mm.default(x, y), (X, M, torch.ones(2, 1))),
    (lambda x, y, a, b: aten.mm.default(x, y) + aten.mm.default(a, b), (X, M, X, M)),
    (lambda x, y, z: aten.addmm.default(z, x, y).relu(), (X, M, B)),
    (lambda x, y, z: aten.addmm.default(z, x, y, beta=2.0).relu(), (X, M, B)),
    (lambda x, y: aten.cumsum.default(aten.full.default([2, 3], 1), 1) + x.sum() + y, (X, Y)),
    (lambda x, y: aten.cumsum.default(aten.full.default([2, 3], True), 0) + x + y, (X, Y)),
    (lambda x: aten.cumsum.default(aten.full.default([2, 3], 1.5, dtype=torch.int64), 1) + x, (X,)),
)

CUT = (
    (lambda x: aten.cat.default(aten.split.Tensor(x, 1, 1), 1), (X,)),
    (lambda x: aten.cat.default(aten.split_with_sizes.default(x, [1, 2], 1), 1), (X,)),
    (lambda x: aten.cat.default(aten.split_with_sizes.default(x, [1, 2], 1)[:1], 1), (X,)),
    (
        lambda x: aten.cat.default(list(aten.split_with_sizes.default(x, [1, 1, 1], 1))[::-1], 1),
        (X,),
    ),
    (lambda x, y: aten.cat.default([*aten.split_with_sizes.default(x, [1, 2], 1), y], 1), (X, Y)),
    (
        lambda x, y: aten.slice.Tensor(
            aten.cat.default([x, aten.slice.Tensor(y, 1, 0, 1)], 1), 1, 0, 3
        ),
        (X, Y),
    ),
    (
        lambda x: aten.slice.Tensor(
            aten.cat.default([x, aten.slice.Tensor(x, 1, 0, 1)], 1), 1, 0, 2
        ),
        (X,),
    ),
    (
        lambda x: aten.cat.default(
            [aten.slice.Tensor(x, 1, 0, 2), aten.slice.Tensor(x, 1, 2, 3)], 1
        ),
        (X,),
    ),
    (lambda x: aten.cat.default([aten.cat.default([x, x], 1), x], 1), (X,)),
    (lambda x, y: aten.cat.default([aten.cat.default([x, y], 0), y], 0), (Z, Z)),
    (
        lambda x: aten.cat.default(
            [aten.unsqueeze.default(aten.select.int(x, 1, i), 1) for i in range(3)], 1
        ),
        (X,),
    ),
    (lambda x: aten.cat.default([aten.select.int(x, 0, i) for i in range(2)], 0), (X,)),
    (lambda x: aten.cat.default([aten.select.int(x, 1, i) for i in (0, 1, 2)], 0), (X,)),
    (lambda x: aten.stack.default(aten.unbind.int(x, 1), 1), (X,)),
    (lambda x: aten.stack.default(aten.unbind.int(x, 1), 0), (X,)),
    (
        lambda x, y: aten.cat.default(
            [aten.reshape.default(x, [3, 2]), aten.reshape.default(y, [3, 2])], 1
        ),
        (X, Y),
    ),
    (
        lambda x, y: aten.cat.default([aten.view.default(x, [6]), aten.view.default(y, [6])], 0),
        (X, Y),
    ),
    (lambda x: aten.cat.default([x, x.tanh()], 1), (X,)),
)

SIDE_BY_SIDE = (
    (lambda x, y: x.tanh() + y.tanh(), (X, Y)),
    (lambda x, y: x.relu() * y.relu(), (X, Y)),
    (lambda x, y: x.sigmoid() - y.sigmoid(), (X, Y)),
    (lambda x, y, z: (x + y) * (y + z), (X, Y, Y)),
    (lambda x, y, z: (x * y) - (y * z), (X, Y, Z)),
    (lambda x, y: (x - y).tanh() + (y - x).tanh(), (X, Y)),
    (lambda x, y, z: aten.addmm.default(z, x, y) * aten.addmm.default(z * 2, x, y), (X, M, B)),
    (lambda x, y, a, z: aten.addmm.default(z, x, y) * aten.addmm.default(z, a, y), (X, M, Y, B)),
    (
        lambda x, y: torch.nn.functional.linear(x, y) + torch.nn.functional.linear(x, y * 2),
        (X, M.t().contiguous()),
    ),
)


def same_row(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return aten.select_scatter.default(y, aten.select.int(y, 0, 0).add(1), 0, 0)


def other_row(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return aten.select_scatter.default(y, aten.select.int(y, 0, 0).add(1), 0, 1) + y


def strided(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return aten.as_strided_scatter.default(y, aten.select.int(y, 0, 0).mul(2), [3], [1], 0)


def seen_before(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y.add(1) + y.view(6).mul(2).view(2, 3)


SCATTERED = (
    (lambda x, y: aten.index_put.default(x, [AT], y), (X, Y)),
    (lambda x, y: aten.index_put.default(x, [AT], y) + x, (X, Y)),
    (lambda x, y: aten.index_put.default(x.clone(), [AT], y, True), (X, Y)),
    (lambda x, y: aten.slice_scatter.default(x.sin(), y, 1, 0, 3).cos(), (X, Y)),
    (lambda x, y: aten.select_scatter.default(x.sin(), y, 0, 1), (X, Z)),
    (
        lambda x: aten.slice_scatter.default(
            x.sin(), aten.slice.Tensor(x, 1, 0, 2).add(1), 1, 0, 2
        ),
        (X,),
    ),
    (lambda x, y: x.sin() + y, (torch.ones(()), torch.ones(1, 1, 1))),
    (lambda x, y: x.sin() + y, (torch.ones(1, 3), X)),
    (lambda x, y: aten.aminmax.default(x)[0] + y, (X, torch.ones(1, 1, 1))),
    (lambda x, y: aten.max.dim(x, 0)[0] + y, (X, X)),
    (same_row, (X,)),
    (other_row, (X,)),
    (strided, (X,)),
    (seen_before, (X,)),
    (lambda x: x.sin().add(1).view(6).mul(2).view(2, 3), (X,)),
)

ASSERTED = (
    (lambda x: (aten._assert_async.msg(aten.all.default(x == x), "equal"), x * 2)[1], (X,)),
    (lambda x: (aten._assert_scalar.default(True, "so"), x * 2)[1], (X,)),
    (
        lambda x: (aten._assert_tensor_metadata.default(x, None, None, torch.float32), x * 2)[1],
        (X,),
    ),
)

SEPARATE = tuple((lambda x, n=n: x.transpose(0, 1).reshape(n) * 2, (X,)) for n in (6, -1))


class Scaled(
    parent(weight=lambda: torch.nn.Parameter(torch.ones(3)), scale=lambda: torch.full((3,), 2.0))
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.weight * 2 + self.scale) + self.scale.neg()


FROM_STATE = ((Scaled(), (X,)),)


class Convolved(torch.nn.Module):
    """A convolution and a linear map, each followed by what can be folded into its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 1)
        self.norm = torch.nn.BatchNorm2d(3).eval()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((3, 1, 1), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(self.conv(x)) * self.scale) * 2 + 1


class Multiplied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 1)
        self.register_buffer("scale", torch.full((1, 3, 1, 1), 2.0))
        self.register_buffer("shift", torch.full((3, 1, 1), 3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.conv(x) * self.scale - self.shift) / self.scale


IMAGE = torch.ones(1, 2, 4, 4)

FOLDED = ((Convolved(), (IMAGE,)), (Multiplied(), (IMAGE,)), *FROM_STATE, *MULTIPLIED[:4])
