"""``likely``: do two fake values say the same, so that the one may stay in the place of the other?

One idea: a value is described by types, dtypes, sizes, strides and devices, symbolic sizes as text, for comparing them would
install guards.  A size that only a run knows gets a new symbol each time that its operator is asked; its name says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ..numbers import SYMBOLIC
from ..torch_private import FakeTensor, has_fixed_sizes, have_fixed_sizes, without_overrides

__all__ = ["likely", "plain_facts", "plainly_alike"]


def plain_facts(value: Any) -> tuple[Any, ...] | None:
    """Return what describes a fake tensor of fixed sizes, for comparing many; None for any other value.

    >>> plain_facts(torch.ones(2)) is None
    True
    """
    if type(value) is not FakeTensor or not has_fixed_sizes(value) or value.layout is not torch.strided:
        return None
    return (value.dtype, value.shape, value.stride(), value.device)


def plainly_alike(value: Any, others: Sequence[Any]) -> bool:
    """Say whether a value and all others are fake tensors of fixed sizes that are described alike, without asking ``likely``.

    It may be False of values that are alike; this is the one look that nearly all values get when bodies are merged.

    >>> plainly_alike(torch.ones(2), [torch.ones(2)])
    False
    """
    facts = plain_facts(value)
    if facts is None or not {*map(type, others)} <= {FakeTensor} or not have_fixed_sizes(others):
        return False
    dtype, shape, stride, device = facts
    strided = torch.strided
    with without_overrides():
        # Written out, and what differs most first: making a tuple for each is as long again.
        for other in others:
            if other.shape != shape or other.dtype is not dtype or other.layout is not strided:
                return False
            if other.stride() != stride or other.device != device:
                return False
    return True


def likely(new: Any, old: Any, fresh: Collection[str] = ()) -> bool:
    """Say whether two fake values are described alike.

    Args:
        new: the value that was worked out.
        old: the value that was there.
        fresh: the symbols that the operator has just made.

    >>> likely(torch.ones(2), torch.zeros(2)), likely(torch.ones(2), torch.ones(3)), likely([1, 2], (1, 2)), likely(1, True)
    (True, False, True, False)
    """
    known: dict[str, str] = {}
    todo = [(new, old)]
    while todo:
        mine, theirs = todo.pop()
        if mine is theirs or ((facts := plain_facts(mine)) is not None and facts == plain_facts(theirs)):
            continue
        if isinstance(mine, tuple | list) and isinstance(theirs, tuple | list):
            if len(mine) != len(theirs):
                return False
            todo += zip(mine, theirs, strict=True)
        elif isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            if mine.keys() != theirs.keys():
                return False
            todo += [(mine[key], theirs[key]) for key in mine]
        elif isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
            if (mine.dtype, mine.device, mine.layout, mine.dim()) != (theirs.dtype, theirs.device, theirs.layout, theirs.dim()):
                return False
            todo += zip(_numbers(mine), _numbers(theirs), strict=True)
        elif isinstance(mine, SYMBOLIC) and type(mine) is type(theirs):
            if not _same(str(mine), str(theirs), fresh, known):
                return False
        elif type(mine) is not type(theirs) or not _equal(mine, theirs):
            return False
    return True


def _numbers(tensor: torch.Tensor) -> list[Any]:
    return [*tensor.shape, *tensor.stride()] if tensor.layout is torch.strided else list(tensor.shape)


def _same(mine: str, theirs: str, fresh: Collection[str], known: dict[str, str]) -> bool:
    if mine in fresh and theirs.startswith("u"):
        return known.setdefault(mine, theirs) == theirs
    return mine == theirs or (bool(known) and _renamed(mine, known) == theirs)


def _renamed(text: str, known: dict[str, str]) -> str:
    for mine, theirs in known.items():
        text = text.replace(mine, theirs)
    return text


def _equal(mine: Any, theirs: Any) -> bool:
    return isinstance(mine, int | float | str | torch.dtype | torch.device) and bool(mine == theirs)
