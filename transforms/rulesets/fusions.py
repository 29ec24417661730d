"""Replace several operators by one of torch (norms, activations, reductions), and fold batch norms into weights.

Results are the same within a tolerance, unless the original overflows: for large ``x``, ``log(exp(x) + 1)`` is infinite, but
``softplus(x)`` is finite.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from ..rules import any_of
from ..rules.match import Match
from ..rules.rule import Rule, RuleSet, rule, shipped
from .layout import alike, is_float, named

__all__ = ["fusions"]

aten: Any = torch.ops.aten


def _near(m: Match, **wanted: float) -> bool:
    # Whether numbers of the match are those of a formula, up to rounding in source code.
    pairs = [(m[name], number) for name, number in wanted.items()]
    is_near = [
        type(one) in (int, float) and math.isclose(one, number, rel_tol=1e-4)
        for one, number in pairs
    ]  # type: ignore[arg-type]
    return is_float(m) and all(is_near)


# -- batch norms --------------------------------------------------------------------------------------------------------------------


def _is_known(m: Match) -> bool:
    optional = [m[name] for name in ("b", "scale", "shift") if m[name] is not None]
    weight, mean, var, *rest = known = [
        m.tensor(one) for one in (m["w"], m["mean"], m["var"], *optional)
    ]
    if not all(one is not None and one.is_floating_point() for one in known):
        return False
    # Channels are the second dimension, which an unbatched sample does not have.
    is_batch = len(m.shape("x") or ()) == weight.dim() >= 2
    is_positive = var.is_meta or bool((var + m["eps"] > 0).all())
    return (
        is_positive
        and is_batch
        and all(one.shape == weight.shape[:1] for one in (mean, var, *rest))
    )


def _folded(m: Match, eps: Any, *operands: Any) -> tuple[Any, Any]:
    # The weight and the bias of a convolution or linear layer with a batch norm folded into it.
    tensors: list[Any] = [None if one is None else m.tensor(one).detach() for one in operands]
    w, b, scale, shift, mean, var = tensors
    by = torch.rsqrt(var + eps) * (1 if scale is None else scale)
    bias = ((0 if b is None else b) - mean) * by + (0 if shift is None else shift)
    for one in operands:
        if one is not None:
            m.drop(one)
    weight = w * by.reshape(-1, *[1] * (w.dim() - 1))
    return m.parameter("folded_weight", weight.to(w.dtype)), m.parameter(
        "folded_bias", bias.to(w.dtype)
    )


def _conv_batch_norm(conv: Any) -> Rule:
    return named(
        f"{conv.__name__}_batch_norm",
        lambda x, w, b, stride, padding, dilation, groups, scale, shift, mean, var, momentum, eps: (
            aten.batch_norm.default(
                conv(x, w, b, stride, padding, dilation, groups),
                scale,
                shift,
                mean,
                var,
                False,
                momentum,
                eps,
                True,
            )
        ),
        lambda m, x, w, b, stride, padding, dilation, groups, scale, shift, mean, var, momentum, eps: (
            conv(
                x,
                *_folded(m, eps, w, b, scale, shift, mean, var),
                stride,
                padding,
                dilation,
                groups,
            )
        ),
        _is_known,
    )


@rule(where=_is_known)
def linear_batch_norm(
    x: Any, w: Any, b: Any, scale: Any, shift: Any, mean: Any, var: Any, momentum: Any, eps: Any
) -> Any:
    return aten.batch_norm.default(
        functional.linear(x, w, b), scale, shift, mean, var, False, momentum, eps, True
    )


@linear_batch_norm.becomes
def _(
    m: Match,
    x: Any,
    w: Any,
    b: Any,
    scale: Any,
    shift: Any,
    mean: Any,
    var: Any,
    momentum: Any,
    eps: Any,
) -> Any:
    return functional.linear(x, *_folded(m, eps, w, b, scale, shift, mean, var))


BATCH_NORMS = RuleSet(
    (*map(_conv_batch_norm, (torch.conv1d, torch.conv2d, torch.conv3d)), linear_batch_norm)
)


# -- norms --------------------------------------------------------------------------------------------------------------------------


def _is_norm(m: Match) -> bool:
    shape, eps = m.shape("x"), m["eps"]
    is_static = bool(shape) and type(shape[-1]) is int and shape[-1] > 0  # type: ignore[index]
    return is_static and is_float(m) and alike(m) and type(eps) in (int, float) and eps >= 0  # type: ignore[operator]


def _of_last(m: Match, name: str) -> bool:
    # Whether a variable is a weight or a bias of the last dimension.
    size = m["size"]
    known = isinstance(size, list | tuple) and len(size) == 1 and m.shape(name) == (size[0],)
    return known and is_float(m) and m.dtype(name) == m.dtype("x")


def _square(x: Any) -> Any:
    return any_of(x**2, x * x, x.square())


def _over_root(x: Any, square: Any, eps: Any) -> Any:
    return any_of(
        x * (square + eps).rsqrt(),
        x / (square + eps).sqrt(),
        x / (square + eps) ** 0.5,
        x * (square + eps) ** -0.5,
    )


def _layer_norm(x: Any, eps: Any) -> Any:
    centered = x - x.mean([-1], True)
    variance = any_of(
        aten.var.dim(x, [-1], False, True), aten.var.correction(x, [-1], correction=0, keepdim=True)
    )
    return _over_root(centered, any_of(_square(centered).mean([-1], True), variance), eps)


NORMS = RuleSet(
    (
        named(
            "layer_norm",
            _layer_norm,
            lambda m, x, eps: functional.layer_norm(x, [x.shape[-1]], None, None, eps),
            _is_norm,
        ),
        named(
            "layer_norm_weight",
            lambda x, size, eps, w: functional.layer_norm(x, size, None, None, eps) * w,
            lambda m, x, size, eps, w: functional.layer_norm(x, size, w, None, eps),
            lambda m: _of_last(m, "w"),
        ),
        named(
            "layer_norm_bias",
            lambda x, size, w, eps, b: functional.layer_norm(x, size, w, None, eps) + b,
            lambda m, x, size, w, eps, b: functional.layer_norm(x, size, w, b, eps),
            lambda m: m["w"] is not None and _of_last(m, "b"),
        ),
        named(
            "rms_norm",
            lambda x, eps: _over_root(x, _square(x).mean([-1], True), eps),
            lambda m, x, eps: aten.rms_norm.default(x, [x.shape[-1]], None, eps),
            _is_norm,
        ),
        named(
            "rms_norm_weight",
            lambda x, size, eps, w: aten.rms_norm.default(x, size, None, eps) * w,
            lambda m, x, size, eps, w: aten.rms_norm.default(x, size, w, eps),
            lambda m: _of_last(m, "w"),
        ),
    )
)


# -- activations --------------------------------------------------------------------------------------------------------------------


def _halved(x: Any, half: Any, y: Any) -> Any:
    return any_of((x * half) * y, x * (y * half), (x * y) * half)


def _cube(x: Any) -> Any:
    return any_of(x**3, x**3.0, (x * x) * x, x**2 * x)


def _relu6(x: Any) -> Any:
    return any_of(aten.relu6.default(x), torch.clamp(x, 0, 6), aten.hardtanh.default(x, 0, 6))


ACTIVATIONS = RuleSet(
    (
        named(
            "gelu",
            lambda x, half, one, root: _halved(x, half, torch.erf(x * root) + one),
            lambda m, x, half, one, root: functional.gelu(x),
            lambda m: _near(m, half=0.5, one=1, root=0.5**0.5),
        ),
        named(
            "gelu_over_root",
            lambda x, half, one, root: _halved(x, half, torch.erf(x / root) + one),
            lambda m, x, half, one, root: functional.gelu(x),
            lambda m: _near(m, half=0.5, one=1, root=2**0.5),
        ),
        named(
            "gelu_tanh",
            lambda x, half, one, root, c: _halved(
                x, half, torch.tanh((x + any_of(_cube(x) * c, ((x * c) * x) * x)) * root) + one
            ),
            lambda m, x, half, one, root, c: functional.gelu(x, approximate="tanh"),
            lambda m: _near(m, half=0.5, one=1, c=0.044715, root=(2 / math.pi) ** 0.5),
        ),
        named(
            "sigmoid",
            lambda x: (torch.exp(torch.neg(x)) + 1).reciprocal(),
            lambda m, x: torch.sigmoid(x),
            is_float,
        ),
        named(
            "silu",
            lambda x: any_of(x * torch.sigmoid(x), x / (torch.exp(torch.neg(x)) + 1)),
            lambda m, x: functional.silu(x),
            is_float,
        ),
        named(
            "hardsigmoid",
            lambda x: _relu6(x + 3) / 6,
            lambda m, x: functional.hardsigmoid(x),
            is_float,
        ),
        named(
            "hardswish",
            lambda x: any_of(x * functional.hardsigmoid(x), (x * _relu6(x + 3)) / 6),
            lambda m, x: functional.hardswish(x),
            is_float,
        ),
        named(
            "softplus",
            lambda x: any_of(torch.log(torch.exp(x) + 1), torch.log1p(torch.exp(x))),
            lambda m, x: aten.softplus.default(x),
            is_float,
        ),
        named(
            "leaky_relu",
            lambda x, by: torch.where(x > 0, x, x * by),
            lambda m, x, by: aten.leaky_relu.default(x, by),
            lambda m: is_float(m) and type(m["by"]) in (int, float),
        ),
        named(
            "elu",
            lambda x: torch.where(x > 0, x, any_of(torch.exp(x) - 1, torch.expm1(x))),
            lambda m, x: functional.elu(x),
            is_float,
        ),
        named(
            "relu6",
            lambda x: torch.clamp(torch.relu(x), max=6),
            lambda m, x: aten.relu6.default(x),
            is_float,
        ),
        named(
            "glu",
            lambda x, dim: (h := x.chunk(2, dim))[0] * torch.sigmoid(h[1]),
            lambda m, x, dim: functional.glu(x, dim),
            lambda m: is_float(m) and _is_even(m),
        ),
    )
)


def _is_even(m: Match) -> bool:
    shape, dim = m.shape("x"), m["dim"]
    return bool(shape) and type(dim) is int and shape[dim] % 2 == 0 and shape[dim] != 0


# -- reductions ---------------------------------------------------------------------------------------------------------------------


def _has_part(m: Match) -> bool:
    # A sum over dimensions, divided by the number of their elements.
    shape, dims = m.shape("x"), m["dims"]
    if not shape or not isinstance(dims, list | tuple) or not dims or not is_float(m):
        return False
    sizes = [shape[dim] for dim in dims]  # type: ignore[index]
    return all(type(size) is int for size in sizes) and m["n"] == math.prod(sizes) > 0


def _softmax(x: Any, dims: Any) -> Any:
    # The numerator and the sum are the same alternative.
    return any_of(
        *[
            one / torch.sum(one, dims, True)
            for one in (torch.exp(x), torch.exp(x - torch.amax(x, dims, True)))
        ]
    )


def _one_dim(m: Match) -> bool:
    return is_float(m) and alike(m) and isinstance(m["dims"], list | tuple) and len(m["dims"]) == 1  # type: ignore[arg-type]


REDUCTIONS = RuleSet(
    (
        named(
            "mean",
            lambda x, dims, keep, n: torch.sum(x, dims, keep) / n,
            lambda m, x, dims, keep, n: torch.mean(x, dims, keep),
            _has_part,
        ),
        named(
            "var",
            lambda x, dims, keep: torch.mean(_square(x - torch.mean(x, dims, True)), dims, keep),
            lambda m, x, dims, keep: aten.var.correction(x, dims, correction=0, keepdim=keep),
            lambda m: is_float(m) and bool(m["dims"]),
        ),
        named(
            "std",
            lambda x, dims, keep, c: torch.sqrt(
                aten.var.correction(x, dims, correction=c, keepdim=keep)
            ),
            lambda m, x, dims, keep, c: aten.std.correction(x, dims, correction=c, keepdim=keep),
            is_float,
        ),
        named("softmax", _softmax, lambda m, x, dims: torch.softmax(x, dims[0]), _one_dim),
        named(
            "log_softmax",
            lambda x, dim: torch.log(torch.softmax(x, dim)),
            lambda m, x, dim: torch.log_softmax(x, dim),
            is_float,
        ),
        named(
            "logsumexp",
            lambda x, dims, keep: torch.log(torch.sum(torch.exp(x), dims, keep)),
            lambda m, x, dims, keep: torch.logsumexp(x, dims, keep),
            lambda m: is_float(m) and bool(m["dims"]),
        ),
        named(
            "rsqrt",
            lambda x: any_of(torch.sqrt(x).reciprocal(), torch.sqrt(x.reciprocal())),
            lambda m, x: torch.rsqrt(x),
            is_float,
        ),
        named("log1p", lambda x: torch.log(x + 1), lambda m, x: torch.log1p(x), is_float),
        named("expm1", lambda x: torch.exp(x) - 1, lambda m, x: torch.expm1(x), is_float),
        named(
            "linear_bias",
            lambda x, w, b: functional.linear(x, w, None) + b,
            lambda m, x, w, b: functional.linear(x, w, b),
            lambda m: (
                is_float(m)
                and len(m.shape("w") or ()) == 2
                and m.shape("b") == m.shape("w")[:1]  # type: ignore[index]
                and m.dtype("b") == m.dtype("x")
            ),
        ),
    )
)


fusions = shipped(BATCH_NORMS + NORMS + ACTIVATIONS + REDUCTIONS)
"""All fusions."""
