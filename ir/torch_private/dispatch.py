"""Private names of torch for how Python reaches the dispatcher, and who looks on when it does.

A name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from .operators import OpOverload

__all__ = ["NEURAL_FUNCTIONS", "entry_of", "is_undisturbed", "sees_functions"]

_C: Any = cast(Any, torch)._C

NEURAL_FUNCTIONS: Any = _C._nn
"""The functions that torch generates for operators of neural networks; ``torch.nn.functional`` has some of them as they are."""

sees_functions: Callable[[], bool] = _C._is_torch_function_mode_enabled
"""Says whether a ``TorchFunctionMode`` is told of calls; the public ``has_torch_function`` asks for a tuple of values besides."""

_keys: Callable[[], Any] = _C._dispatch_tls_local_include_set


def _ordinary() -> frozenset[int]:
    without_gradients = _C.DispatchKeySet(_C.DispatchKey.BackendSelect)
    return frozenset(keys.raw_repr() for keys in (without_gradients, without_gradients.add(_C.DispatchKey.ADInplaceOrView)))


_ORDINARY = _ordinary()


def is_undisturbed() -> bool:
    """Return whether this thread's operators go to their kernels: no dispatch mode, no tracer, no transformation of torch.func.

    There is no public way to ask for all of them.  Gradient modes, inference mode and autocast do not count.

    >>> is_undisturbed(), torch.func.vmap(lambda x: x * is_undisturbed())(torch.ones(1))
    (True, tensor([0.]))
    """
    return _keys().raw_repr() in _ORDINARY


def entry_of(overload: Any) -> Callable[..., Any]:
    """Return what an overload calls, and nothing else: a fifth of the time of an operator is the call around it in Python.

    >>> entry_of(torch.ops.aten.relu.default)(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return cast("Callable[..., Any]", overload._op) if type(overload) is OpOverload else overload
