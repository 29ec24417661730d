"""Meta of nodes and inputs as JSON, written and read.

Every distinct value is written once, and a node has a row of indices of keys and values.  Plain data is kept; fake values are
written as dtype, sizes, strides and device, and made again; anything else is left out, because no meta is better than wrong
meta.  Two nodes never share a fake tensor: passes recognize memory by the identity of its storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ..errors import StoreError, UnsupportedProgram
from ..expression import OPERATORS, Apply, Expr, Sym, evaluate, leaves_in
from ..graph import Graph, Input, Node
from ..importing.constraints import read_expression
from ..meta import EMPTY_META, ORIGIN, Meta
from ..origins import Imported, Made, Origin
from ..persistent import PMap, pmap
from ..program import Program
from ..text.arguments import print_arg, read_arg
from ..text.contract import print_expr, read_expr
from ..text.lexer import MAX_DEPTH, Cursor, Known
from ..text.state import DTYPE
from ..torch_private import (
    FakeTensor,
    FakeTensorMode,
    NodeSource,
    device_of,
    new_shape_env,
    read_node_source,
    symbol_facts,
    symbolic_range,
    sympy,
    sympy_operators,
)

NUMBERS: Mapping[str, Any] = {"int": torch.SymInt, "float": torch.SymFloat, "bool": torch.SymBool}

MOST_LEAVES = 64
"""Longer expressions are refused: sympy takes its time for them."""

LIMIT = 2**63


class Symbols:
    """Makes symbolic numbers, each expression once.

    >>> str(Symbols({"s77": [4, 2, None]}).make("int", "(2 * s77) + 1"))
    '2*s77 + 1'
    """

    def __init__(self, table: Any) -> None:
        self._known: dict[tuple[str, str], Any] = {}
        self._symbols: dict[str, Any] = {}
        self._hints: dict[str, int | None] = {}
        for name, facts in table.items():
            self._add(name, facts)

    @cached_property
    def env(self) -> Any:
        """The environment of the symbols."""
        return new_shape_env()

    def _add(self, name: str, facts: Any) -> None:
        if any(fact is not None and not _is_small(fact) for fact in facts):
            raise StoreError(f"the symbol {name[:80]!a} has no number and bounds")
        hint, low, high = facts
        if not (name.isascii() and name.isidentifier() and len(name) < 40) or (low or 0) > (LIMIT if high is None else high):
            raise StoreError(f"there is no symbol {name[:80]!a} with such bounds")
        found = symbolic_range(Sym(name), low, high)
        assert found is not None
        symbol, bounds = found
        self._symbols[name], self._hints[name] = symbol, hint
        self.env.var_to_range[symbol] = bounds
        if hint is not None:
            self.env.add_backed_var_to_val(symbol, hint)

    def make(self, kind: str, text: str) -> Any:
        """Return a symbolic number.

        Args:
            kind: ``"int"``, ``"float"`` or ``"bool"``.
            text: an expression.

        Raises:
            StoreError: it is not an expression of known symbols, or too large.
        """
        known = self._known.get((kind, text))
        if known is None:
            known = self._known[kind, text] = self._make(kind, text)
        return known

    def _make(self, kind: str, text: str) -> Any:
        cursor = Cursor(text)
        expr = read_expr(cursor)
        leaves = leaves_in(expr)
        if cursor.kind != "end" or len(leaves) > MOST_LEAVES or not any(type(leaf) is Sym for leaf in leaves):
            raise StoreError(f"a size is {text[:80]!a}, which is not an expression of a few symbols")
        for leaf in leaves:
            if not (leaf.name in self._hints if type(leaf) is Sym else isinstance(leaf, int | float) and _is_small(leaf)):
                raise StoreError("a size names a symbol that the file does not list, or an absurd number")
        hint = self._hint(expr, leaves)
        found = self._sympy(expr)
        if isinstance(found, sympy.Expr) is (kind == "bool"):
            raise StoreError(f"the size {text[:80]!a} is not of type {kind}")
        if kind == "bool":
            return self.env.create_symboolnode(found)
        if hint is not None and type(hint) is not (int if kind == "int" else float):
            raise StoreError(f"the size {text[:80]!a} was {hint!r}, which is not of type {kind}")
        return self.env.create_symintnode(found, hint=hint) if kind == "int" else self.env.create_symfloatnode(found, hint=hint)

    def _hint(self, expr: Expr, leaves: list[Expr]) -> Any:
        """Return what an expression was when the program was exported; None where only a run can say."""
        _check_powers(expr)
        hints = [self._hints[leaf.name] for leaf in leaves if type(leaf) is Sym]
        if None in hints:
            return None
        found = evaluate(expr, {Sym(name): hint for name, hint in self._hints.items()})
        if not _is_small(found):
            raise StoreError("a size is too large")
        return found

    def _sympy(self, expr: Expr) -> Any:
        if isinstance(expr, Apply):
            operators = sympy_operators()
            if expr.op not in operators or not any(type(leaf) is Sym for leaf in leaves_in(expr)):
                raise StoreError(f"a size uses {expr.op[:40]!a} in a way that has no meaning")
            return operators[expr.op](*[self._sympy(part) for part in expr.args])
        if type(expr) is Sym:
            return self._symbols[expr.name]
        # By type, and never as text.
        if type(expr) is bool:
            return sympy.true if expr else sympy.false
        return sympy.Integer(expr) if type(expr) is int else sympy.Float(expr)


def _check_powers(expr: Expr) -> None:
    if isinstance(expr, Apply):
        if expr.op not in OPERATORS:
            raise StoreError(f"a size uses {expr.op[:40]!a}, which is not an operator")
        if expr.op == "**" and (type(expr.args[-1]) is not int or not 0 <= expr.args[-1] < 64):
            raise StoreError("a size has a large or symbolic exponent")
        for part in expr.args:
            _check_powers(part)


def _is_small(number: Any) -> bool:
    return type(number) in (int, float, bool) and -LIMIT <= number <= LIMIT


INTEGERS = frozenset({int})

BIG = 2**53
"""From here on numbers in JSON are not safe with every reader."""


class _Lost(Exception):
    """A value is not plain data."""


def write_metas(program: Program, origins: Mapping[Origin, int] | None = None) -> dict[str, Any]:
    """Return the meta of all graphs, for JSON.

    Args:
        program: whose meta it is.
        origins: those that are written, by their number; others are left out.
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
        """For each symbol the number that the exporter saw, and its bounds."""
        self._numbers: dict[Any, int] = {}
        self._graph_ids: dict[Any, int] = {}

    def rows(self, items: Iterable[Node | Input]) -> list[list[int]]:
        """Return a row for each node or input."""
        rows: list[list[int]] = []
        for item in items:
            numbers = {key: self._number(value) for key, value in item.meta.items()}
            keys = tuple([key for key, number in numbers.items() if number is not None])
            rows.append([self.keys.setdefault(keys, len(self.keys)), *[numbers[key] for key in keys]])  # type: ignore[list-item]
        return rows

    def _number(self, value: Any) -> int | None:
        key = _key(value)
        number = self._numbers.get(key) if key is not None else None
        if number is not None:
            return number
        try:
            written = self._value(value, 0)
        except _Lost:
            return None
        if key is None:
            key = json.dumps(written)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(written)
        return number

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
        if kind is FakeTensor:
            return {"tensor": self._tensor(value)}
        if kind is NodeSource:
            return {"from": self._source(value, depth)}
        if kind is Imported or kind is Made:
            if value not in self.origins:
                raise _Lost
            return {"origin": self.origins[value]}
        for name, symbolic in NUMBERS.items():
            if kind is symbolic:
                return {"number": [name, self._symbolic(value)]}
        text = print_arg(value)
        if text.startswith("opaque("):
            raise _Lost
        return {"arg": text}

    def _tensor(self, tensor: torch.Tensor) -> list[Any]:
        if tensor.layout is not torch.strided:
            raise _Lost
        return [
            DTYPE.write(tensor.dtype),
            [self._size(size) for size in tensor.shape],
            [self._size(step) for step in tensor.stride()],
            str(device_of(tensor)),
            tensor.requires_grad,
        ]

    def _size(self, size: Any) -> int | str:
        return size if type(size) is int else self._symbolic(size)

    def _symbolic(self, number: Any) -> str:
        node = number.node
        try:
            expr = read_expression(node.expr)
        except UnsupportedProgram:
            raise _Lost from None
        for symbol in sorted(node.expr.free_symbols, key=str):
            if symbol.name not in self.symbols:
                self.symbols[symbol.name] = list(symbol_facts(node, symbol))
        return print_expr(expr)

    def _source(self, source: Any, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise _Lost
        info = source.node_info
        place = (
            None if info is None else [info.name, info.target, self._graph_ids.setdefault(info.graph_id, len(self._graph_ids))]
        )
        actions = [action.name.lower() for action in source.action]
        return [source.pass_name, actions, place, [self._source(part, depth + 1) for part in source.from_node]]


def _key(value: Any) -> Any:
    """Return a cheap key that distinguishes values, if there is one."""
    kind = type(value)
    if kind is str:
        return value, 0
    if kind is Imported or kind is Made:
        return value
    if kind is FakeTensor and value.layout is torch.strided:
        sizes = (*value.shape, *value.stride())
        if INTEGERS.issuperset(map(type, sizes)):
            return value.dtype, sizes, value.fake_device, value.requires_grad, value.layout
    return None


def read_metas(program: Program, written: Any, known: Known, origins: Sequence[Origin] = ()) -> PMap[str, Graph]:
    """Return the graphs of a program with the meta that was written of them.

    Args:
        program: without meta.
        written: what JSON had.
        known: where names of operators are looked up.
        origins: by number.

    Raises:
        StoreError: it does not fit the program, or is not a meta.
    """
    reader = _Reader(written, known, origins)
    graphs: Any = written["graphs"]
    if set(graphs) != set(program.graphs):
        raise StoreError("the meta is of other graphs than the program has")
    found: dict[str, Graph] = {}
    for name in program.graphs:
        graph, rows = program.graphs[name], graphs[name]
        if list(map(len, rows)) != [len(graph.inputs), len(graph.nodes)]:
            raise StoreError(f"the meta of the graph {name[:80]!a} is not one row for each input and node")
        inputs = [evolve(formal, meta=reader.meta(row)) for formal, row in zip(graph.inputs, rows[0], strict=True)]
        nodes = [
            Node(node.name, node.do, node.args, node.kwargs, node.stack, reader.meta(row))
            for node, row in zip(graph.nodes, rows[1], strict=True)
        ]
        found[name] = Graph(tuple(inputs), tuple(nodes), graph.output)
    return pmap(found)


class _Reader:
    def __init__(self, written: Mapping[str, Any], known: Known, origins: Sequence[Origin]) -> None:
        self._known = known
        self._origins = origins
        self._symbols = Symbols(written["symbols"])
        self._keys = list(map(tuple, written["keys"]))
        if any(len(set(keys)) != len(keys) for keys in self._keys):
            raise StoreError("a row of the meta has a key twice")
        self._makers = [self._maker(value) for value in written["values"]]

    @cached_property
    def _mode(self) -> Any:
        return FakeTensorMode(shape_env=self._symbols.env, static_shapes=False)

    def meta(self, row: Any) -> Meta:
        """Return the meta of one node or input."""
        if not row or min(row) < 0 or row[0] >= len(self._keys) or max(row[1:], default=-1) >= len(self._makers):
            raise StoreError("a row of the meta names keys or values that are not there")
        keys = self._keys[row[0]]
        if not keys:
            return EMPTY_META
        made = {key: self._makers[number]() for key, number in zip(keys, row[1:], strict=True)}
        if ORIGIN in made and not isinstance(made[ORIGIN], Imported | Made):
            raise StoreError("the origin in a row of the meta is none")
        return MappingProxyType(made)

    def _maker(self, written: Any, depth: int = 0) -> Callable[[], Any]:
        """Return what makes a value: a new one each time where it holds a tensor."""
        if depth > MAX_DEPTH:
            raise StoreError("a value in the meta nests too deep")
        if type(written) is list:
            parts = [self._maker(part, depth + 1) for part in written]
            return lambda: tuple([part() for part in parts])
        if type(written) is not dict:
            return lambda: written
        if len(written) != 1:
            raise StoreError("a value in the meta is of no kind")
        ((kind, inside),) = written.items()
        match kind:
            case "tensor":
                return self._tensor(inside)
            case "map":
                pairs = [(self._maker(key, depth + 1)(), self._maker(part, depth + 1)) for key, part in inside]
                dict.fromkeys([key for key, _ in pairs])
                return lambda: MappingProxyType({key: part() for key, part in pairs})
            case "number":
                name, text = inside
                number = self._symbols.make(str(name), str(text)) if name in NUMBERS else None
            case "from":
                number = read_node_source(_source(inside))
            case "origin" if type(inside) is int and 0 <= inside < len(self._origins):
                number = self._origins[inside]
            case "arg" if type(inside) is str:
                number = self._argument(inside)
            case _:
                raise StoreError(f"a value in the meta is of no kind that is known: {kind[:40]!a}")
        return lambda: number

    def _argument(self, text: str) -> Any:
        cursor = Cursor(text, self._known)
        found = read_arg(cursor)
        if cursor.kind != "end":
            raise StoreError(f"a value in the meta is more than one: {text[:80]!a}")
        return found

    def _tensor(self, written: Any) -> Callable[[], Any]:
        dtype_name, sizes, strides, device_name, grad = written
        dtype, device = DTYPE.read(Cursor(str(dtype_name))), torch.device(device_name)
        shape, steps = [self._size(size) for size in sizes], [self._size(step) for step in strides]
        if len(shape) != len(steps) or type(grad) is not bool:
            raise StoreError("a tensor in the meta has not as many strides as sizes")
        is_static = INTEGERS.issuperset(map(type, (*shape, *steps)))

        def make() -> torch.Tensor:
            if is_static:  # four times as fast as under the mode
                plain = torch.empty_strided(shape, steps, dtype=dtype, device="meta")
                found: torch.Tensor = FakeTensor(self._mode, plain, device)
            else:
                with self._mode, self._symbols.env.suppress_guards():
                    found = torch.empty_strided(shape, steps, dtype=dtype, device=device)
            return found.requires_grad_() if grad else found

        make()  # what torch refuses is reported now
        return make

    def _size(self, written: Any) -> Any:
        if type(written) is int and 0 <= written < BIG:
            return written
        if type(written) is str:
            return self._symbols.make("int", written)
        raise StoreError("a tensor in the meta has a size that is none")


def _source(written: Any, depth: int = 0) -> dict[str, Any]:
    """Return where a node comes from, in the form in which torch reads it."""
    pass_name, actions, place, parts = written
    if depth > MAX_DEPTH or type(pass_name) is not str or type(parts) is not list or not set(actions) <= {"create", "replace"}:
        raise StoreError("a value in the meta says where a node comes from, and is nonsense")
    found: dict[str, Any] = {"pass_name": pass_name, "action": "+".join(actions)}
    if place is not None:
        name, target, number = place
        if type(name) is not str or type(target) is not str or type(number) is not int:
            raise StoreError("a value in the meta says where a node comes from, and is nonsense")
        found |= {"name": name, "target": target, "graph_id": number}
    return {**found, "from_node": [_source(part, depth + 1) for part in parts]}
