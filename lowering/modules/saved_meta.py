"""Meta of a program as plain data for pickling, and what counts as data at all.

Data is what nothing but torch and Python have methods for.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, frozen
from torch.fx.immutable_collections import immutable_dict, immutable_list

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.graph import Graph
from ...ir.meta import EMPTY_META, Meta, freeze, thaw
from ...ir.persistent import PMap
from ...ir.program import Program
from ...ir.torch_private import FakeTensorMode

__all__ = ["foreign_class", "read_meta", "write_meta"]

SCALARS = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip

SEQUENCES = frozenset({tuple, list, torch.Size, immutable_list, set, frozenset})

MAPPINGS = frozenset({dict, OrderedDict, immutable_dict})

TORCHS = (torch.Tensor, torch.Generator, torch.ScriptObject, torch.fx.Proxy, *SYMBOLIC)

CALLED = (
    "getitem", "iter", "len", "contains", "add", "radd", "sub", "rsub", "mul", "rmul", "matmul", "rmatmul", "mod", "rmod", "pow",
    "rpow", "truediv", "rtruediv", "floordiv", "rfloordiv", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift",
    "rshift", "rrshift", "neg", "pos", "abs", "invert", "index", "int", "float", "complex", "bool", "round", "trunc", "floor",
    "ceil", "eq", "ne", "lt", "le", "gt", "ge", "getattribute", "getattr", "format", "str", "hash", "torch_function",
)  # fmt: skip
"""Methods, without their underscores, that functions on data call."""


def foreign_class(value: Any, also: tuple[type, ...]) -> type | None:
    """Return the class of the first object in a value that is no data, or None.

    Args:
        value: what a caller passes.
        also: classes that are accepted besides.

    >>> foreign_class(([1, torch.ones(2)], {"a": None}), ()), foreign_class([object()], ()), foreign_class(object(), (object,))
    (None, <class 'object'>, None)
    """
    todo = [value]
    while todo:
        part = todo.pop()
        kind: Any = type(part)
        if kind in SCALARS or isinstance(part, TORCHS) or kind.__module__ == "numpy":
            continue
        if kind in MAPPINGS:
            todo += [*part.keys(), *part.values()]
        elif kind in SEQUENCES or (isinstance(part, tuple) and _is_plain(kind)):
            todo.extend(part)
        elif not isinstance(part, also):
            return kind
    return None


@functools.lru_cache(maxsize=256)
def _is_plain(kind: type) -> bool:
    # Named tuples, which torch's operators give and callers pass: a tuple with names and no methods of its own.
    above = kind.__mro__[: -len(tuple.__mro__)]
    return not any(f"__{name}__" in vars(part) for part in above for name in CALLED)


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
