"""Private names of torch for fake tensors: the type, its mode, what operators refuse.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = ["FAKE_REFUSALS", "FakeTensor", "FakeTensorMode", "fake_copy"]


FAKE_REFUSALS = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
"""What operators raise that can not say what they give without the contents of tensors."""


def fake_copy(module: torch.fx.GraphModule, mode: Any) -> torch.fx.GraphModule:
    """Return a copy of a module with fake tensors in the places of its own; no public copy leaves the contents out."""
    with FakeCopyMode(mode):
        return copy.deepcopy(module)
