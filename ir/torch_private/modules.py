"""Private names of torch for modules and tensors: the dicts that hold state and children, hooks, memory.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

__all__ = [
    "blank_module", "buffers_dict", "child_of", "children_dict", "hooks_of", "parameters_dict", "state_of",
    "storage_key", "uncompiled", "unsaved_buffers", "window_on",
    "with_hooks_of",
]  # fmt: skip


Module = TypeVar("Module", bound=torch.nn.Module)


def blank_module(kind: type[Module], **attributes: Any) -> Module:
    """Return a module of a class with what ``torch.nn.Module.__init__`` sets, empty containers of its own and flags, and more.

    A fifth of the time that ``__init__`` takes, which sets each through ``__setattr__``.

    Args:
        kind: the class, whose own ``__init__`` does not run.
        attributes: what else its ``__dict__`` holds.
    """
    made = _BLANK.copy()
    for name, container in _CONTAINERS:
        made[name] = container()
    made.update(attributes)
    module = kind.__new__(kind)
    object.__setattr__(module, "__dict__", made)
    return module


_BLANK = dict(torch.nn.Module().__dict__)

_CONTAINERS = [(name, type(value)) for name, value in _BLANK.items() if isinstance(value, dict | set)]


def children_dict(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """Return the dict that holds a module's children; ``add_module`` refuses names that a class uses (``graph``)."""
    return module._modules


def parameters_dict(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the dict that holds a module's parameters; ``register_parameter`` scans and refuses likewise."""
    return module._parameters


def buffers_dict(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the dict that holds a module's buffers."""
    return module._buffers


def uncompiled(module: Any) -> Any:
    """Return the module that ``torch.compile`` was given, any other module itself.

    A compiled module takes ``*args, **kwargs`` whatever the module takes, and no public name leads from it to that one.
    """
    return module._orig_mod if "_orig_mod" in getattr(module, "_modules", ()) else module


def unsaved_buffers(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's buffers that are not persistent."""
    return module._non_persistent_buffers_set


def child_of(module: Any, name: str) -> Any:
    """Return a child of a module, or a view that stands beside its children.

    ``getattr`` fails before it asks ``Module.__getattr__``, which takes five times as long.
    """
    children = module._modules
    return children[name] if name in children else getattr(module, name)


def state_of(module: Any, name: str) -> Any:
    """Return a parameter or buffer of a module, or what ``getattr`` finds: a constant, something parametrized."""
    own = module._parameters
    if name in own:
        return own[name]
    own = module._buffers
    return own[name] if name in own else getattr(module, name)


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number that two tensors share when they share memory; ``data_ptr()`` is 0 for meta and empty tensors.

    >>> a = torch.ones(4)
    >>> storage_key(a) == storage_key(a[1:]), storage_key(a) == storage_key(a.clone())
    (True, False)
    """
    return cast(int, cast(Any, tensor.untyped_storage())._cdata)


def window_on(memory: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor that looks at memory as another one looks at its own: dtype, place, strides, and what is done on reading.

    That a tensor is a conjugate or a negative may be a bit of it and not written in memory; no public name sets the second.

    Args:
        memory: what it looks at.
        like: strided; it shall need no gradient.

    >>> z = torch.tensor([1 + 2j]).conj()
    >>> window_on(z.untyped_storage().clone(), z).tolist(), window_on(z.untyped_storage().clone(), z.imag).tolist()
    ([(1-2j)], [-2.0])
    """
    found = torch.empty(0, dtype=like.dtype, device=memory.device)
    found.set_(cast(Any, memory), like.storage_offset(), like.shape, like.stride())
    if like.is_conj():
        found = found.conj()
    if like.is_neg():
        found = cast(Any, torch)._neg_view(found)
    return found.detach()


def hooks_of(module: torch.nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that run when a module is called."""
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return [hook for hooks in kinds for hook in hooks.values()]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOW = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
"""Which of them, by number, take keyword arguments, or run after an error."""


def with_hooks_of(module: Module, other: torch.nn.Module) -> Module:
    """Return a stand-in for one call of a module, during which the hooks of another one run as well and are told the other.

    >>> doubled, said = torch.nn.Linear(1, 1), torch.nn.ReLU()
    >>> handle = said.register_forward_hook(lambda module, args, result: print(type(module).__name__))
    >>> _ = with_hooks_of(doubled, said)(torch.ones(1))
    ReLU
    """
    made = module.__class__.__new__(module.__class__)
    attributes, theirs = made.__dict__, other.__dict__
    attributes.update(module.__dict__)
    for name in _HOOKS:
        attributes[name] = {**attributes[name], **{number: _told(other, hook) for number, hook in theirs[name].items()}}
    for name in _HOW:
        attributes[name] = {**attributes[name], **theirs[name]}
    attributes["_is_full_backward_hook"] = theirs["_is_full_backward_hook"]
    return made


def _told(module: torch.nn.Module, hook: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *rest: hook(module, *rest)
