"""Private names of torch: what autograd knows of views, and of the tensors that a node of it has saved.

Nothing here differentiates.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["base_of", "free_saved"]


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that another one is a view of for autograd; None if it is none, as what ``detach`` gives.

    >>> x = torch.ones(2)
    >>> base_of(x[:1]) is x, base_of(x), base_of(x[:1].detach())
    (True, None, None)
    """
    return tensor._base


def free_saved(ctx: Any) -> None:
    """Let a node of autograd forget the tensors that it saved, unless its graph is retained.

    Whoever has read them says so before it computes with them, so that each goes with its last use.

    Args:
        ctx: of a ``torch.autograd.Function``, in its backward.
    """
    ctx.maybe_clear_saved_tensors()
