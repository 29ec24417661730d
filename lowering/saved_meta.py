"""Meta of a program as plain data, for pickling, and back.

One idea: strings, numbers and containers of them are kept as they are; a fake tensor is written as what it is (dtype, sizes,
strides, device) and made again when somebody reads it.  What is neither, a symbolic size among them, is left out.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, frozen

from ..ir.graph import Graph
from ..ir.meta import EMPTY_META, Meta, freeze, thaw
from ..ir.persistent import PMap
from ..ir.program import Program
from ..ir.torch_private import FakeTensorMode

__all__ = ["read_meta", "write_meta"]

PLAIN = (str, int, float, bool, type(None), torch.dtype, torch.device)

VALUES = ("val", "tensor_meta")

Written = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""The meta of the inputs and of the nodes of a graph."""


class Lost(Exception):
    """A value has no plain form."""


@frozen
class Fake:
    """What a fake tensor is."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str

    def __reduce__(self) -> tuple[Any, ...]:
        return read_fake, (self.dtype, self.shape, self.strides, self.device)

    def make(self, mode: Any) -> torch.Tensor:
        """Return a fake tensor like the one that was written."""
        with mode:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)


def read_fake(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], device: str) -> Fake:
    """Return what a fake tensor was."""
    return Fake(dtype, shape, strides, device)


def write_meta(program: Program, shared: Container[str] = ()) -> dict[str, Written]:
    """Return the meta of all graphs as plain data.

    Args:
        program: whose meta it is.
        shared: ids of graphs that several modules run, on values that may differ; their fake values are left out.
    """
    known: dict[str, str] = {}  # equal stack traces become one string
    return {
        name: (
            [_plain_meta(formal.meta, known, values=name not in shared) for formal in program.graphs[name].inputs],
            [_plain_meta(node.meta, known, values=name not in shared) for node in program.graphs[name].nodes],
        )
        for name in program.order
    }


def _plain_meta(meta: Meta, known: dict[str, str], *, values: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in meta.items():
        if key in VALUES and not values:
            continue
        try:
            plain = _plain(thaw(value))
        except Lost:
            continue
        found[key] = known.setdefault(plain, plain) if type(plain) is str else plain
    return found


def _plain(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return _fake(value)
    if type(value) in (tuple, list, frozenset, set):
        return type(value)([_plain(part) for part in value])
    if type(value) is dict:
        return {_plain(key): _plain(part) for key, part in value.items()}
    raise Lost


def _fake(value: torch.Tensor) -> Fake:
    if value.layout is not torch.strided or not all(type(size) is int for size in (*value.shape, *value.stride())):
        raise Lost
    return Fake(value.dtype, tuple(value.shape), tuple(value.stride()), str(value.device))


def read_meta(program: Program, written: Mapping[str, Written]) -> PMap[str, Graph]:
    """Return the graphs of a program with the meta that was written of them."""
    mode = FakeTensorMode()
    graphs = program.graphs
    for name, (inputs, nodes) in written.items():
        graph = graphs[name]
        formals = [evolve(formal, meta=SavedMeta(meta, mode)) for formal, meta in zip(graph.inputs, inputs, strict=True)]
        steps = [evolve(node, meta=SavedMeta(meta, mode)) for node, meta in zip(graph.nodes, nodes, strict=True)]
        graphs = graphs.set(name, evolve(graph, inputs=tuple(formals), nodes=tuple(steps)))
    return graphs


class SavedMeta(Mapping[str, Any]):
    """Meta that was saved; fake tensors are made when they are read, each once."""

    def __init__(self, written: Mapping[str, Any] = EMPTY_META, mode: Any = None) -> None:
        self._written = written
        self._mode = mode
        self._made: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._made:
            self._made[key] = freeze(self._read(self._written[key]))
        return self._made[key]

    def _read(self, value: Any) -> Any:
        if isinstance(value, Fake):
            return value.make(self._mode)
        if type(value) in (tuple, list):
            return type(value)([self._read(part) for part in value])
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)
