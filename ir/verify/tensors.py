"""Whether a fake value in meta and a tensor of the state are of one shape and dtype.

One idea: sizes are compared only where both are plain integers, because comparing a symbolic size installs a guard.
No contents are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from ..signature import TensorType
from ..torch_private import FakeTensor

__all__ = ["disagreement", "geometry", "misfit", "value_in"]


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


def misfit(promised: TensorType, known: Any) -> str | None:
    """Return how a tensor type of the signature and the fake value of its input differ, or None; symbols fit all sizes.

    >>> misfit(TensorType(torch.float32, (2, 3)), torch.ones(2, 4))
    'a torch.float32 of shape (2, 3), but was traced as a torch.float32 of shape (2, 4)'
    >>> misfit(TensorType(torch.float32, (2,)), None) is None, misfit(TensorType(torch.float32, (2,)), 3)
    (True, 'a torch.float32 of shape (2,), but was traced as a int')
    """
    if known is None or type(promised.shape) is not tuple:
        return None
    if not isinstance(known, torch.Tensor):
        return f"a {promised.dtype} of shape {promised.shape}, but was traced as a {type(known).__name__}"
    ours, theirs = promised.shape, known.shape
    same_rank = promised.dtype is known.dtype and len(ours) == len(theirs)
    if same_rank and all(a == b for a, b in zip(ours, theirs, strict=True) if type(a) is int and type(b) is int):
        return None
    shape = tuple(size if type(size) is int else getattr(size, "name", "?") for size in ours)
    return f"a {promised.dtype} of shape {shape}, but was traced as {geometry(known)}"


def value_in(meta: Any) -> Any:
    """Return the fake value in the meta of a node or an input; None where there is none.

    >>> value_in({"val": 3}), value_in(7)
    (3, None)
    """
    return meta.get("val") if type(meta) is MappingProxyType or isinstance(meta, Mapping) else None


def geometry(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words.

    >>> geometry(torch.ones(2, 3))
    'a torch.float32 of shape (2, 3)'
    """
    return f"a {tensor.dtype} of shape {tuple(tensor.shape)}"
