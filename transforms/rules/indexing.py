"""Indexing: the operators that ``x[:, 1:3, None]`` is in exported programs.

Torch takes one index after the other, and a slice of everything is nothing.  How many dimensions there are is not known, so those
that follow ``...`` are counted from the last one on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from ...ir.errors import RuleError
from .amounts import Amount

__all__ = ["steps"]

TO_THE_END = 2**63 - 1


def steps(index: Any, is_tensor: Callable[[Any], bool | None]) -> list[list[tuple[str, tuple[Any, ...]]]]:
    """Return the operators of an index in order, and what each is given beside the value, the dimension first.

    Dimensions behind ``...`` are counted from the last one on, and are negative.  Where a part may be a number or a tensor, there
    are several ways.

    Args:
        index: what stands in the brackets.
        is_tensor: says whether a part of it is a tensor, of positions or of truth values; None if it may be a number as well.

    >>> steps((slice(None), slice(1, None), None, 0), lambda part: False)
    [[('slice', (1, 1, 9223372036854775807)), ('unsqueeze', (2,)), ('select', (3, 0))]]
    >>> steps((..., 0), lambda part: False), steps("i", lambda part: None)
    ([[('select', (-1, 0))]], [[('index', (['i'],))], [('select', (0, 'i'))]])

    Raises:
        RuleError: which operators it is depends on the value, or it is no index.
    """
    parts = index if isinstance(index, tuple) else (index,)
    before = next((number for number, part in enumerate(parts) if part is Ellipsis), len(parts))
    kinds = [_kinds(part, is_tensor, is_behind=number > before) for number, part in enumerate(parts)]
    return [_way(parts, chosen) for chosen in product(*kinds)]


def _kinds(part: Any, is_tensor: Callable[[Any], bool | None], *, is_behind: bool) -> list[str]:
    # What a part may be.
    if part is None or part is Ellipsis or isinstance(part, slice):
        return [""]
    if type(part) is int or isinstance(part, Amount | torch.SymInt):
        return ["number"]
    found = is_tensor(part)
    if found is False or (found and is_behind):
        raise RuleError(
            f"[{part!r}] in a rule: which dimension that is, or what it selects, depends on the value; write an operator:\n"
            "torch.select(x, dim, 0), torch.ops.aten.slice.Tensor(x, dim, 0, end), torch.ops.aten.index.Tensor(x, [index])"
        )
    return ["tensor"] if found else ["number"] if is_behind else ["tensor", "number"]


def _way(parts: Sequence[Any], kinds: Sequence[str]) -> list[tuple[str, tuple[Any, ...]]]:
    found: list[tuple[str, tuple[Any, ...]]] = []
    tensors: dict[int, Any] = {}
    dim, is_behind = 0, False
    for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        if part is Ellipsis:
            dim, is_behind = -sum(each is not None for each in parts[number + 1 :]), True
        elif part is None:
            found.append(("unsqueeze", (dim - is_behind,)))
            dim += not is_behind
        elif kind == "number":
            found.append(("select", (dim, part)))
            dim += is_behind
        else:
            if isinstance(part, slice):
                found += _slice(part, dim)
            else:
                tensors[dim] = part
            dim += 1
    if tensors:
        found.append(("index", ([tensors.get(number) for number in range(max(tensors) + 1)],)))
    return found


def _slice(part: slice, dim: int) -> list[tuple[str, tuple[Any, ...]]]:
    start, end = 0 if part.start is None else part.start, TO_THE_END if part.stop is None else part.stop
    step = () if part.step is None else (part.step,)
    is_all = all(type(each) is int for each in (start, end, *step)) and (start, end, *step) in (
        (0, TO_THE_END),
        (0, TO_THE_END, 1),
    )
    return [] if is_all else [("slice", (dim, start, end, *step))]
