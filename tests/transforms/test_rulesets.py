"""The rule sets that come with the library: each rule on a module that has what it looks for, and on those that almost do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px
from purefx import rules
from tests.models import imported
from tests.transforms.rulesets import Plain, applied, assert_equal

Function = Callable[..., Any]
INF = math.inf


# -- identities ---------------------------------------------------------------------------------------------------------------------

X = torch.tensor([[-0.0, 0.0, math.nan, INF], [-INF, 1.5, -2.5, 1e-40], [3.0, -1.0, 0.25, 7.0]])
WHOLE = torch.arange(12).reshape(3, 4) - 4
B = torch.tensor([[True, False, True, True]] * 3)
e = torch.exp
aten = torch.ops.aten

ALGEBRA: list[tuple[str, Function]] = [
    ("view_reshape", lambda m, x, i, b: e(x).view(2, 6).reshape(12) * 2),
    ("view_reshape", lambda m, x, i, b: e(x).unsqueeze(1).reshape(6, 2) * 2),
    ("view_reshape", lambda m, x, i, b: e(x[:1].squeeze(0).reshape(2, 2))),
    ("view_flatten", lambda m, x, i, b: e(e(x).view(2, 6).flatten())),
    ("reshape_to_the_same", lambda m, x, i, b: e(x.reshape(-1, 4))),
    ("flatten_nothing", lambda m, x, i, b: e(x.flatten(1))),
    ("transpose_transpose", lambda m, x, i, b: e(x.transpose(0, 1).transpose(-1, -2))),
    ("turn_turn", lambda m, x, i, b: e(x.t().mT)),
    ("permute_permute permute_nothing", lambda m, x, i, b: e(x[None].permute(2, 0, 1).permute(1, 2, 0))),
    ("permute_permute", lambda m, x, i, b: e(x[None].permute(2, 0, 1).permute(2, 0, 1))),
    ("transpose_permute", lambda m, x, i, b: e(x[None].transpose(0, 2).permute(1, 0, 2))),
    ("permute_transpose", lambda m, x, i, b: e(x[None].permute(1, 2, 0).transpose(0, 1))),
    ("transpose_nothing", lambda m, x, i, b: e(x.transpose(1, -1))),
    ("unsqueeze_squeeze", lambda m, x, i, b: e(x.unsqueeze(-1).squeeze(2))),
    ("squeeze_unsqueeze", lambda m, x, i, b: e(x[:1].squeeze(0).unsqueeze(0))),
    ("expand_nothing", lambda m, x, i, b: e(x.expand(3, -1))),
    ("expand_expand", lambda m, x, i, b: e(x[:1].expand(3, 4).expand(2, 3, 4))),
    ("split_cat_2", lambda m, x, i, b: torch.cat(e(x).split(2, 1), 1) * 2),
    ("split_sizes_cat_2", lambda m, x, i, b: torch.cat(e(x).split([1, 3], 1), 1) * 2),
    ("chunk_cat_3", lambda m, x, i, b: torch.cat(e(x).chunk(3, 0), 0) * 2),
    ("split_cat_4", lambda m, x, i, b: torch.cat(e(x).split(1, 1), 1) * 2),
    ("cat_of_one", lambda m, x, i, b: e(torch.cat([x], 0))),
    ("slice_of_all", lambda m, x, i, b: e(aten.slice.Tensor(x, 0, 0, 99, 1))),
    ("clone_clone", lambda m, x, i, b: x.clone().clone()),
    ("alias", lambda m, x, i, b: e(aten.alias.default(x))),
    ("cat_cat", lambda m, x, i, b: torch.cat([torch.cat([x, x * 2], 1), x], -1)),
    ("cast_cast", lambda m, x, i, b: x.half().float().double()),
    ("cast_back", lambda m, x, i, b: m.b.detach().double().float().add_(1) + m.b),
    ("cast_cast", lambda m, x, i, b: (i.to(torch.int8).to(torch.float32).to(torch.float64), )),
    ("cast_back", lambda m, x, i, b: e(x.double().float())),
    ("cast_to_the_same", lambda m, x, i, b: e(x.to(torch.float32))),
    ("type_as_the_same", lambda m, x, i, b: e(aten.type_as.default(x, e(x)))),
    ("neg_neg", lambda m, x, i, b: e(-(-x)) + (i - 1)),
    ("not_equal", lambda m, x, i, b: (x == i).logical_not()),
    ("equal", lambda m, x, i, b: (x != 1.5).logical_not()),
    ("relu_relu", lambda m, x, i, b: torch.relu(torch.relu(x))),
    ("abs_neg", lambda m, x, i, b: torch.abs(-x)),
    ("times_one", lambda m, x, i, b: e(1.0 * x)),
    ("times_one", lambda m, x, i, b: e(x / 1)),
    ("minus_zero", lambda m, x, i, b: e(x - 0)),
    ("plus_zero", lambda m, x, i, b: (i + 0) * 3),
    ("where_not", lambda m, x, i, b: torch.where(b.logical_not(), x, i)),
    ("dropout_of_nothing", lambda m, x, i, b: e(functional.dropout(x, 0.3, training=False))),
    ("mm_linear", lambda m, x, i, b: x @ m.full.weight.t()),
    ("addmm_linear", lambda m, x, i, b: torch.addmm(m.full.bias, x, m.full.weight.T)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "function"),
    ALGEBRA,
    ids=[f"{number}-{each[0]}" for number, each in enumerate(ALGEBRA)],
)
def test_algebra(wanted: str, function: Function) -> None:
    model, args = Plain(function), (X, WHOLE, B)
    result, names = applied(rules.algebra, imported(model, *args))
    assert names == wanted.split()
    assert_equal(result, model, args, 0)
    before, after = model(*args), px.lower(result)(*args)
    if isinstance(before, Tensor) and before.is_floating_point():  # the signs of zeros too
        assert torch.equal(
            torch.signbit(before[before == before]), torch.signbit(after[before == before])
        )


def test_every_identity_has_a_case() -> None:
    names = {name.rstrip("_234") for each, _ in ALGEBRA for name in each.split()}
    assert {each.name.rstrip("_234") for each in rules.algebra.rules} == names


ALMOST: list[tuple[str, Function]] = [
    ("a type that is seen as another", lambda m, x, i, b: x.view(torch.int32).view(2, 6)),
    ("numbers are lost", lambda m, x, i, b: x.to(torch.half).to(torch.float32)),
    ("fractions are lost", lambda m, x, i, b: x.to(torch.int32).to(torch.float32)),
    ("the sign of zero", lambda m, x, i, b: x + 0),
    ("whole numbers become fractions", lambda m, x, i, b: i / 1 + i * 1.0),
    ("parts are left out", lambda m, x, i, b: torch.cat(e(x).split(1, 1)[:3], 1)),
    ("parts in another order", lambda m, x, i, b: torch.cat(e(x).split(2, 1)[::-1], 1)),
    ("joined along another dimension", lambda m, x, i, b: torch.cat(e(x).split(2, 1), 0)),
    ("a part", lambda m, x, i, b: e(x[:, 1:])),
    ("every other one", lambda m, x, i, b: e(x[::2])),
    ("other dimensions", lambda m, x, i, b: e(x[None].transpose(0, 1).transpose(1, 2))),
    ("a dimension that is not one", lambda m, x, i, b: e(x.squeeze(0).unsqueeze(0))),
    ("what is returned is the caller's", lambda m, x, i, b: -(-x)),
    ("zero takes the sign of zeros", lambda m, x, i, b: e(x - (-0.0))),
    ("infinities of complex numbers become NaN", lambda m, x, i, b: e(torch.complex(x, x) * 1) + e(torch.complex(x, x) / 1)),
    ("zeros of complex numbers lose their sign", lambda m, x, i, b: e(-(-torch.complex(x, x))) + e(torch.complex(x, x) - 0)),
    ("a type without signs", lambda m, x, i, b: torch.abs(-i.to(torch.uint8))),
    ("a bias of another size", lambda m, x, i, b: torch.addmm(m.full.bias[None], x, m.full.weight.T)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), ALMOST, ids=[each[0] for each in ALMOST])
def test_what_is_almost_an_identity_stays(name: str, function: Function) -> None:
    program = imported(Plain(function), X, WHOLE, B)
    assert rules.algebra(program) is program


# -- fusions ------------------------------------------------------------------------------------------------------------------------

Y = torch.linspace(-3, 3, 12).reshape(3, 4)
ROOT = math.sqrt(2 / math.pi)


def centered(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def layer_norm(x: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5)


FUSIONS: list[tuple[str, Function]] = [
    ("layer_norm layer_norm_weight layer_norm_bias", lambda m, x: layer_norm(x) * m.w + m.b),
    ("layer_norm layer_norm_weight", lambda m, x: m.w * (centered(x) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-6))),
    ("rms_norm rms_norm_weight", lambda m, x: m.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))),
    ("rms_norm", lambda m, x: x / (x * x).mean(-1, keepdim=True).add(1e-6).sqrt()),
    ("gelu", lambda m, x: x * 0.5 * (1.0 + torch.erf(x * 0.70710678))),
    ("gelu_over_root", lambda m, x: 0.5 * (x * (torch.erf(x / math.sqrt(2)) + 1))),
    ("gelu_tanh", lambda m, x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x**3)))),
    ("gelu_tanh", lambda m, x: x * (0.5 * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x))))),
    ("sigmoid", lambda m, x: torch.reciprocal(1 + torch.exp(-x))),
    ("silu", lambda m, x: torch.sigmoid(x) * x),
    ("silu", lambda m, x: x / (1 + torch.exp(-x))),
    ("hardsigmoid", lambda m, x: functional.relu6(x + 3) / 6),
    ("hardswish", lambda m, x: x * functional.relu6(x + 3) / 6),
    ("hardsigmoid hardswish", lambda m, x: x * ((x + 3).clamp(0, 6) / 6)),
    ("softplus", lambda m, x: torch.log(1 + torch.exp(x))),
    ("leaky_relu", lambda m, x: torch.where(x > 0, x, 0.1 * x)),
    ("expm1 elu", lambda m, x: torch.where(x > 0, x, torch.exp(x) - 1)),
    ("relu6", lambda m, x: torch.relu(x).clamp(max=6)),
    ("glu", lambda m, x: (h := x.chunk(2, -1))[0] * torch.sigmoid(h[1])),
    ("mean", lambda m, x: x.sum(-1) / 4),
    ("var std", lambda m, x: centered(x).square().mean(-1).sqrt()),
    ("softmax", lambda m, x: (y := torch.exp(x)) / y.sum(-1, keepdim=True)),
    ("softmax log_softmax", lambda m, x: ((y := torch.exp(x - x.amax(-1, keepdim=True))) / y.sum(-1, keepdim=True)).log()),
    ("logsumexp", lambda m, x: torch.log(torch.exp(x).sum(1))),
    ("rsqrt", lambda m, x: torch.sqrt(x.abs() + 1).reciprocal()),
    ("log1p", lambda m, x: torch.log(1 + x.abs())),
    ("linear_bias", lambda m, x: functional.linear(x, m.full.weight) + m.b),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "function"),
    FUSIONS,
    ids=[f"{number}-{each[0]}" for number, each in enumerate(FUSIONS)],
)
def test_fusions(wanted: str, function: Function) -> None:
    model = Plain(function)
    result, names = applied(rules.fusions, imported(model, Y))
    assert names == wanted.split()
    assert_equal(result, model, (Y,), 1e-5)


UNFUSED: list[tuple[str, Function]] = [
    ("another constant", lambda m, x: x * 0.5 * (1.0 + torch.erf(x * 0.8))),
    ("another dimension", lambda m, x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6)),
    ("other values", lambda m, x: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    ("whole numbers", lambda m, x: x.long().sum(-1) / 4),
    ("another count", lambda m, x: x.sum(-1) / 3),
    ("another sum", lambda m, x: (y := torch.exp(x)) / y.sum(0)),
    ("a bias of another size", lambda m, x: functional.linear(x, m.full.weight) + m.b[:, None].expand(4, 4)[:3]),
    ("a vector as a weight", lambda m, x: functional.linear(x[0], m.w) + m.b),
    ("a sum of something else", lambda m, x: torch.exp(x) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), UNFUSED, ids=[each[0] for each in UNFUSED])
def test_what_is_almost_a_fusion_stays(name: str, function: Function) -> None:
    program = imported(Plain(function), Y)
    assert rules.fusions(program) is program


def _trained(*layers: nn.Module) -> nn.Module:
    model = nn.Sequential(*layers)
    for layer in layers:
        if hasattr(layer, "running_mean"):
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
    return model.eval()


NORMED: list[tuple[str, nn.Module, tuple[int, ...]]] = [
    ("conv1d", _trained(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4)), (2, 3, 8)),
    ("conv2d", _trained(nn.Conv2d(3, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 8, 8)),
    ("conv2d", _trained(nn.Conv2d(4, 4, 3, groups=2, padding="same"), nn.BatchNorm2d(4, affine=False)), (2, 4, 8, 8)),
    ("conv3d", _trained(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4)), (2, 3, 2, 2, 2)),
    ("linear", _trained(nn.Linear(3, 4), nn.BatchNorm1d(4)), (5, 3)),
    ("conv1d", _trained(nn.Conv1d(3, 4, 3, padding=1).half(), nn.BatchNorm1d(4)), (2, 3, 8)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "model", "size"),
    NORMED,
    ids=[f"{number}-{each[0]}" for number, each in enumerate(NORMED)],
)
def test_batch_norms_are_folded(kind: str, model: nn.Module, size: tuple[int, ...]) -> None:
    dtype = next(model.parameters()).dtype
    x = torch.randn(size).to(dtype)
    result, names = applied(rules.fusions, imported(model, x))
    assert names == [f"{kind}_batch_norm"]
    assert not [name for name in result.state if "running" in name or name.endswith(".weight")]
    assert_equal(result, model, (x,), 1e-5 if dtype is torch.float32 else 5e-3)


class Spread(nn.Module):
    """A linear function and a batch norm whose bias or whose variances are unusual."""

    def __init__(self, bias: tuple[int, ...], variance: float) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(bias))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.full((4,), variance))

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(
            torch.ops.aten.linear.default(x, self.w, self.b), self.mean, self.var, eps=0.0
        )


UNFOLDED: list[tuple[str, nn.Module, tuple[int, ...]]] = [
    ("channels are the length", _trained(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4)), (3, 4)),
    ("a row of biases", Spread((1, 4), 1.0), (2, 3)),
    ("no variance", Spread((4,), 0.0), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "size"), UNFOLDED, ids=[each[0] for each in UNFOLDED])
def test_what_is_almost_a_batch_norm_of_channels_stays(
    name: str, model: nn.Module, size: tuple[int, ...]
) -> None:
    program = imported(model, torch.randn(size))
    assert rules.fusions(program) is program


def test_every_fusion_has_a_case() -> None:
    names = {name for each, _ in FUSIONS for name in each.split()} | {
        f"{kind}_batch_norm" for kind, _, _ in NORMED
    }
    assert {each.name for each in rules.fusions.rules} == names


@pytest.mark.parametrize(
    ("observe", "fits"),
    [(lambda o: o * 2, True), (lambda o: o.transpose(1, 2).view(2, -1), False), (lambda o: (o + 1).as_strided((2,), (1,)), False),
     (lambda o: ((p := o + 1).flatten(1).mul_(0.5), p)[1], False), (lambda o: (o.transpose(1, 2).reshape(-1).mul_(2), o)[1], False)],
)  # fmt: skip
def test_a_result_with_other_strides_replaces_only_what_nobody_observes(
    observe: Function, fits: bool
) -> None:
    module = Plain(
        lambda m, x: observe((y := (x.permute(0, 2, 1) * 1.5).exp()) / y.sum(-1, keepdim=True))
    )
    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    made = rules.fusions(program := imported(module, x))
    torch.testing.assert_close(px.lower(made)(x), module(x))
    assert (made is not program, px.verify(made, infer=True)) == (fits, ())


def test_the_new_operators_run_without_the_autocast_around_the_rule() -> None:
    rule = px.rule(lambda x: torch.relu(x)).becomes(
        lambda m, x: functional.linear(x, m.call(torch.ops.aten.ones, [4, 4]))
    )
    with torch.autocast("cpu"):
        made = rule(imported(nn.ReLU(), torch.ones(2, 4)))
    assert px.verify(made, infer=True) == ()


def test_a_module_that_is_called_with_two_sizes_is_left() -> None:
    module = Plain(lambda m, x: (m.full(x), m.full(torch.cat([x, x]))))
    tree = px.transform(imported(module, torch.ones(3, 4)))
    assert "px.expand gives each call a body" in str(
        px.rule(lambda x, w, b: functional.linear(x, w, b))
        .becomes(lambda m, x, w, b: x @ w.t() + b)
        .explain(tree)
    )
