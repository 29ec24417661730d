"""Whether results of collectives share memory with operands; two processes import this, and none of the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.communication.talking import operators

VALUES: dict[str, Any] = {
    "reduce_op": "sum", "reduceOp": "sum", "group_name": "0", "pg_name": "0", "group_size": 2, "tag": "", "ranks": [0, 1],
    "src": 0, "output_split_sizes": [2, 2], "input_split_sizes": [2, 2], "gather_dim": 0, "shard_dim": 1, "seq_dim": 0,
}  # fmt: skip


def sharing(names: list[str]) -> list[tuple[str, bool]]:
    """Return for each operator whether a result of it shares memory with an operand."""
    operators()
    return [(name, _shares(name)) for name in names]


def _shares(name: str) -> bool:
    space, _, short = name.partition(".")
    target: Any = getattr(getattr(torch.ops, space), short.removesuffix(".default")).default
    kinds = [(argument.name, str(argument.type)) for argument in target._schema.arguments]
    args = [
        [torch.ones(4, 4), torch.ones(4, 4)]
        if kind == "List[Tensor]"
        else torch.ones(4, 4)
        if kind == "Tensor"
        else VALUES[name]
        for name, kind in kinds
    ]
    given = target(*args)
    mine, theirs = _memory(given), _memory(args)
    for one in pytree.tree_leaves(given):
        torch.ops._c10d_functional.wait_tensor(one)
    return not mine.isdisjoint(theirs)


def _memory(values: Any) -> set[int]:
    return {
        one.untyped_storage().data_ptr()
        for one in pytree.tree_leaves(values)
        if isinstance(one, torch.Tensor)
    }
