"""Runs collectives in a process of ``Pair`` and says which of them give what shares memory with what they were given."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purefx.ir.effects.schema import FUNCTIONAL, RAW
from purefx.ir.torch_private import resolve_operator

__all__ = ["operators", "sharing"]

VALUES: dict[str, Any] = {
    "reduce_op": "sum", "reduceOp": "sum", "group_name": "0", "pg_name": "0", "group_size": 2, "tag": "", "ranks": [0, 1],
    "src": 0, "output_split_sizes": [2, 2], "input_split_sizes": [2, 2], "gather_dim": 0, "shard_dim": 1, "seq_dim": 0,
}  # fmt: skip


def operators() -> list[Any]:
    """Return all overloads of the namespaces that talk, those that torch registers late too."""
    for name in ("_functional_collectives", "_symmetric_memory", "tensor.experimental._context_parallel._cp_custom_ops"):
        import_module(f"torch.distributed.{name}")
    names = [name.replace("::", ".").split(".") for name in sorted(torch._C._dispatch_get_all_op_names())]
    found = [resolve_operator(space, name, (*rest, "default")[0]) for space, name, *rest in names if space in FUNCTIONAL | RAW]
    return [each for each in found if each is not None]


def sharing(names: list[str]) -> list[tuple[str, bool]]:
    """Return for each operator whether a result of it shares memory with an operand."""
    operators()
    return [(name, _shares(name)) for name in names]


def _shares(name: str) -> bool:
    space, _, short = name.partition(".")
    target: Any = getattr(getattr(torch.ops, space), short.removesuffix(".default")).default
    kinds = [(argument.name, str(argument.type)) for argument in target._schema.arguments]
    args = [
        [torch.ones(4, 4), torch.ones(4, 4)] if kind == "List[Tensor]" else torch.ones(4, 4) if kind == "Tensor" else VALUES[name]
        for name, kind in kinds
    ]
    given = target(*args)
    mine, theirs = _memory(given), _memory(args)
    for one in pytree.tree_leaves(given):
        torch.ops._c10d_functional.wait_tensor(one)
    return not mine.isdisjoint(theirs)


def _memory(values: Any) -> set[int]:
    return {one.untyped_storage().data_ptr() for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor)}
