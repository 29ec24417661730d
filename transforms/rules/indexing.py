"""Indexing: the operators that ``x[:, 1:3, None]`` is in exported programs.

Torch takes one index after the other, and a slice of everything is nothing.  How many dimensions there are is not known, so what
follows ``...`` cannot be said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.errors import RuleError

__all__ = ["steps"]

TO_THE_END = 2**63 - 1


def steps(index: Any, is_value: Callable[[Any], bool]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the operators of an index in order, and what each is given beside the value.

    Args:
        index: what stands in the brackets.
        is_value: says whether a part of it is a value that is computed.

    >>> steps((slice(None), slice(1, None), None, 0), lambda part: False)
    [('slice', (1, 1, 9223372036854775807)), ('unsqueeze', (2,)), ('select', (3, 0))]

    Raises:
        RuleError: which operators it is depends on the value, or it is no index.
    """
    found: list[tuple[str, tuple[Any, ...]]] = []
    tensors: dict[int, Any] = {}
    dim = 0
    for part in index if isinstance(index, tuple) else (index,):
        if part is None:
            found.append(("unsqueeze", (dim,)))
            dim += 1
        elif isinstance(part, slice):
            found += _slice(part, dim)
            dim += 1
        elif type(part) is int:
            found.append(("select", (dim, part)))
        elif is_value(part):
            tensors[dim] = part
            dim += 1
        else:
            raise RuleError(
                f"[{part!r}] in a rule: which dimension that is, or what it selects, depends on the value; write an operator:\n"
                "torch.select(x, dim, 0), torch.ops.aten.slice.Tensor(x, dim, 0, end), torch.ops.aten.index.Tensor(x, [index])"
            )
    if tensors:
        found.append(("index", ([tensors.get(number) for number in range(max(tensors) + 1)],)))
    return found


def _slice(part: slice, dim: int) -> list[tuple[str, tuple[Any, ...]]]:
    start, end = 0 if part.start is None else part.start, TO_THE_END if part.stop is None else part.stop
    step = () if part.step is None else (part.step,)
    return [] if (start, end, part.step or 1) == (0, TO_THE_END, 1) else [("slice", (dim, start, end, *step))]
