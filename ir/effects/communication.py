"""Operators that talk to other processes: in order within their process group, and done when they have been waited for.

One idea: what a collective gives, and what it was given, is in use until ``wait_tensor``; so its result counts as an alias of its
operands, and the wait as what completes it.  Schemas say nothing of either.
"""

from __future__ import annotations

from typing import Any

from .declared import COMMUNICATION, ArgAt, Effects

__all__ = ["effects_of_communication", "is_communication"]

FUNCTIONAL = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor"})
"""Collectives that give a tensor to wait for."""

RAW = frozenset({"c10d", "symm_mem"})
"""Those that write into what they are given, whatever the schema says, and give a handle or nothing."""

SILENT = frozenset({"mesh_get_process_group"})
"""What only looks a group up."""

GROUP = "group_name"
"""The argument that names the process group; older operators spell it out as ranks, and are in order with every group."""

FILLS = {"irecv": ("tensor", "self"), "batch_p2p_ops": ("tensors",)}
"""What is received into."""


def is_communication(schema: Any) -> bool:
    """Say whether an operator talks to other processes.

    >>> import torch
    >>> from ..torch_private import schema_of
    >>> is_communication(schema_of(torch.ops.aten.relu.default))
    False
    """
    space, _, name = schema.name.partition("::")
    return (space in FUNCTIONAL or space in RAW) and name not in SILENT


def effects_of_communication(schema: Any, places: tuple[ArgAt, ...]) -> Effects:
    """Return what such an operator does.

    Args:
        schema: its schema.
        places: its arguments.
    """
    space, _, name = schema.name.partition("::")
    tensors = tuple(at for at, argument in zip(places, schema.arguments, strict=True) if "Tensor" in str(argument.type))
    if name == "wait_tensor":
        return Effects(aliases=tensors, completes=tensors)
    if name == "_wrap_tensor_autograd":
        return Effects(aliases=tensors)
    group = next((at for at in places if at.name == GROUP), None)
    written = tuple(
        at
        for at, argument in zip(places, schema.arguments, strict=True)
        if at.name in FILLS.get(name, ()) or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    return Effects(writes=written, aliases=tensors, domain=COMMUNICATION, group=group, unknown=space in RAW)
