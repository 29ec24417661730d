"""Replace hand-written attention by ``scaled_dot_product_attention``, which has fast kernels.

One rule exists for each combination of scaling, masking and dropout.  Operands may be any values: permuted, split into heads,
read from a cache.  Results are the same within a tolerance, except for rows of scores that are masked everywhere with ``-inf``:
they become zeros instead of NaN.  Rows that a finite number hides everywhere have equal weights, as in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from itertools import product
from typing import Any

import torch
from torch.nn import functional

from ...ir.arguments import Ref
from ...ir.torch_private import SAFE_SOFTMAX, device_of
from ..rules import any_of
from ..rules.match import Match
from ..rules.rule import Rule, RuleSet, rule, shipped

__all__ = ["attention"]

aten: Any = torch.ops.aten

attend = functional.scaled_dot_product_attention


# -- patterns -----------------------------------------------------------------------------------------------------------------------


def _product(a: Any, b: Any) -> Any:
    return any_of(torch.matmul(a, b), torch.bmm(a, b))


def _turned(k: Any) -> Any:
    swapped = [k.transpose(*dims) for dims in ((-2, -1), (2, 3), (1, 2))]
    return any_of(*swapped, aten.mT.default(k), k.permute([0, 1, 3, 2]), k.permute([0, 2, 1]))


def _scores(q: Any, k: Any) -> Any:
    return _product(q, _turned(k))


def _weights(scores: Any, dim: Any, q: Any, drop: Callable[[Any], Any]) -> Any:
    # The softmax may use a wider type, and cast back to that of the operands before or after the dropout.
    scores = any_of(
        scores, *_casts(scores, q, scores), *_casts(scores.to(torch.float32), q, scores)
    )
    wide = any_of(
        torch.softmax(scores.to(torch.float32), dim),
        torch.softmax(scores, dim, dtype=torch.float32),
    )
    plain = any_of(torch.softmax(scores, dim), SAFE_SOFTMAX(scores, dim), wide)
    dropped = drop(any_of(plain, *_casts(plain, q, scores)))
    return any_of(dropped, *_casts(dropped, q, scores))


def _casts(x: Any, q: Any, scores: Any) -> list[Any]:
    # `_keeps_precision` skips casts that are too narrow.
    return [
        *[x.to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)],
        x.type_as(q),
        x.type_as(scores),
    ]


SCALED: dict[str, Callable[..., Any]] = {
    "": _scores,
    "scaled": lambda q, k, scale: any_of(_scores(q, k) * scale, _scores(q, k) / scale),
    "scaled_twice": lambda q, k, scale: any_of(
        _product(q * scale, _turned(k) * scale), _product(q / scale, _turned(k) / scale)
    ),
}

MASKED: dict[str, Callable[..., Any]] = {
    "": lambda scores: scores,
    "biased": lambda scores, mask: any_of(scores + mask, (scores + mask).type_as(scores)),
    "hidden": lambda scores, hidden, fill: any_of(
        scores.masked_fill(aten.expand_as.default(hidden, scores), fill),
        scores.masked_fill(hidden, fill),
        torch.where(hidden, fill, scores),
    ),
    "seen": lambda scores, seen, fill: torch.where(seen, scores, fill),
    "seen_biased": lambda scores, seen, fill, mask: torch.where(seen, scores, fill) + mask,
}

DROPPED: dict[str, Callable[..., Any]] = {
    "": lambda weights: weights,
    "dropped": lambda weights, p, train: torch.dropout(weights, p, train),
}


def _attention(scaled: str, masked: str, dropped: str) -> Rule:
    # The rule of one combination, with the variables of its parts.
    parts = SCALED[scaled], MASKED[masked], DROPPED[dropped]
    options = _options(parts[0], 2), _options(parts[1], 1), _options(parts[2], 1)
    names = ["q", "k", "v", "dim", *[name for each in options for name in each]]

    def pattern(*values: Any) -> Any:
        arguments = dict(zip(names, values, strict=True))
        q, k, v, dim = values[:4]
        scale, mask, drop = ([arguments[name] for name in each] for each in options)
        scores = parts[1](parts[0](q, k, *scale), *mask)
        return _product(_weights(scores, dim, q, lambda weights: parts[2](weights, *drop)), v)

    def fused(m: Match, *values: Any) -> Any:
        arguments = dict(zip(names, values, strict=True))
        p = arguments.get("p", 0.0) if arguments.get("train") else 0.0
        mask = _mask(m, arguments)
        return attend(
            _queries(m, arguments, mask),
            *values[1:3],
            attn_mask=mask,
            dropout_p=p,
            scale=_factor(m) if options[0] else 1.0,
        )

    pattern.__name__ = "_".join(["attention", *filter(None, (scaled, masked, dropped))])
    pattern.__signature__, fused.__signature__ = _signature(names), _signature(["m", *names])  # type: ignore[attr-defined]
    return rule(where=_is_attention)(pattern).becomes(fused)


def _options(part: Callable[..., Any], start: int) -> list[str]:
    return [*signature(part).parameters][start:]


def _signature(names: list[str]) -> Signature:
    return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])


# -- conditions ---------------------------------------------------------------------------------------------------------------------


def _is_attention(m: Match) -> bool:
    q, k, v = (m.val(name) for name in "qkv")
    if not all(isinstance(one, torch.Tensor) and one.is_floating_point() for one in (q, k, v)):
        return False
    rank, names = q.dim(), m.found.values
    mine, *others = [
        (one.dim(), one.dtype, device_of(one), tuple(one.shape[:-2])) for one in (q, k, v)
    ]
    return bool(
        rank >= 3
        and all(each == mine for each in others)
        and m["dim"] in (-1, rank - 1)
        and _turns_the_last_two(m, rank)
        and k.shape[-2] == v.shape[-2]
        and _keeps_precision(m, q.dtype)
        and ("scale" not in names or _factor(m) is not None)
        and ("p" not in names or (0 <= _as_number(m["p"]) < 1 and m["train"] in (True, False)))
        and all(_is_mask(m, name, q, k) for name in ("mask", "hidden", "seen") if name in names)
        and ("fill" not in names or _hides(m, q.dtype))
    )


def _turns_the_last_two(m: Match, rank: int) -> bool:
    turns = [node for node in m.nodes if node.op_name == "aten.transpose.int"]
    return all(
        {number % rank for number in node.args[1:]} == {rank - 2, rank - 1} for node in turns
    )  # type: ignore[operator]


def _keeps_precision(m: Match, dtype: torch.dtype) -> bool:
    # No intermediate type is narrower than that of the operands, and the result has the latter.
    dtypes = [one for node in m.nodes if (one := m.dtype(Ref(node.name))) is not torch.bool]
    allowed = (dtype, torch.float32, torch.float64) if dtype in HALVES else (dtype,)
    return dtypes[0] == dtype and all(one in allowed for one in dtypes)


def _as_number(value: Any) -> float:
    return value if type(value) in (int, float) else math.nan


def _number(m: Match, variable: str) -> float:
    # A literal number, or the number of a scalar tensor that `torch.full` makes.
    value = m[variable]
    made = m.scope.draft.nodes.get(value.name) if type(value) is Ref else None
    if made is not None and made.op_name == "aten.full.default" and m.shape(value) == ():
        value = made.args[1]
    return _as_number(value)


def _factor(m: Match, variable: str = "scale") -> float | None:
    # The factor of the scores: the product over the scaling operators of the match.
    number, factor = _number(m, variable), 1.0
    for name in [node.op_name for node in m.found.distinct]:
        if name.startswith(("aten.mul.", "aten.div.")):
            factor *= number if name.startswith("aten.mul.") else 1 / number if number else math.nan
    return factor if math.isfinite(factor) else None


def _is_mask(m: Match, name: str, q: torch.Tensor, k: torch.Tensor) -> bool:
    # A tensor that broadcasts to the scores, of their dtype or boolean.
    mask, dtype = m.val(name), q.dtype if name == "mask" else torch.bool
    if not isinstance(mask, torch.Tensor) or not 0 < mask.dim() <= q.dim():
        return False
    sizes = zip(mask.shape, (*q.shape[:-1], k.shape[-2])[-mask.dim() :], strict=True)
    return (
        mask.dtype == dtype
        and device_of(mask) == device_of(q)
        and all(mine in (theirs, 1) for mine, theirs in sizes)
    )


def _hides(m: Match, dtype: torch.dtype) -> bool:
    # Whether adding the number to any score yields the number.
    return _number(m, "fill") * torch.finfo(dtype).eps <= -60


def _is_lowest(m: Match) -> bool:
    # Whether the kernel, too, yields the number, whatever the score: it adds in single precision or better.
    wide = torch.promote_types(m.val("q").dtype, torch.float32)
    return _number(m, "fill") * torch.finfo(wide).eps <= -1e6


# -- replacement --------------------------------------------------------------------------------------------------------------------


def _mask(m: Match, arguments: Any) -> Any:
    if "fill" not in arguments:
        return arguments.get("mask")
    dtype = arguments["q"].dtype
    fill = (
        torch.tensor(_number(m, "fill"), dtype=torch.float64).to(dtype).item()
    )  # overflows to -inf in half precision
    seen = _seen(arguments)
    if "mask" in arguments:
        return torch.where(seen, arguments["mask"], arguments["mask"] + fill)
    return (
        seen
        if fill == -math.inf
        else torch.full_like(seen, fill, dtype=dtype).masked_fill(seen, 0.0)
    )


def _seen(arguments: Any) -> Any:
    return arguments["seen"] if "seen" in arguments else arguments["hidden"].logical_not()


HALVES = (torch.float16, torch.bfloat16)


def _queries(m: Match, arguments: Any, mask: Any) -> Any:
    # In eager mode, a row that the fill hides completely has equal weights.  The kernel adds the fill to the scores of the row,
    # so these have to be zeros.
    q = arguments["q"]
    if "fill" not in arguments or ("mask" in arguments and q.dtype in HALVES):
        return _rounded_as_in_eager_mode(q, mask)
    return q if mask.dtype is torch.bool or _is_lowest(m) else _where_any(_seen(arguments), q)


def _rounded_as_in_eager_mode(q: Any, mask: Any) -> Any:
    # In half precision, eager mode rounds score + mask: a row whose masks are all large and negative loses its scores.  The
    # kernel adds in single precision and would keep them.
    if mask is None or mask.dtype not in HALVES:
        return q
    limit = -8 / torch.finfo(mask.dtype).eps  # numbers beyond are at least 8 apart
    return _where_any(mask > limit, q)


def _where_any(seen: Any, q: Any) -> Any:
    # The queries that see a key, zeros for the others.
    return torch.where(seen.any(-1, keepdim=True), q, 0.0)


# -- existing attention operators ---------------------------------------------------------------------------------------------------


def _as_it_is(m: Match) -> float | None:
    # The factor of an existing attention operator.
    size = m.shape("q")
    default = size[-1] ** -0.5 if size and type(size[-1]) is int and size[-1] else math.nan
    scale = default if m["scale"] is None else _as_number(m["scale"])
    return scale if math.isfinite(scale) else None


def _is_scaled_before(m: Match) -> bool:
    by, scale = _factor(m, "by"), _as_it_is(m)
    if scale is None or by is None or by == 0 or not m.dtype("q") == m.dtype("k") == m.dtype("v"):
        return False
    return m["causal"] is False or (
        by > 0 and scale > 0
    )  # torch's kernels hide causal scores as -inf times the factor


@rule(where=_is_scaled_before)
def scaled_before(
    q: Any, k: Any, v: Any, mask: Any, p: Any, causal: Any, scale: Any, gqa: Any, by: Any
) -> Any:
    options = {
        "attn_mask": mask,
        "dropout_p": p,
        "is_causal": causal,
        "scale": scale,
        "enable_gqa": gqa,
    }
    return any_of(
        *[
            attend(*one, v, **options)
            for one in ((q * by, k), (q, k * by), (q / by, k), (q, k / by))
        ]
    )


@scaled_before.becomes
def _(
    m: Match, q: Any, k: Any, v: Any, mask: Any, p: Any, causal: Any, scale: Any, gqa: Any, by: Any
) -> Any:
    return attend(q, k, v, mask, p, causal, scale=_as_it_is(m) * _factor(m, "by"), enable_gqa=gqa)  # type: ignore[operator]


def _is_causal(m: Match) -> bool:
    mask, q, k = m.constant("mask", buffers=True), m.shape("q"), m.shape("k")
    if m["scale"] is not None and not _as_number(m["scale"]) > 0:
        return False  # torch hides by -inf times the factor
    if (
        mask is None
        or q is None
        or k is None
        or mask.dim() < 2
        or mask.shape[-2:] != (q[-2], k[-2])
    ):
        return False
    seen = torch.ones(mask.shape, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype is torch.bool:
        return torch.equal(mask, seen)
    hidden = mask[~seen] * torch.finfo(mask.dtype).eps <= -60
    return not mask[seen].any() and bool(hidden.all())


@rule(where=_is_causal)
def causal(q: Any, k: Any, v: Any, mask: Any, p: Any, scale: Any, gqa: Any) -> Any:
    return attend(q, k, v, mask, p, is_causal=False, scale=scale, enable_gqa=gqa)


@causal.becomes
def _(m: Match, q: Any, k: Any, v: Any, mask: Any, p: Any, scale: Any, gqa: Any) -> Any:
    return attend(q, k, v, None, p, is_causal=True, scale=scale, enable_gqa=gqa)


def _is_over_heads(m: Match) -> bool:
    q, k, v, mask = (m.shape(name) for name in ("q", "k", "v", "mask"))
    shapes = [m.shape(Ref(node.name)) for node in m.nodes if node.op_name in VIEWS]
    if None in (q, k, v, mask) or [len(one or ()) for one in shapes] != [3, 4]:
        return False
    flat, heads = shapes
    return bool(
        m["dim"] in (-1, 2)
        and (heads[0] * heads[1], *heads[2:]) == (q[0], q[1], k[1]) == flat  # type: ignore[index]
        and len(mask) <= 4  # type: ignore[arg-type]
        and all(
            size in (whole, 1)
            for size, whole in zip(mask[::-1], heads[::-1], strict=False)  # type: ignore[index]
        )
        and m.dtype("q")
        == m.dtype("k")
        == m.dtype("v")
        == m.dtype("mask")
        == m.dtype(Ref(m.root.name))
    )


VIEWS = ("aten.view.default", "aten.reshape.default")


@rule(where=_is_over_heads)
def attention_over_heads(q: Any, k: Any, v: Any, mask: Any, heads: Any, flat: Any, dim: Any) -> Any:
    scores = torch.bmm(q, k.transpose(1, 2))
    apart = any_of(scores.view(heads), scores.reshape(heads)) + mask
    return torch.bmm(torch.softmax(any_of(apart.view(flat), apart.reshape(flat)), dim), v)


@attention_over_heads.becomes
def _(m: Match, q: Any, k: Any, v: Any, mask: Any, heads: Any, flat: Any, dim: Any) -> Any:
    q, k, v = (one.unflatten(0, [*heads[:2]]) for one in (q, k, v))
    q = _rounded_as_in_eager_mode(q, mask)
    return attend(q, k, v, attn_mask=mask, scale=1.0).flatten(0, 1)


COMBINED = [_attention(*each) for each in product(SCALED, MASKED, DROPPED)]

attention = shipped(RuleSet((*COMBINED, attention_over_heads, scaled_before, causal)))
