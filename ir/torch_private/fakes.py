"""Private names of torch for fake tensors: the type, its mode, what operators refuse.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

__all__ = [
    "FAKE_REFUSALS",
    "FakeTensor",
    "FakeTensorMode",
    "fake_copy",
    "has_fixed_sizes",
    "have_fixed_sizes",
    "is_refusal",
    "silence",
    "without_kernels",
    "without_overrides",
]


FAKE_REFUSALS = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
"""What operators raise that can not say what they give without the contents of tensors."""


def fake_copy(module: torch.fx.GraphModule, mode: Any) -> torch.fx.GraphModule:
    """Return a copy of a module with fake tensors in the places of its own; no public copy leaves the contents out."""
    with FakeCopyMode(mode):
        return copy.deepcopy(module)


def is_refusal(error: BaseException) -> bool:
    """Say whether an operator raised an error because fake values do not tell what it gives, and not because they are wrong.

    >>> is_refusal(NotImplementedError()), is_refusal(RuntimeError("sizes do not match"))
    (True, False)
    """
    # One is looked up by name: its module takes long to import, and who raises it has imported it.  An operator that was made
    # with torch.library.custom_op and has no fake kernel raises a plain RuntimeError.
    known = (*FAKE_REFUSALS, UnsupportedOperatorException, NotImplementedError)
    if isinstance(error, known) or type(error).__name__ == "GuardOnDataDependentSymNode":
        return True
    return isinstance(error, RuntimeError) and str(error).startswith("There was no fake impl registered")


@contextmanager
def without_kernels(mode: Any) -> Generator[None, None, None]:
    """Keep a mode from running real kernels, on zeros, for operators that have no fake one; no public switch does."""
    before = mode.allow_fallback_kernels
    mode.allow_fallback_kernels = False
    try:
        yield
    finally:
        mode.allow_fallback_kernels = before


@contextmanager
def silence() -> Generator[None, None, None]:
    """Keep what this thread does with fake tensors out of torch's log."""
    # torch logs a traceback for every operator that refuses its arguments; other threads may want to read theirs.
    mine, logger = threading.get_ident(), logging.getLogger(FakeTensorMode.__module__)

    def is_theirs(record: logging.LogRecord) -> bool:
        return record.thread != mine

    logger.addFilter(is_theirs)
    try:
        yield
    finally:
        logger.removeFilter(is_theirs)


def has_fixed_sizes(tensor: Any) -> bool:
    """Say whether sizes and strides of a fake tensor are plain numbers, so that comparing them installs no guard.

    Asking each number for its type, the public way, costs five times what is compared.

    >>> import torch
    >>> has_fixed_sizes(torch.ones(2))
    True
    """
    return not tensor._has_symbolic_sizes_strides


def have_fixed_sizes(tensors: Iterable[Any]) -> bool:
    """Say the same of many, in one pass without a call of a function for each.

    >>> import torch
    >>> have_fixed_sizes([torch.ones(2), torch.ones(3)])
    True
    """
    return True not in map(_is_symbolic, tensors)


_is_symbolic = attrgetter("_has_symbolic_sizes_strides")

without_overrides = torch._C.DisableTorchFunctionSubclass
"""A block in which an attribute of a tensor is read without asking its class for ``__torch_function__``: half of the time that
reading takes.  It holds for one thread."""
