"""Private names of torch for modes that nodes of a graph switch, and for their restoration after an error.

Each name has a type and a reason here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import torch
from torch.autograd import forward_ad

from .operators import OpOverload

__all__ = [
    "NEURAL_FUNCTIONS", "Modes", "base_of", "current_modes", "entry_of", "is_in_level", "is_undisturbed", "mode_objects",
    "mode_stacks", "outside_of_levels", "own_functions", "restore_modes", "sees_functions", "without_levels",
]  # fmt: skip


# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


_C: Any = cast(Any, torch)._C

NEURAL_FUNCTIONS: Any = _C._nn
"""The functions that torch generates for operators of neural networks; ``torch.nn.functional`` exports some of them."""

sees_functions: Callable[[], bool] = _C._is_torch_function_mode_enabled
"""Return whether a ``TorchFunctionMode`` intercepts calls; the public ``has_torch_function`` needs a tuple of values as well."""

_keys: Callable[[], Any] = _C._dispatch_tls_local_include_set


_NO_GRADIENTS: Any = _C.DispatchKeySet(_C.DispatchKey.BackendSelect)
_ORDINARY = {
    keys.raw_repr() for keys in (_NO_GRADIENTS, _NO_GRADIENTS.add(_C.DispatchKey.ADInplaceOrView))
}


def is_undisturbed() -> bool:
    """Return whether this thread's operators go to their kernels: no dispatch mode, no tracer, no transformation of torch.func.

    No public function checks all of them.  Gradient modes, inference mode and autocast do not count.

    >>> is_undisturbed(), torch.func.vmap(lambda x: x * is_undisturbed())(torch.ones(1))
    (True, tensor([0.]))
    """
    return _keys().raw_repr() in _ORDINARY


def entry_of(overload: Any) -> Callable[..., Any]:
    """Return the function that an overload calls; the Python call around it takes a fifth of an operator's time.

    >>> entry_of(torch.ops.aten.relu.default)(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return cast("Callable[..., Any]", overload._op) if type(overload) is OpOverload else overload


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor of which autograd considers another a view; None if it is not a view, like the result of ``detach``.

    >>> x = torch.ones(2)
    >>> base_of(x[:1]) is x, base_of(x), base_of(x[:1].detach())
    (True, None, None)
    """
    return tensor._base


KEPT = ("torch._higher_order_ops.", "torch._functorch.", "torch._library.")
"""The modules in which torch implements gradients of operators in Python; exported programs keep those operators."""


def own_functions(results: Iterable[torch.Tensor]) -> list[str]:
    """Return the names of the ``torch.autograd.Function`` classes in the gradient of some tensors.

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
    todo, seen = [result.grad_fn for result in results], {None}
    while todo:
        node: Any = todo.pop()
        if node in seen:
            continue
        # torch makes the class of the node; the user's class is an attribute of it.
        kind = getattr(node, "_forward_cls", None)
        if kind is not None and not f"{kind.__module__}.".startswith(KEPT):
            found[kind.__qualname__] = None
        seen.add(node)
        todo += [function for function, _ in node.next_functions]
    return list(found)


# pyright: reportPrivateUsage=false
# This folder exists to use private names in one place.


without_levels: Any = _C._DisableFuncTorch
"""Runs operators outside of all levels of torch.func."""

_KERNELS: list[str] = list(cast(Any, torch.nn.attention)._backend_names)
_IS_USED: list[Any] = [getattr(_C, f"_get_{name}_sdp_enabled") for name in _KERNELS]
_USE: list[Any] = [getattr(_C, f"_set_sdp_use_{name}") for name in _KERNELS]


class Modes(NamedTuple):
    """The modes of this thread that nodes switch by a plain call; autocast and inference mode are left through an object."""

    grad: bool
    forward_grad: bool
    depth: int
    """How many levels of torch.func are open."""
    inplace: bool
    """Whether ``requires_grad_`` is allowed inside of torch.func."""
    hooks: str | None
    """Why hooks on saved tensors are disabled; None if they are enabled."""
    attention: tuple[bool, ...]
    """Which kernels ``scaled_dot_product_attention`` may choose."""
    priority: tuple[int, ...]
    """The order in which it tries them."""


def current_modes() -> Modes:
    """Return the modes that ``restore_modes`` restores.

    >>> current_modes().depth, current_modes().grad
    (0, True)
    """
    return Modes(
        torch.is_grad_enabled(),
        _C._is_fwd_grad_enabled(),
        _C._functorch.get_dynamic_layer_stack_depth(),
        _C._functorch.get_inplace_requires_grad_allowed(),
        _C._autograd._saved_tensors_hooks_get_disabled_error_message(),
        tuple([used() for used in _IS_USED]),
        tuple(_C._get_sdp_priority_order()),
    )


def mode_stacks() -> tuple[list[Any], list[Any]]:
    """Return the stack of function modes and that of dispatch modes, the outermost first.

    >>> mode_stacks()
    ([], [])
    """
    private: Any = torch
    functions = private.overrides._get_current_function_mode_stack()
    return functions, private.utils._python_dispatch._get_current_dispatch_mode_stack()


def mode_objects(values: Iterable[Any]) -> list[Any]:
    """Return the distinct objects among values that close a region of autocast or inference mode.

    >>> mode_objects([1, torch.ones(1)])
    []
    """
    return list(
        {
            id(value): value
            for value in values
            if isinstance(value, torch.autocast | _C._InferenceMode)
        }.values()
    )


def restore_modes(before: Modes, opened: Iterable[Any] = ()) -> None:
    """Restore modes after an error.

    Args:
        before: the modes to restore.
        opened: the mode objects that were entered since and not left, the last one first.

    >>> before = current_modes()
    >>> torch.set_grad_enabled(False) and None
    >>> restore_modes(before)
    >>> torch.is_grad_enabled()
    True
    """
    # An inference mode inside of a level of torch.func keeps the dispatcher's keys of that level, so it is left first.
    for mode in opened:
        mode.__exit__(None, None, None)
    if current_modes().depth > before.depth:
        _C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(before.depth)
    if cast(Any, forward_ad)._current_level < 0:
        with suppress(RuntimeError):  # no graph has entered the level
            _C._exit_dual_level(level=0)
    _C._set_grad_enabled(before.grad)
    _C._set_fwd_grad_enabled(before.forward_grad)
    _C._functorch.set_inplace_requires_grad_allowed(before.inplace)
    hooks = _C._autograd
    hooks._saved_tensors_hooks_enable() if before.hooks is None else hooks._saved_tensors_hooks_disable(
        before.hooks
    )
    for use, used in zip(_USE, before.attention, strict=True):
        use(used)
    _C._set_sdp_priority_order(before.priority)


def is_in_level(value: Any) -> bool:
    """Return whether a value is a tensor of a level of torch.func, which has no memory outside of the level.

    >>> torch.func.vmap(lambda x: x * is_in_level(x))(torch.ones(1)), is_in_level(torch.ones(1))
    (tensor([1.]), False)
    """
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and bool(_C._functorch.is_functorch_wrapped_tensor(value))


def outside_of_levels(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside the wrappers of torch.func levels, with any mapped dimension first.

    >>> torch.func.vmap(lambda x: x * outside_of_levels(x).dim())(torch.ones(2))
    tensor([1., 1.])
    """
    private = _C._functorch
    with without_levels():
        while private.is_functorch_wrapped_tensor(tensor):
            mapped = private.maybe_get_bdim(tensor) if private.is_batchedtensor(tensor) else 0
            inner = private.get_unwrapped(tensor)
            tensor = inner.movedim(mapped, 0) if mapped else inner
    return tensor
