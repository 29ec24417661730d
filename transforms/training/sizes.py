"""How many bytes a value takes, as an expression of sizes and at the sizes of the example.

What shares memory is not known here: a view takes what it shows.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.expression import Apply, Expr
from ...ir.importing.constraints import read_size
from ...ir.torch_private import size_number

__all__ = ["NUMBERS", "bytes_of", "example_bytes", "example_number"]

NUMBERS = (int, float, *SYMBOLIC)
"""What is a size or another number."""


def example_bytes(value: Any) -> int:
    """Return how many bytes a value takes at the sizes of the example; of a size that only a run knows, one counts.

    >>> example_bytes(torch.ones(2, 3)), example_bytes([torch.ones(2), 7]), example_bytes(None)
    (24, 16, 0)
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return 0
        return prod([example_number(size) for size in value.shape]) * value.element_size()
    if isinstance(value, tuple | list):
        parts: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return sum(map(example_bytes, parts))
    return 8 if isinstance(value, NUMBERS) else 0


def example_number(size: Any) -> int:
    """Return what a size is in the example; 1 where only a run knows.

    >>> example_number(3)
    3
    """
    if type(size) is int:
        return size
    known = size_number(size) if isinstance(size, SYMBOLIC) else size
    return 1 if known is None else int(known)


def bytes_of(value: Any) -> Expr:
    """Return how many bytes a value takes, as an expression of its sizes.

    >>> bytes_of(torch.ones(2, 3)), bytes_of(7)
    (24, 8)
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return example_bytes(value)
    sizes = [read_size(size) for size in value.shape]
    known = prod([size for size in sizes if type(size) is int]) * value.element_size()
    unknown = [size for size in sizes if type(size) is not int]
    return Apply("*", (known, *unknown)) if unknown and known else known
