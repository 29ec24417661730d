"""Write and read the meta of nodes and inputs as JSON.

Every distinct value is written once, and a node has a row of indices of keys and values.  Plain data is kept; fake values are
written as text and recreated; other values are left out, because no meta is better than wrong
meta.  Nodes never share a fake tensor: passes identify memory by its storage.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache, reduce
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve, frozen

from ..errors import StoreError, UnsupportedProgram
from ..expression import OPERATORS, Apply, Expr, Sym, evaluate, leaves_in
from ..graph import Graph, Input, Node
from ..importing.constraints import read_expression
from ..meta import EMPTY_META, ORIGIN, Meta
from ..origins import Imported, Made, Origin
from ..persistent import PMap, pmap
from ..program import Program
from ..text.arguments import print_arg, read_arg
from ..text.contract import EXPR, print_expr, read_expr
from ..text.lexer import MAX_DEPTH, Cursor, Known
from ..text.syntax import form, listed
from ..torch_private import (
    FakeTensor,
    FakeTensorMode,
    NodeSource,
    fake_of,
    new_shape_env,
    new_symbol,
    read_node_source,
    symbol_facts,
)
from .container import misshapen

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@frozen(cache_hash=True)
class Fake:
    """A fake value: a tensor without contents, whose sizes may be symbolic."""

    dtype: torch.dtype
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    device: str
    requires_grad: bool = False


SIZES = listed(EXPR, "[]")

FAKE = form(Fake, "{dtype}{shape} strides {stride} on {device}{requires_grad?grad/}", shape=SIZES, stride=SIZES)

write_fake = lru_cache(maxsize=4096)(FAKE.write)

BIG = 2**53
"""JSON readers may round numbers from here on."""

MOST_LEAVES = 64
"""Longer expressions are refused, because sympy is slow on them."""

LIMIT = 2**63

OVER_SYMBOLS: Mapping[str, Callable[..., Any]] = {
    **{op: function for op, function in OPERATORS.items() if op != "if"},
    "max": lambda *parts: reduce(torch.sym_max, parts),
    "min": lambda *parts: reduce(torch.sym_min, parts),
    "and": lambda *parts: reduce(operator.and_, parts),
    "or": lambda *parts: reduce(operator.or_, parts),
    "not": torch.sym_not,
}
"""Operators on torch's symbolic numbers that install no guard."""


class _Lost(Exception):
    """A value is not plain data."""


def write_metas(program: Program, origins: Mapping[Origin, int] | None = None) -> dict[str, Any]:
    """Return the meta of all graphs, for JSON.

    Args:
        program: the program.
        origins: the numbers of the origins to write; others are left out.
    """
    writer = _Writer(origins or {})
    graphs = {name: [writer.rows(program.graphs[name].inputs), writer.rows(program.graphs[name].nodes)] for name in program.order}
    return {"keys": list(map(list, writer.keys)), "values": writer.values, "symbols": writer.symbols, "graphs": graphs}


class _Writer:
    def __init__(self, origins: Mapping[Origin, int]) -> None:
        self.origins = origins
        self.keys: dict[tuple[str, ...], int] = {}
        self.values: list[Any] = []
        self.symbols: dict[str, list[int | None]] = {}
        """The exporter's example value of each symbol, and its bounds."""
        self._numbers: dict[Any, int] = {}

    def rows(self, items: Iterable[Node | Input]) -> list[list[int]]:
        """Return a row for each node or input: the number of its keys, then those of the values."""
        rows: list[list[int]] = []
        for item in items:
            numbers = {key: number for key, value in item.meta.items() if (number := self._number(value)) is not None}
            rows.append([self.keys.setdefault(tuple(numbers), len(self.keys)), *numbers.values()])
        return rows

    def _number(self, value: Any) -> int | None:
        try:
            written = self._value(value, 0)
        except _Lost:
            return None
        key = (written, 0) if type(written) is str else json.dumps(written)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(written)
        return self._numbers[key]

    def _value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if depth > MAX_DEPTH:
            raise _Lost
        if kind in (str, bool, type(None)) or (kind is int and -BIG < value < BIG):
            return value
        if kind is tuple or kind is list:
            return [self._value(part, depth + 1) for part in value]
        if kind is MappingProxyType or kind is dict:
            return {"map": [[self._value(key, depth + 1), self._value(part, depth + 1)] for key, part in value.items()]}
        if kind is FakeTensor and value.layout is torch.strided:
            sizes, strides = (tuple(map(self._size, part)) for part in (value.shape, value.stride()))
            return {"tensor": write_fake(Fake(value.dtype, sizes, strides, str(value.fake_device), value.requires_grad))}
        if kind is NodeSource:
            return {"from": _source_row(value.to_dict())}
        if kind in (Imported, Made) and value in self.origins:
            return {"origin": self.origins[value]}
        if kind in SYMBOLIC:
            return {"number": print_expr(self._size(value))}
        text = print_arg(value)
        if text.startswith("opaque("):
            raise _Lost
        return {"arg": text}

    def _size(self, size: Any) -> Expr:
        if type(size) is int:
            return size
        symbols = sorted(size.node.expr.free_symbols, key=str)
        try:
            expr = read_expression(size.node.expr)
        except UnsupportedProgram:
            raise _Lost from None
        if not all(symbol.is_integer for symbol in symbols):
            raise _Lost
        for symbol in symbols:
            if symbol.name not in self.symbols:
                self.symbols[symbol.name] = list(symbol_facts(size.node, symbol))
        return expr


def _source_row(source: dict[str, Any]) -> list[Any]:
    # The id of a graph is left out: it is an address, which would differ from file to file.
    return [*[source[key] for key in SOURCE], list(map(_source_row, source["from_node"]))]


SOURCE = ("pass_name", "action", "name", "target")
"""The fields of torch's record of a node's source."""


def read_metas(program: Program, written: Any, known: Known, origins: Sequence[Origin] = ()) -> PMap[str, Graph]:
    """Return the graphs of a program with their meta from a file.

    Args:
        program: without meta.
        written: from JSON.
        known: for the look-up of operators by name.
        origins: by number.

    Raises:
        StoreError: it does not fit the program, or is malformed.
    """
    reader = _Reader(written, known, origins)
    graphs: Any = written["graphs"]
    if set(graphs) != set(program.graphs):
        raise StoreError("the meta has other graphs than the program")
    found: dict[str, Graph] = {}
    for name in program.graphs:
        graph, rows = program.graphs[name], graphs[name]
        if list(map(len, rows)) != [len(graph.inputs), len(graph.nodes)]:
            raise StoreError(f"the meta of the graph {name[:80]!a} does not have one row for each input and node")
        inputs = [evolve(formal, meta=reader.meta(row)) for formal, row in zip(graph.inputs, rows[0], strict=True)]
        nodes = [evolve(node, meta=reader.meta(row)) for node, row in zip(graph.nodes, rows[1], strict=True)]
        found[name] = Graph(tuple(inputs), tuple(nodes), graph.output)
    return pmap(found)


class _Reader:
    def __init__(self, written: Mapping[str, Any], known: Known, origins: Sequence[Origin]) -> None:
        self._known = known
        self._origins = origins
        self._hints: dict[Any, int | None] = {}
        self._symbols = {name: self._symbol(name, *facts) for name, facts in written["symbols"].items()}
        self._symbolic = cache(self._make_symbolic)
        self._keys = list(map(tuple, written["keys"]))
        if any(len(set(keys)) != len(keys) for keys in self._keys):
            raise StoreError("a row of the meta has a key twice")
        self._makers = [self._maker(value) for value in written["values"]]

    @cached_property
    def _env(self) -> Any:
        return new_shape_env()

    @cached_property
    def _mode(self) -> Any:
        return FakeTensorMode(shape_env=self._env, static_shapes=False)

    def meta(self, row: Any) -> Meta:
        """Return the meta of one node or input."""
        if not row or min(row) < 0 or row[0] >= len(self._keys) or max(row[1:], default=-1) >= len(self._makers):
            raise StoreError("a row of the meta names missing keys or values")
        keys = self._keys[row[0]]
        if not keys:
            return EMPTY_META
        made = {key: self._makers[number]() for key, number in zip(keys, row[1:], strict=True)}
        if ORIGIN in made and not isinstance(made[ORIGIN], Imported | Made):
            raise StoreError("the origin in a row of the meta is not an origin")
        return MappingProxyType(made)

    def _maker(self, written: Any, depth: int = 0) -> Callable[[], Any]:
        """Return a function that returns a value, with new tensors on each call."""
        if depth > MAX_DEPTH:
            raise StoreError("a value in the meta nests too deep")
        if type(written) is list:
            parts = [self._maker(part, depth + 1) for part in written]
            return lambda: tuple([part() for part in parts])
        if type(written) is not dict:
            return lambda: written
        ((kind, inside),) = written.items()
        if kind not in SHAPES or misshapen(inside, SHAPES[kind]) is not None:
            raise StoreError(f"a value in the meta is malformed or of an unknown kind: {kind[:40]!a}")
        match kind:
            case "tensor":
                return self._tensor(self._read(FAKE.read, inside))
            case "map":
                pairs = [(self._maker(key, depth + 1)(), self._maker(part, depth + 1)) for key, part in inside]
                dict.fromkeys([key for key, _ in pairs])  # each must be hashable
                return lambda: MappingProxyType({key: part() for key, part in pairs})
            case "number":
                found = self._symbolic(self._read(read_expr, inside))
            case "from":
                found = read_node_source(_source(inside))
            case "origin":
                found = self._origins[inside] if inside >= 0 else None
            case _:
                found = self._read(read_arg, inside)
        return lambda: found

    def _read(self, read: Callable[[Cursor], Any], text: str) -> Any:
        cursor = Cursor(text, self._known)
        found = read(cursor)
        if cursor.kind != "end":
            raise StoreError(f"a value in the meta has more than one value: {text[:80]!a}")
        return found

    def _tensor(self, fake: Fake) -> Callable[[], Any]:
        shape, steps = list(map(self._make_size, fake.shape)), list(map(self._make_size, fake.stride))
        if len(shape) != len(steps):
            raise StoreError("a tensor in the meta has different numbers of sizes and strides")
        dtype, at, is_static = fake.dtype, torch.device(fake.device), {int}.issuperset(map(type, (*shape, *steps)))

        def make() -> torch.Tensor:
            if is_static:
                found: torch.Tensor = fake_of(self._mode, dtype, shape, steps, at)
            else:
                with self._mode, self._env.suppress_guards():
                    found = torch.empty_strided(shape, steps, dtype=dtype, device=at)
            return found.requires_grad_() if fake.requires_grad else found

        make()  # so that errors of torch are raised now
        return make

    def _make_size(self, size: Expr) -> Any:
        made = size if type(size) is int and 0 <= size < BIG else self._symbolic(size)
        if not isinstance(made, int | torch.SymInt):
            raise StoreError("a tensor in the meta has an invalid size")
        return made

    def _symbol(self, name: str, hint: Any, low: Any, high: Any) -> Any:
        if any(fact is not None and not _is_small(fact) for fact in (hint, low, high)):
            raise StoreError(f"the symbol {name[:80]!a} has an invalid number or bounds")
        if not (name.isascii() and name.isidentifier() and len(name) < 40) or (low or 0) > (LIMIT if high is None else high):
            raise StoreError(f"the symbol {name[:80]!a} has an invalid name or bounds")
        self._hints[Sym(name)] = hint
        return new_symbol(self._env, name, hint, -LIMIT if low is None else low, high)

    def _make_symbolic(self, expr: Expr) -> Any:
        """Return a symbolic number."""
        leaves = leaves_in(expr)
        symbols = [leaf for leaf in leaves if type(leaf) is Sym]
        if len(leaves) > MOST_LEAVES or not symbols:
            raise StoreError(f"a size is {print_expr(expr)[:80]!a}, which is not an expression of a few symbols")
        if not all(leaf in self._hints if type(leaf) is Sym else _is_small(leaf) for leaf in leaves):
            raise StoreError("a size has a symbol that the file does not list, or too large a number")
        if all(self._hints[symbol] is not None for symbol in symbols) and not _is_small(evaluate(expr, self._hints)):
            raise StoreError("a size is too large")
        found = self._evaluated(expr)
        if not isinstance(found, SYMBOLIC):
            raise StoreError(f"the size {print_expr(expr)[:80]!a} is not symbolic")
        return found

    def _evaluated(self, expr: Any) -> Any:
        if type(expr) is not Apply:
            return self._symbols[expr.name] if type(expr) is Sym else expr
        if expr.op not in OVER_SYMBOLS:
            raise StoreError(f"a size uses {expr.op[:40]!a}, which is not an operator on sizes")
        if expr.op == "**" and (type(expr.args[-1]) is not int or not 0 <= expr.args[-1] < 64):
            raise StoreError("a size has a large or symbolic exponent")
        return OVER_SYMBOLS[expr.op](*map(self._evaluated, expr.args))


SHAPES: Mapping[str, Any] = {
    "tensor": str,
    "map": [(object, object)],
    "number": str,
    "from": (str, str, str, str, list),
    "origin": int,
    "arg": str,
}
"""The kinds of values that are not plain JSON, with their shapes."""


def _is_small(number: Any) -> bool:
    return type(number) in (int, float, bool) and -LIMIT <= number <= LIMIT


def _source(row: Any, depth: int = 0) -> dict[str, Any]:
    """Return the source of a node in torch's format."""
    if depth > MAX_DEPTH or misshapen(row, SHAPES["from"]) is not None:
        raise StoreError("a source of a node in the meta is malformed")
    return {**dict(zip(SOURCE, row, strict=False)), "graph_id": 0, "from_node": [_source(part, depth + 1) for part in row[4]]}
