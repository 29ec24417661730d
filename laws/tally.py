"""``TALLY``: an operator of another library, whose schema does not say that it counts.

Its kernel counts nothing: whoever runs a drawn program (``TensorMachine``) does, so that runs do not depend on one another.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["TALLY", "TALLY_NAME"]

TALLY_NAME = "purefx_laws.tally.default"


@torch.library.custom_op("purefx_laws::tally", mutates_args=())
def _tally(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@_tally.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _backward(_ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad


_tally.register_autograd(_backward)

TALLY: Any = torch.ops.purefx_laws.tally.default
"""``tally(x)``: ``x + 1``, and one more is counted.

>>> TALLY(torch.zeros(2))
tensor([1., 1.])
"""
