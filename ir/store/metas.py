"""Write and read the meta of nodes and inputs.

Every distinct value is written once, as an argument is in the text form, and a node has a row of indices of keys and values.
Plain data and sources are kept, fake values are recreated; other values are left out, because no meta is better than wrong
meta.  Nodes never share a fake tensor: passes identify memory by its storage.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial, reduce
from types import MappingProxyType
from typing import Any

import torch
from attrs import Factory, define, evolve, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, Record, arg_leaves, children_of, with_children
from ..errors import StoreError, UnsupportedProgram
from ..expression import OPERATORS, UNCOMPUTABLE, Apply, Expr, Sym, evaluate, leaves_in
from ..forks import cached_property
from ..graph import Graph, Input, Node
from ..importing.constraints import read_expression
from ..meta import EMPTY_META, ORIGIN, Meta
from ..origins import Imported, Made, Origin
from ..persistent import PMap, pmap
from ..program import Program
from ..text.arguments import bracketed, print_arg, read_arg
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


@frozen(cache_hash=True)
class Fake:
    """A fake value: a tensor without contents, whose sizes may be symbolic."""

    dtype: torch.dtype
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    device: str
    requires_grad: bool = False


SIZES = listed(EXPR, "[]")

FAKE = form(
    Fake,
    "{dtype}{shape} strides {stride} on {device}{requires_grad?grad/}",
    shape=SIZES,
    stride=SIZES,
)

write_fake = lru_cache(maxsize=4096)(FAKE.write)

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
    graphs = {
        name: [writer.rows(program.graphs[name].inputs), writer.rows(program.graphs[name].nodes)]
        for name in program.order
    }
    keys = list(map(list, writer.keys))
    return {
        "keys": keys,
        "values": list(writer.values),
        "symbols": writer.symbols,
        "graphs": graphs,
    }


@define(eq=False)
class _Writer:
    origins: Mapping[Origin, int]
    keys: dict[tuple[str, ...], int] = Factory(dict)
    symbols: dict[str, list[int | None]] = Factory(dict)
    """The exporter's example value of each symbol, and its bounds."""
    values: dict[str, int] = Factory(dict)

    def rows(self, items: Iterable[Node | Input]) -> list[list[int]]:
        """Return a row for each node or input: the number of its keys, then those of the values."""
        rows: list[list[int]] = []
        for item in items:
            numbers = {
                key: number
                for key, value in item.meta.items()
                if (number := self._number(value)) is not None
            }
            rows.append([self.keys.setdefault(tuple(numbers), len(self.keys)), *numbers.values()])
        return rows

    def _number(self, value: Any) -> int | None:
        try:
            return self.values.setdefault(self._text(value), len(self.values))
        except _Lost:
            return None

    def _text(self, value: Any, depth: int = 0) -> str:
        kind = type(value)
        if depth >= MAX_DEPTH:
            raise _Lost
        if kind is tuple or kind is list:
            return bracketed(tuple, [self._text(part, depth + 1) for part in value])
        if kind is MappingProxyType or kind is dict:
            return bracketed(
                dict, [self._text(part, depth + 1) for pair in value.items() for part in pair]
            )
        if kind is FakeTensor and value.layout is torch.strided:
            sizes, strides = (
                tuple(map(self._size, part)) for part in (value.shape, value.stride())
            )
            return f"fake({write_fake(Fake(value.dtype, sizes, strides, str(value.fake_device), value.requires_grad))})"
        if kind is NodeSource:
            return f"from({self._text(_source_row(value.to_dict()), depth + 1)})"
        if kind in (Imported, Made) and value in self.origins:
            return f"origin({self.origins[value]})"
        if kind in SYMBOLIC:
            return f"number({print_expr(self._size(value))})"
        text = print_arg(value, depth)
        if kind is not str and "opaque(" in text:
            raise _Lost
        return text

    def _size(self, size: Any) -> Expr:
        if type(size) is int:
            return size
        symbols = sorted(size.node.expr.free_symbols, key=str)
        try:
            expr = read_expression(size.node.expr)
        except UnsupportedProgram:
            raise _Lost from None
        for symbol in symbols:
            if symbol.name not in self.symbols:
                self.symbols[symbol.name] = list(symbol_facts(size.node, symbol))
        if not all(symbol.is_integer for symbol in symbols) or not can_be_made(expr, self.symbols):
            raise _Lost
        return expr


def _source_row(source: dict[str, Any]) -> tuple[Any, ...]:
    # The id of a graph is left out: it is an address, which would differ from file to file.
    return (*[source[key] for key in SOURCE], tuple(map(_source_row, source["from_node"])))


SOURCE = ("pass_name", "action", "name", "target")
"""The fields of torch's record of a node's source."""


def read_metas(
    program: Program, written: Any, known: Known, origins: Sequence[Origin] = ()
) -> PMap[str, Graph]:
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
            raise StoreError(
                f"the meta of the graph {name[:80]!a} does not have one row for each input and node"
            )
        inputs = [
            evolve(formal, meta=reader.meta(row))
            for formal, row in zip(graph.inputs, rows[0], strict=True)
        ]
        nodes = [
            evolve(node, meta=reader.meta(row))
            for node, row in zip(graph.nodes, rows[1], strict=True)
        ]
        found[name] = Graph(tuple(inputs), tuple(nodes), graph.output)
    return pmap(found)


class _Reader:
    def __init__(self, written: Mapping[str, Any], known: Known, origins: Sequence[Origin]) -> None:
        numbered = dict(enumerate(origins))
        words = {
            "fake": FAKE.read,
            "number": lambda cursor: self._symbolic(read_expr(cursor)),
            "from": lambda cursor: read_node_source(_source(read_arg(cursor))),
            "origin": lambda cursor: numbered[cursor.integer()],
        }
        self._known = Known(known.operators, known.types.values(), known.allow, words=words)
        self._facts = written["symbols"]
        self._symbols = {
            name: self._symbol(name, *facts) for name, facts in written["symbols"].items()
        }
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
        if (
            not row
            or min(row) < 0
            or row[0] >= len(self._keys)
            or max(row[1:], default=-1) >= len(self._makers)
        ):
            raise StoreError("a row of the meta names missing keys or values")
        keys = self._keys[row[0]]
        if not keys:
            return EMPTY_META
        made = {key: self._makers[number]() for key, number in zip(keys, row[1:], strict=True)}
        if ORIGIN in made and not isinstance(made[ORIGIN], Imported | Made):
            raise StoreError("the origin in a row of the meta is not an origin")
        return MappingProxyType(made)

    def _maker(self, text: str) -> Callable[[], Any]:
        """Return a function that returns a value, with new tensors on each call."""
        cursor = Cursor(text, self._known)
        written = read_arg(cursor)
        if cursor.kind != "end":
            raise StoreError(f"a value in the meta has more than one value: {text[:80]!a}")
        found = self._made(written)  # so that errors of torch are raised now
        has_tensors = any(type(leaf) is Fake for leaf in arg_leaves((written,)))
        return partial(self._made, written) if has_tensors else lambda: found

    def _made(self, written: Any) -> Any:
        kind = type(written)
        if kind is Fake:
            return self._tensor(written)
        if kind is Record:
            return MappingProxyType(
                {self._made(key): self._made(value) for key, value in written.items}
            )
        return (
            with_children(written, [self._made(part) for part in children_of(written)])
            if kind in CONTAINERS
            else written
        )

    def _tensor(self, fake: Fake) -> torch.Tensor:
        shape, stride = (list(map(self._make_size, part)) for part in (fake.shape, fake.stride))
        if len(shape) != len(stride):
            raise StoreError("a tensor in the meta has different numbers of sizes and strides")
        if {int}.issuperset(map(type, (*shape, *stride))):
            found: torch.Tensor = fake_of(
                self._mode, fake.dtype, shape, stride, torch.device(fake.device)
            )
        else:
            with self._mode, self._env.suppress_guards():
                found = torch.empty_strided(shape, stride, dtype=fake.dtype, device=fake.device)
        return found.requires_grad_() if fake.requires_grad else found

    def _make_size(self, size: Expr) -> Any:
        made = size if type(size) is int and 0 <= size < LIMIT else self._symbolic(size)
        if not isinstance(made, int | torch.SymInt):
            raise StoreError("a tensor in the meta has an invalid size")
        return made

    def _symbol(self, name: str, hint: Any, low: Any, high: Any) -> Any:
        if any(fact is not None and not _is_small(fact) for fact in (hint, low, high)):
            raise StoreError(f"the symbol {name[:80]!a} has an invalid number or bounds")
        if not (name.isascii() and name.isidentifier() and len(name) < 40) or (low or 0) > (
            LIMIT if high is None else high
        ):
            raise StoreError(f"the symbol {name[:80]!a} has an invalid name or bounds")
        return new_symbol(self._env, name, hint, -LIMIT if low is None else low, high)

    def _make_symbolic(self, expr: Expr) -> Any:
        """Return a symbolic number."""
        found = self._evaluated(expr) if can_be_made(expr, self._facts) else None
        if not isinstance(found, SYMBOLIC):
            raise StoreError(
                f"a size is {print_expr(expr)[:80]!a}, which is not an expression of a few symbols"
            )
        return found

    def _evaluated(self, expr: Any) -> Any:
        if type(expr) is Apply:
            return OVER_SYMBOLS[expr.op](*map(self._evaluated, expr.args))
        return self._symbols[expr.name] if type(expr) is Sym else expr


def can_be_made(expr: Expr, symbols: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether the symbolic number of an expression is recreated: it has few parts, and no large numbers.

    Args:
        expr: of a size.
        symbols: the example value, and the bounds, of each symbol.

    >>> can_be_made(Apply("*", (2, Sym("s0"))), {"s0": (4, 0, 9)}), can_be_made(Apply("**", (2, Sym("s0"))), {"s0": (4, 0, 9)})
    (True, False)
    """
    leaves = leaves_in(expr)
    hints = {
        leaf: symbols[leaf.name][0] for leaf in leaves if type(leaf) is Sym and leaf.name in symbols
    }
    is_known = all(leaf in hints or _is_small(leaf) for leaf in leaves)
    if not is_known or not hints or len(leaves) > MOST_LEAVES or not _has_operators(expr):
        return False
    try:
        return None in hints.values() or _is_small(evaluate(expr, hints))
    except UNCOMPUTABLE:
        return False


def _has_operators(expr: Expr) -> bool:
    if type(expr) is not Apply:
        return True
    is_power = expr.op == "**" and (type(expr.args[-1]) is not int or not 0 <= expr.args[-1] < 64)
    return expr.op in OVER_SYMBOLS and not is_power and all(map(_has_operators, expr.args))


def _is_small(number: Any) -> bool:
    return type(number) in (int, float, bool) and -LIMIT <= number <= LIMIT


def _source(row: Any) -> dict[str, Any]:
    """Return the source of a node in torch's format."""
    *texts, inner = row
    if list(map(type, texts)) != [str] * len(SOURCE):
        raise StoreError("a source of a node in the meta is malformed")
    return {
        **dict(zip(SOURCE, texts, strict=True)),
        "graph_id": 0,
        "from_node": list(map(_source, inner)),
    }
