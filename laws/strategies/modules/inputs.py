"""What a generated root is called with: its parameters as text, arguments for several calls, the dynamic dimensions.

One idea: one table; each kind of argument has its text, what a body reads in it, its values, and which of its tensors
have a dynamic first dimension, in the form that the exporter wants.  Nothing here writes bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen

from .support import Pair

__all__ = ["KINDS", "InputKind", "arguments", "dynamic_shapes", "parameters"]

Fill = Callable[..., torch.Tensor]
"""Makes a tensor of three columns, or one of the shape it is given."""


@frozen
class InputKind:
    """A kind of argument."""

    reads: tuple[str, ...]
    """The tensors of three columns in it, below its name."""
    make: Callable[[Fill], Any]
    shapes: Callable[[Any], Any]
    """What ``dynamic_shapes`` has for it, given what it has for one tensor."""
    is_keyword: bool = False
    vector: bool = False
    """Whether it is three numbers."""


KINDS = (
    InputKind(("{0}",), lambda fill: fill(), lambda rows: rows),
    InputKind(('{0}["a"]',), lambda fill: {"a": fill(), "none": None, "k": 2}, lambda rows: {"a": rows, "none": None, "k": None}),
    InputKind(("{0}[0]", "{0}[1][0]"), lambda fill: (fill(), [fill(), True]), lambda rows: (rows, [rows, None])),
    # The exporter knows a dataclass by the list of its fields that are not None.
    InputKind(("{0}.left",), lambda fill: Pair(fill(), None), lambda rows: [rows]),
    InputKind((), lambda _: 2.5, lambda _: None),
    InputKind((), lambda _: None, lambda _: None),
    InputKind(("{0}",), lambda fill: fill(), lambda rows: rows, is_keyword=True),
    InputKind(
        ('{0}["z"]', '{0}["a"].right'),
        lambda fill: {"z": fill(), "a": Pair("text", fill())},
        lambda rows: {"z": rows, "a": [None, rows]},
        is_keyword=True,
    ),
    InputKind((), lambda fill: fill(3), lambda _: None, vector=True),
)


def _ordered(inputs: tuple[int, ...]) -> list[tuple[str, InputKind]]:
    named = [(f"i{index}", KINDS[kind]) for index, kind in enumerate(inputs)]
    return sorted(named, key=lambda pair: pair[1].is_keyword)


def parameters(inputs: tuple[int, ...]) -> tuple[str, list[str], list[str]]:
    """Return the parameters of a root as text, what it reads in them, and which of them are three numbers.

    Args:
        inputs: the kinds of the arguments after ``x``.

    >>> parameters((6, 1))
    ('self, x, i1, *, i0', ['i1["a"]', 'i0'], [])
    """
    named = _ordered(inputs)
    names = ["self", "x", *[name for name, kind in named if not kind.is_keyword]]
    keywords = [name for name, kind in named if kind.is_keyword]
    reads = [read.format(name) for name, kind in named for read in kind.reads]
    return ", ".join([*names, *(["*", *keywords] if keywords else [])]), reads, [name for name, kind in named if kind.vector]


def arguments(inputs: tuple[int, ...], *, seed: int, rows: int, grads: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments for one call.

    Args:
        inputs: the kinds of the arguments after ``x``.
        seed: of the numbers in them.
        rows: the size of the first dimension.
        grads: whether tensors want gradients.

    >>> [len(part) for part in arguments((6, 1), seed=0, rows=2, grads=False)]
    [2, 1]
    """
    source = torch.Generator().manual_seed(seed)

    def fill(*shape: int) -> torch.Tensor:
        return torch.randn(shape or (rows, 3), generator=source).requires_grad_(grads)

    named = _ordered(inputs)
    positional = (fill(), *[kind.make(fill) for _, kind in named if not kind.is_keyword])
    return positional, {name: kind.make(fill) for name, kind in named if kind.is_keyword}


def dynamic_shapes(inputs: tuple[int, ...]) -> dict[str, Any]:
    """Return what the exporter is told when the first dimension of all tensors of three columns is dynamic.

    Args:
        inputs: the kinds of the arguments after ``x``.

    >>> list(dynamic_shapes((6, 1)))
    ['x', 'i1', 'i0']
    """
    rows = {0: torch.export.Dim("n", min=2, max=16)}
    return {"x": rows, **{name: kind.shapes(rows) for name, kind in _ordered(inputs)}}
