"""``drawn``: a tensor of a type, with contents from a generator, for programs of whose arguments only the types are known.

Scripts bring along the source of this function, so it uses nothing but torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

NUMBERS = {"int": 1, "float": 0.5, "bool": True}
"""What is passed for a number of which nothing is known, by kind."""


def drawn(sizes: Sequence[int], dtype: torch.dtype, draw: torch.Generator) -> torch.Tensor:
    """Return a tensor with drawn contents: normally distributed numbers, or zeros and ones, which most things have an index of.

    Args:
        sizes: its shape.
        dtype: any.
        draw: the generator, which moves on.

    >>> drawn([2], torch.int64, torch.Generator().manual_seed(0))
    tensor([0, 1])
    """
    if dtype.is_complex or dtype.is_floating_point:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(list(sizes), generator=draw, dtype=wide).to(dtype)
    return torch.randint(0, 2, list(sizes), generator=draw, dtype=torch.int64).to(dtype)
