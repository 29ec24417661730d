"""The functions that a script brings along: their source is copied into it, so each uses nothing but torch.

What a script does with them, and what is made for one program, is in ``script.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["attach", "difference", "differences", "observed"]


def attach(root: torch.nn.Module, path: str, value: Any, *, persistent: bool = True) -> None:
    """Register a tensor under a path with dots, in modules that are made on the way.

    Args:
        root: the module that has it below.
        path: where.
        value: a parameter, or a tensor that becomes a buffer.
        persistent: whether ``state_dict`` has it.

    >>> attach(module := torch.nn.Module(), "a.w", torch.ones(1))
    >>> list(module.state_dict())
    ['a.w']
    """
    *way, name = path.split(".")
    for part in way:
        if part not in dict(root.named_children()):
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    if isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent=persistent)


def observed(module: torch.nn.Module, arguments: Callable[[int], list[Any]], *, calls: int) -> list[tuple[str, Any]]:
    """Return what is seen of a module over several calls: results, arguments afterwards, and its state at the end.

    Args:
        module: it is called, and so may change.
        arguments: makes those of a call.
        calls: how many.

    >>> observed(torch.nn.ReLU(), lambda call: [torch.ones(1)], calls=1)[0]
    ('call 0, results', tensor([1.]))
    """
    seen: list[tuple[str, Any]] = []
    for call in range(calls):
        torch.manual_seed(call)
        given = arguments(call)
        with torch.no_grad():
            seen.append((f"call {call}, results", module(*given)))
        seen.append((f"call {call}, arguments afterwards", given))
    return [*seen, *module.named_parameters(), *module.named_buffers()]


def difference(given: Any, expected: Any) -> str | None:
    """Return how two values differ, or None: tensors in dtype, shape and bits, containers in what they hold.

    Args:
        given: what there is.
        expected: what there should be.

    >>> difference([torch.ones(2)], [torch.tensor([1.0, 3.0])])
    'up to 2'
    """
    if isinstance(expected, (list, tuple)) and type(given) is type(expected) and len(given) == len(expected):
        found = [difference(mine, theirs) for mine, theirs in zip(given, expected, strict=True)]
        return next((one for one in found if one is not None), None)
    if not isinstance(given, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return None if given == expected else f"{given!r} in the place of {expected!r}"
    if (given.dtype, given.shape) != (expected.dtype, expected.shape):
        return f"{given.dtype} of {list(given.shape)} in the place of {expected.dtype} of {list(expected.shape)}"
    if torch.allclose(given, expected, rtol=0, atol=0, equal_nan=True):
        return None
    wide = torch.complex128 if given.is_complex() else torch.float64
    return f"up to {(given.to(wide) - expected.to(wide)).abs().max().item():.6g}"


def differences(given: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> list[str]:
    """Return a line for each thing that differs.

    Args:
        given: what was seen of one module.
        expected: what was seen of another.

    >>> differences([("w", torch.ones(1))], [("w", torch.zeros(1)), ("v", torch.zeros(1))])
    ['w: up to 1', 'v: it is gone']
    """
    there = dict(given)
    found = [(name, difference(there[name], value) if name in there else "it is gone") for name, value in expected]
    return [f"{name}: {said}" for name, said in found if said is not None]
