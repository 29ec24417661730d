"""What ``check_rule`` is told about shipped rules: how exact they are, and what the variables of some may be.

Those are what no drawing finds but by chance: attention whose operands agree, the numbers of a formula, variances above zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor, nn

import purefx as px
from purefx import rules
from purefx.laws.checking import Report
from purefx.laws.evaluate import Tolerance
from purefx.laws.law import Law
from purefx.laws.rules import RULE_LAWS, check_rule

SETS: dict[str, px.RuleSet] = {
    "algebra": rules.algebra,
    "attention": rules.attention,
    "fusions": rules.fusions,
}

EVERY = [(name, rule) for name, each in SETS.items() for rule in each.rules]
"""Every shipped rule, with the name of its set."""

Draw = Callable[[Any], Any]

LOWEST = {dtype: torch.finfo(dtype).min for dtype in (torch.float32, torch.float16)}


# -- attention -------------------------------------------------------------------------------------------------------------------


def attention(rule: px.Rule, dtype: torch.dtype) -> Draw:
    """Return how the variables of attention are drawn: batches, heads, lengths and sizes agree, and no mask hides a whole row."""

    def drawn(draw: Draw) -> dict[str, Any]:
        batch = draw(st.sampled_from(((2,), (2, 3), (1, 2), (3,))))
        rows, columns, size, width = (draw(st.integers(2, 4)) for _ in range(4))
        scores = (*batch, rows, columns)
        is_half = (
            dtype is torch.float16
        )  # scores of order one: of larger ones half precision keeps no three digits
        found: dict[str, Any] = {
            "q": _numbers(*batch, rows, size, dtype=dtype) / (4 if is_half else 1),
            "k": _numbers(*batch, columns, size, dtype=dtype),
            "v": _numbers(*batch, columns, width, dtype=dtype),
            "dim": draw(st.sampled_from((-1, len(scores) - 1))),
            "scale": draw(st.sampled_from((0.5, 2.0, -1.25) if is_half else (0.5, 2.0, 8, -0.3))),
            "fill": draw(st.sampled_from((-math.inf, LOWEST[dtype]))),
            "p": draw(st.sampled_from((0.0, 0.25, 0.5))),
            "train": draw(st.booleans()),
        }
        shape = draw(
            st.sampled_from((scores[-2:], scores, (1, columns), (*[1] * len(batch), rows, columns)))
        )
        found |= {
            "mask": _numbers(*shape, dtype=dtype),
            "seen": _every_other(*shape),
            "hidden": _every_other(*shape),
        }
        return {name: found[name] for name in rule.variables}

    return drawn


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-1.5, 2, math.prod(shape)).sin().reshape(shape).to(dtype)


def _every_other(*shape: int) -> Tensor:
    return (torch.arange(math.prod(shape)) % 2 == 0).reshape(shape)


def attended(rule: px.Rule) -> Draw:
    """Return how the variables of attention that is there already are drawn."""

    def drawn(draw: Draw) -> dict[str, Any]:
        rows, size = draw(st.integers(2, 4)), draw(st.integers(1, 4))
        q, k, v = (_numbers(2, 2, rows, size) * number for number in (1, -1, 0.5))
        seen = torch.ones(rows, rows, dtype=torch.bool).tril()
        of_state = rule.name == "causal"
        mask = seen if of_state else draw(st.sampled_from((None, _numbers(rows, rows), seen)))
        found = {
            "q": q,
            "k": k,
            "v": v,
            "mask": mask,
            "p": draw(st.sampled_from((0.0, 0.25))),
            "causal": mask is None and draw(st.booleans()),
            "scale": draw(st.sampled_from((None, 0.5, -0.5))),
            "gqa": draw(st.booleans()),
            "by": draw(st.sampled_from((0.5, 2, -3.0))),
        }
        return {name: found[name] for name in rule.variables}

    return drawn


def over_heads(draw: Draw) -> tuple[Any, ...]:
    """Return scores over all heads at once, which are apart for the mask."""
    batch, heads, rows, columns, size = (draw(st.integers(1, 3)) for _ in range(5))
    flat = (batch * heads, rows, columns)
    q, k, v = (
        _numbers(*flat[:2], size),
        _numbers(flat[0], columns, size),
        _numbers(flat[0], columns, 2),
    )
    mask = draw(st.sampled_from(((rows, columns), (batch, 1, rows, columns))))
    return (
        q,
        k,
        v,
        _numbers(*mask),
        [batch, heads, rows, columns],
        [*flat],
        draw(st.sampled_from((-1, 2))),
    )


# -- others ----------------------------------------------------------------------------------------------------------------------


def batch_norm(dims: int) -> Draw:
    """Return what a convolution of so many dimensions, 0 for a linear function, and a batch norm behind it take."""

    def drawn(draw: Draw) -> tuple[Any, ...]:
        channels, inputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        x = _numbers(2, inputs, *[draw(st.integers(3, 4))] * dims)
        weight = _numbers(channels, inputs, *[draw(st.integers(1, 3))] * dims)
        optional = st.sampled_from((None, _numbers(channels), _numbers(channels) + 1))
        bias, scale, shift = draw(optional), draw(optional), draw(optional)
        how = (
            (([draw(st.integers(1, 2))] * dims, [draw(st.integers(0, 1))] * dims, [1] * dims, 1),)
            if dims
            else ((),)
        )
        norm = (
            scale,
            shift,
            _numbers(channels),
            _numbers(channels).square() + 0.5,
            0.1,
            draw(st.sampled_from((1e-5, 0.1))),
        )
        return (x, weight, bias, *how[0], *norm)

    return drawn


def activation(*numbers: float) -> Draw:
    """Return a tensor and the numbers of a formula."""
    shapes = st.sampled_from(((2, 3), (4,), (0, 2), (), (2, 1, 3)))
    return lambda draw: (_numbers(*draw(shapes)) * 3, *numbers)


def averaged(draw: Draw) -> tuple[Any, ...]:
    """Return a tensor, some of its dimensions, and how many numbers each sum is of."""
    shape = draw(st.sampled_from(((2, 3), (4,), (2, 1, 3))))
    dims = draw(
        st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1, max_size=len(shape))
    )
    return _numbers(*shape), dims, draw(st.booleans()), math.prod([shape[dim] for dim in dims])


WIDER = {
    torch.bool: (torch.uint8, torch.int64, torch.float16),
    torch.uint8: (torch.int16, torch.float16, torch.float64),
    torch.int8: (torch.int16, torch.int64, torch.bfloat16, torch.float32),
    torch.int32: (torch.int64, torch.float64),
    torch.float16: (torch.float32, torch.float64),
    torch.bfloat16: (torch.float32, torch.float64),
    torch.float32: (torch.float64,),
}
"""Types that have all numbers of another one."""


def cast(draw: Draw) -> tuple[Any, ...]:
    """Return a tensor, a wider type, and its own; or now and then any types."""
    before = draw(st.sampled_from([*WIDER]))
    wider = draw(st.sampled_from(WIDER[before]))
    after = before if draw(st.integers(0, 3)) else draw(st.sampled_from([*WIDER]))
    return (
        (torch.arange(6).reshape(draw(st.sampled_from(((2, 3), (6,), (3, 1, 2))))) - 2).to(before),
        wider,
        after,
    )


def with_zero(draw: Draw) -> tuple[Any, ...]:
    """Return whole numbers, or truths, and a zero of the same kind."""
    dtype = draw(st.sampled_from((torch.int64, torch.int32, torch.bool, torch.uint8)))
    zero = draw(st.sampled_from((0, False)))
    return torch.arange(6).reshape(draw(st.sampled_from(((2, 3), (6,), (3, 1, 2))))).to(dtype), zero


def normed(draw: Draw) -> tuple[Any, ...]:
    """Return a tensor and what is added to its variance."""
    return _numbers(*draw(st.sampled_from(((2, 3), (4,), (2, 1, 3), (3, 2))))), draw(
        st.sampled_from((1e-5, 1e-3, 0.5, 2))
    )


def parts(name: str) -> Draw:
    """Return a value and how it is cut into as many parts as a rule joins."""
    how, count = name.rpartition("_")[0], int(name[-1])

    def drawn(draw: Draw) -> tuple[Any, ...]:
        size, rank = (
            draw(st.integers(1, 2)),
            draw(st.sampled_from((1, 1, 1, 2, 3))),
        )  # of rank 1 no view has other strides
        sizes = [size] * (count - 1) + [draw(st.integers(1, size))]
        dim = draw(st.integers(0, rank - 1))
        cut = {"split_cat": size, "split_sizes_cat": sizes, "chunk_cat": count}[how]
        whole = count * size if how == "chunk_cat" else sum(sizes)
        x = _numbers(*[whole if each == dim else 2 for each in range(rank)])
        return x, cut, draw(st.sampled_from((dim, dim - rank)))

    return drawn


ROOT = 0.5**0.5

OPERANDS: dict[str, Any] = {
    **{f"conv{dims}d_batch_norm": batch_norm(dims) for dims in (1, 2, 3)},
    "linear_batch_norm": batch_norm(0),
    **{
        rule.name: parts(rule.name)
        for rule in rules.algebra.rules
        if rule.name[:-1].endswith("_cat_")
    },
    "cast_back": cast,
    "mean": averaged,
    "plus_zero": with_zero,
    "layer_norm": normed,
    "gelu": activation(0.5, 1, ROOT),
    "gelu_over_root": activation(0.5, 1, 1 / ROOT),
    "gelu_tanh": activation(0.5, 1, (2 / math.pi) ** 0.5, 0.044715),
    "attention_over_heads": over_heads,
    **{
        rule.name: attended(rule)
        for rule in rules.attention.rules
        if rule.name in ("causal", "scaled_before")
    },
}


class Joined(nn.Module):
    """Joins what is joined already: a rule of one operator is asked on programs."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.cat([x, y], -1)
        return torch.cat(
            [inner, torch.cat([y], 1), torch.cat([x * 2, y], 0).t()[:2]], 1
        ), torch.cat([torch.cat([x, y], 0), x], 0)


PROGRAMS: dict[str, Any] = {"cat_cat": [(Joined(), (torch.randn(2, 2), torch.randn(2, 2)))]}

EXACT = {
    "algebra": Tolerance(0.0, 0.0),
    "attention": Tolerance(1e-5, 1e-5),
    "fusions": Tolerance(1e-5, 1e-5),
}
"""How far the results of a set are from those before, in single precision, as docs/rules.md says."""

IN_HALF = Tolerance(5e-3, 5e-3)


def checked(
    kind: str,
    rule: px.Rule,
    *,
    examples: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    laws: Sequence[Law] = RULE_LAWS,
) -> Report:
    """Ask the laws of one shipped rule of a set, with operands of attention of one type."""
    is_written_out = kind == "attention" and rule.name not in OPERANDS
    operands = attention(rule, dtype) if is_written_out else OPERANDS.get(rule.name)
    allowed = EXACT[kind] if dtype is torch.float32 else IN_HALF
    return check_rule(
        rule,
        laws=laws,
        examples=0 if rule.name in PROGRAMS else examples,
        seed=seed,
        operands=operands,
        programs=PROGRAMS.get(rule.name, ()),
        rtol=allowed.rtol,
        atol=allowed.atol,
        finite=kind != "algebra",
        changes_state=rule.name.endswith("batch_norm"),
    )
