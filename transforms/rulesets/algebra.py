"""Bit-exact identities: for floating-point numbers, including NaN, infinities and the sign of zero, and for integers.

``fusions.py`` has those that hold within a tolerance, or up to the sign of a NaN.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from ...ir.torch_private import device_of
from ..rules import any_of
from ..rules.match import Match
from ..rules.rule import RuleSet, shipped
from .layout import alike, layout, named, turned

__all__ = ["algebra"]

aten: Any = torch.ops.aten


# -- types --------------------------------------------------------------------------------------------------------------------------


def _cast(x: Any, dtype: Any) -> Any:
    return aten.to.dtype(x, dtype)


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    # Whether the wide type represents every number of the narrow one.
    if narrow in (wide, torch.bool):
        return True
    if (
        wide is torch.bool
        or wide.is_complex
        or narrow.is_complex
        or (narrow.is_floating_point and not wide.is_floating_point)
    ):
        return False
    if narrow.is_floating_point:
        big, small = torch.finfo(wide), torch.finfo(narrow)
        return (
            big.eps <= small.eps
            and big.max >= small.max
            and big.smallest_normal <= small.smallest_normal
        )
    whole, most = (
        torch.iinfo(narrow),
        2 / torch.finfo(wide).eps if wide.is_floating_point else torch.iinfo(wide).max,
    )
    return whole.max <= most and (wide.is_signed or not whole.min)


def _is_lossless(m: Match) -> bool:
    # Out-of-range casts from floating point to integers depend on the source type.
    before, between, after = m.dtype("x"), m["a"], m["b"]
    if before is None or not isinstance(between, torch.dtype) or not isinstance(after, torch.dtype):
        return False
    fits = after.is_floating_point or not before.is_floating_point
    return (
        before not in (between, after) and _holds(between, before) and fits and not after.is_complex
    )


def _is_back(m: Match) -> bool:
    before, between = m.dtype("x"), m["a"]
    return (
        before is not None
        and isinstance(between, torch.dtype)
        and before == m["b"] != between
        and _holds(between, before)
    )


# -- numbers ------------------------------------------------------------------------------------------------------------------------


def _is_real(m: Match) -> bool:
    # Beside complex tensors a number becomes complex: infinity times its imaginary part is NaN, and zeros lose their sign.
    dtype = m.dtype("x")
    return dtype is not None and not dtype.is_complex and alike(m)


def _is_signed(m: Match) -> bool:
    # The sign of a complex NaN depends on those of its parts.
    dtype = m.dtype("x")
    return dtype is not None and dtype.is_signed and not dtype.is_complex


def _is_one(m: Match) -> bool:
    return type(m["one"]) in (int, float) and m["one"] == 1 and _is_real(m)


def _is_zero(m: Match) -> bool:
    # Positive zero: subtracting -0.0 changes the sign of zeros.
    return (
        type(m["zero"]) in (int, float)
        and m["zero"] == 0
        and math.copysign(1, m["zero"]) > 0
        and _is_real(m)
    )  # type: ignore[arg-type]


def _is_whole(m: Match) -> bool:
    return _is_zero(m) and not m.dtype("x").is_floating_point  # type: ignore[union-attr]


ARITHMETIC = RuleSet(
    (
        named(
            "cast_cast",
            lambda x, a, b: _cast(_cast(x, a), b),
            lambda m, x, a, b: _cast(x, b),
            _is_lossless,
        ),
        named(
            "cast_back",
            lambda x, a, b: _cast(_cast(x, a), b),
            lambda m, x, a, b: x.clone(),
            _is_back,
        ),
        named("cast_to_the_same", lambda x, a: _cast(x, a), lambda m, x, a: x, alike),
        named(
            "type_as_the_same",
            lambda x, y: x.type_as(y),
            lambda m, x, y: x,
            lambda m: alike(m) and device_of(m.val("x")) == device_of(m.val("y")),
        ),
        named("neg_neg", lambda x: torch.neg(torch.neg(x)), lambda m, x: x, _is_real),
        named("not_equal", lambda x, y: torch.logical_not(x == y), lambda m, x, y: x != y),
        named("equal", lambda x, y: torch.logical_not(x != y), lambda m, x, y: x == y),
        named("relu_relu", lambda x: torch.relu(torch.relu(x)), lambda m, x: torch.relu(x)),
        named("abs_neg", lambda x: torch.abs(torch.neg(x)), lambda m, x: torch.abs(x), _is_signed),
        named("times_one", lambda x, one: any_of(x * one, x / one), lambda m, x, one: x, _is_one),
        named("minus_zero", lambda x, zero: x - zero, lambda m, x, zero: x, _is_zero),
        named("plus_zero", lambda x, zero: x + zero, lambda m, x, zero: x, _is_whole),
        named(
            "where_not",
            lambda x, a, b: torch.where(torch.logical_not(x), a, b),
            lambda m, x, a, b: torch.where(x, b, a),
            lambda m: m.dtype("x") is torch.bool,
        ),
        named(
            "dropout_of_nothing",
            lambda x, p, train: torch.dropout(x, p, train),
            lambda m, x, p, train: x,
            lambda m: m["train"] is False or m["p"] == 0,
        ),
    )
)


# -- matrices -----------------------------------------------------------------------------------------------------------------------


def _are_matrices(m: Match) -> bool:
    return len(m.shape("x") or ()) == len(m.shape("w") or ()) == 2


def _is_linear(m: Match) -> bool:
    return _are_matrices(m) and m.shape("b") == m.shape("w")[:1]  # type: ignore[index]


MATRICES = RuleSet(
    (
        named(
            "mm_linear",
            lambda x, w: any_of(torch.mm(x, turned(w)), torch.matmul(x, turned(w))),
            lambda m, x, w: functional.linear(x, w),
            _are_matrices,
        ),
        named(
            "addmm_linear",
            lambda b, x, w: torch.addmm(b, x, turned(w)),
            lambda m, b, x, w: functional.linear(x, w, b),
            _is_linear,
        ),
    )
)

algebra = shipped(ARITHMETIC + layout + MATRICES)
"""All exact identities."""
