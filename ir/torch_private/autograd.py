"""Private names of torch: what autograd knows of views, of functions in Python, and of the tensors that a node of it has saved.

Nothing here differentiates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["base_of", "free_saved", "own_functions"]


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


KEPT = ("torch._higher_order_ops.", "torch._functorch.", "torch._library.")
"""Where torch implements the gradients of operators in Python; exported programs keep those operators."""


def own_functions(results: Iterable[torch.Tensor]) -> list[str]:
    """Return the names of the ``torch.autograd.Function`` classes whose backward the gradient of some tensors runs.

    Args:
        results: tensors that autograd has recorded.

    >>> class Same(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 1
    >>> own_functions([Same.apply(torch.ones(2, requires_grad=True)).sin()])
    ['Same']
    """
    found: dict[str, None] = {}
    todo = [result.grad_fn for result in results]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if node is None:
            continue
        # The class of the node is made by torch; what the user wrote is an attribute of it.
        kind = getattr(node, "_forward_cls", None)
        if kind is not None and not f"{kind.__module__}.".startswith(KEPT):
            found[kind.__qualname__] = None
        new = {node for node, _ in node.next_functions} - seen
        seen |= new
        todo += new
    return list(found)
