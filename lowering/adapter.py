"""Flat-argument adapters: what makes arguments that are nested differently into the exported ones.

One idea: an adapter is asked only when the arguments do not fit; what it gives back is checked like any other call, under
the names that it gives.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from ..ir.errors import InputError, InputValueError
from ..ir.torch_private import pytree

__all__ = ["adapted"]


def adapted(root: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the flat inputs of a call of a root with an adapter, checked.

    Args:
        root: a lowered root; its ``flat_args_adapter`` is a ``torch.export.FlatArgsAdapter``.
        args: as the caller gave them.
        kwargs: as the caller gave them.

    Raises:
        InputError: the adapter gave another number of leaves than the program takes.
        InputValueError: a leaf has a wrong type, shape, dtype or value, or the adapter gave another number of paths.
    """
    plan, adapter = root.purefx_plan, root.flat_args_adapter
    try:
        values = plan.bound(args, kwargs)
    except InputError:
        values = None
    if values is not None:
        return list(plan.checked(values))
    leaves, spec = pytree.tree_flatten((args, _ordered(kwargs, plan)))
    found = adapter.adapt(
        target_spec=plan.in_spec,
        input_spec=spec,
        input_args=leaves,
        metadata={**root.meta, "unflattened_module": root},
        obj=args,
    )
    count = plan.checks.count
    if not isinstance(found, list | tuple) or len(found) != count:
        got = f"{len(found)} of them" if isinstance(found, list | tuple) else f"a {type(found).__name__}"
        raise InputError(
            f"the program takes {count} flat arguments ({', '.join(plan.checks.paths)}); {_name(adapter)} gave {got}"
        )
    return list(_checked(root, found))


def _checked(root: torch.nn.Module, leaves: Any) -> Any:
    plan: Any = root.purefx_plan
    paths = list(getattr(root.flat_args_adapter, "get_flat_arg_paths", list)())
    if not paths:
        return plan.checked(leaves)
    if len(paths) != len(leaves):
        adapter = _name(root.flat_args_adapter)
        raise InputValueError(f"{adapter}.get_flat_arg_paths() gave {len(paths)} paths for {len(leaves)} flat arguments")
    checks = copy.copy(plan.checks)
    checks.paths = paths
    return plan.checked(leaves, checks)


def _ordered(kwargs: Mapping[str, Any], plan: Any) -> dict[str, Any]:
    # Keyword arguments that the program knows come in its order, as for the peer.
    known = {name: kwargs[name] for name in plan.keyword if name in kwargs} if plan.in_spec is not None else {}
    return {**known, **kwargs}


def _name(adapter: Any) -> str:
    return type(adapter).__name__
