"""Floating point operations of one operator, as torch's counter counts them.

One idea: the operator is run on tensors without contents under ``torch.utils.flop_counter``, which knows formulas for some
operators and what others are made of.  What it has no formula for is unknown, and not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from purefx.ir.arguments import Arg, Body, Ref, thawed
from purefx.ir.graph import Graph
from purefx.ir.meta import Meta
from purefx.ir.node import Node, Op
from purefx.ir.numbers import too_much_work
from purefx.ir.torch_private import size_number

__all__ = ["FlopCounter"]


class Unknown(Exception):
    """A value among the arguments of an operator is not known."""


class FlopCounter:
    """Counts operators of one program; equal calls are counted once and remembered."""

    def __init__(self) -> None:
        self._known: dict[Any, int | None] = {}

    def graph(self, graph: Graph) -> list[int | None]:
        """Return the operations of each node of a graph; None for what is not known.

        Args:
            graph: its nodes and inputs carry fake values in meta, as far as they are known.
        """
        values = {formal.name: _value(formal.meta) for formal in graph.inputs}
        values.update((node.name, _value(node.meta)) for node in graph.nodes)
        with torch.no_grad():
            return [self._node(node, values) for node in graph.nodes]

    def _node(self, node: Node, values: Mapping[str, Any]) -> int | None:
        do = node.do
        if type(do) is not Op or do.target is None or do.effects.unknown or do.effects.through_bodies:
            return None
        try:
            args = [_described(arg, values) for arg in node.args]
            kwargs = [(key, _described(arg, values)) for key, arg in node.kwargs]
            key = (do.name, repr(args), repr(kwargs))
        except (Unknown, ValueError):  # Python refuses to write integers of very many digits
            return None
        if too_much_work(do.target, args) is not None or not _holds_shape([args, [arg for _, arg in kwargs]]):
            return None  # what takes no tensor would fill real memory, print, or draw
        if key not in self._known:
            self._known[key] = _counted(do.target, args, kwargs)
        return self._known[key]


class _Shape:
    """A tensor as far as a count needs it."""

    def __init__(self, value: torch.Tensor) -> None:
        sizes = [size if type(size) is int else size_number(size) for size in value.shape]
        if None in sizes:
            raise Unknown
        self.sizes = tuple([int(size) for size in sizes if size is not None])
        self.dtype = value.dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{self.sizes}"


def _value(meta: Meta) -> Any:
    return meta.get("val")


def _described(arg: Arg, values: Mapping[str, Any]) -> Any:
    def leaf(part: Arg) -> Any:
        if type(part) is Body:
            raise Unknown
        return _described_value(values.get(part.name)) if type(part) is Ref else part

    return thawed(arg, leaf)


def _described_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Shape(value)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        value = size_number(value)
    if isinstance(value, tuple | list):
        # A named tuple cannot be made of a list.
        return (list if isinstance(value, list) else tuple)([_described_value(part) for part in value])
    if value is None:
        raise Unknown
    return value


def _counted(target: Any, args: list[Any], kwargs: list[tuple[str, Any]]) -> int | None:
    from torch.utils.flop_counter import FlopCounterMode  # here, because importing it takes long and few count

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            target(*[_made(arg) for arg in args], **{key: _made(arg) for key, arg in kwargs})
    except Exception:  # noqa: BLE001  it has no kernel for tensors without contents, or refuses its arguments in its own way
        return None
    counts = counter.get_flop_counts().get("Global")
    return int(sum(counts.values())) if counts else None


def _holds_shape(arg: Any) -> bool:
    if type(arg) in (list, tuple):
        return any(map(_holds_shape, arg))
    return any(map(_holds_shape, arg.values())) if type(arg) is dict else type(arg) is _Shape


def _made(arg: Any) -> Any:
    if type(arg) is _Shape:
        return torch.empty(arg.sizes, dtype=arg.dtype, device="meta")
    if isinstance(arg, torch.device):
        return torch.device("meta")
    if type(arg) in (list, tuple):
        return type(arg)([_made(part) for part in arg])
    return {key: _made(part) for key, part in arg.items()} if type(arg) is dict else arg
