"""What the text of a generated module may use besides torch: a registered dataclass, a holder, ``cond``.

One idea: the printed module runs as it stands once this and torch are imported.  Nothing here draws or builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Holder", "Pair", "cond"]


@dataclass
class Pair:
    """A dataclass that torch's pytrees know, as an input and as an output.

    >>> torch.utils._pytree.tree_leaves(Pair(1, None))
    [1]
    """

    left: Any
    right: Any


torch.export.register_dataclass(Pair)


class Holder(torch.nn.Module):
    """Holds a module and is never called itself.

    >>> list(Holder(torch.nn.ReLU()).named_modules())[1][0]
    'inner'
    """

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner


def cond(condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return what one branch gives; ``torch.cond`` while exporting, plain Python otherwise.

    Outside of an exporter ``torch.cond`` compiles both branches first, which takes longer than all the rest of a case.

    Args:
        condition: a boolean scalar tensor.
        yes: the branch taken when it holds.
        no: the other.
        operands: what the branch is given.

    >>> cond(torch.tensor(True), lambda x: x + 1, lambda x: x, (torch.ones(1),))
    tensor([2.])
    """
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return yes(*operands) if bool(condition) else no(*operands)
