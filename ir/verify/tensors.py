"""Whether a fake value in meta and a tensor of the state are of one shape and dtype.

One idea: sizes are compared only where both are plain integers, because comparing a symbolic size installs a guard.
No contents are read.
"""

from __future__ import annotations

from typing import Any

import torch

from ..torch_private import FakeTensor

__all__ = ["disagreement", "geometry"]


TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})


def disagreement(known: Any, value: Any) -> str | None:
    """Return how the fake value in meta and a tensor of the state differ, or None; what is no tensor never differs.

    >>> disagreement(torch.ones(2), torch.ones(3))
    'a torch.float32 of shape (2,), but the slot holds a torch.float32 of shape (3,)'
    >>> disagreement(None, torch.ones(3)) is None
    True
    """
    # Asking the type first is worth it: isinstance of a tensor runs a metaclass, twice for every read of state.
    if type(known) not in TENSORS and not isinstance(known, torch.Tensor):
        return None
    if type(value) not in TENSORS and not isinstance(value, torch.Tensor):
        return None
    ours, theirs = known.shape, value.shape
    if known.dtype is value.dtype and len(ours) == len(theirs) and _same_sizes(ours, theirs):
        return None
    return f"{geometry(known)}, but the slot holds {geometry(value)}"


def _same_sizes(ours: torch.Size, theirs: torch.Size) -> bool:
    for size in ours:
        if type(size) is not int:
            break
    else:
        return ours == theirs
    return all(a == b for a, b in zip(ours, theirs, strict=True) if type(a) is int and type(b) is int)


def geometry(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words.

    >>> geometry(torch.ones(2, 3))
    'a torch.float32 of shape (2, 3)'
    """
    return f"a {tensor.dtype} of shape {tuple(tensor.shape)}"
