"""Symbolic sizes in meta: which symbols there are, and symbolic numbers made of them again.

A size is an expression, as in the signature; symbols keep the number that the exporter saw and their bounds, and all symbols of
a file live in one new environment.  Expressions are built from a table of operators, never evaluated as text, and rejected
before they are computed if the value would not fit 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from ..errors import ParseError, StoreError, UnsupportedProgram
from ..expression import OPERATORS, Apply, Expr, Sym, leaves_in
from ..importing.constraints import read_expression
from ..text.contract import print_expr, read_expr
from ..text.lexer import Cursor
from ..torch_private import new_shape_env, symbol_facts, symbolic_range, sympy, sympy_operators

NUMBERS: Mapping[str, Any] = {"int": torch.SymInt, "float": torch.SymFloat, "bool": torch.SymBool}

MOST_LEAVES = 64
"""Longer expressions are refused: sympy takes its time for them."""

LIMIT = 2**63


class SymbolTable:
    """Collects symbols while sizes are written."""

    def __init__(self) -> None:
        self.symbols: dict[str, list[int | None]] = {}
        """For each symbol the number that the exporter saw, and its bounds."""

    def write(self, number: Any) -> str | None:
        """Return a symbolic number as text; None if it has none."""
        node = number.node
        try:
            expr = read_expression(node.expr)
        except UnsupportedProgram:
            return None
        for symbol in sorted(node.expr.free_symbols, key=str):
            if symbol.name not in self.symbols:
                self.symbols[symbol.name] = list(symbol_facts(node, symbol))
        return print_expr(expr)


class Symbols:
    """Makes symbolic numbers, each expression once.

    >>> str(Symbols({"s77": [4, 2, None]}).make("int", "(2 * s77) + 1"))
    '2*s77 + 1'
    """

    def __init__(self, table: Any) -> None:
        self._known: dict[tuple[str, str], Any] = {}
        self._symbols: dict[str, Any] = {}
        self._hints: dict[str, int | None] = {}
        if type(table) is not dict:
            raise StoreError("the table of symbols is not an object")
        for name, facts in table.items():
            self._add(name, facts)

    @cached_property
    def env(self) -> Any:
        """The environment of the symbols."""
        return new_shape_env()

    def _add(self, name: str, facts: Any) -> None:
        if type(facts) is not list or len(facts) != 3 or any(fact is not None and not _is_small(fact) for fact in facts):
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
        try:
            cursor = Cursor(text)
            expr = read_expr(cursor)
        except ParseError as error:
            raise StoreError(f"a size is {text[:80]!a}, which is not an expression") from error
        leaves = leaves_in(expr)
        if cursor.kind != "end" or len(leaves) > MOST_LEAVES or not any(type(leaf) is Sym for leaf in leaves):
            raise StoreError(f"a size is {text[:80]!a}, which is not an expression of a few symbols")
        hint = self._hint(expr)
        found = self._sympy(expr)
        if isinstance(found, sympy.Expr) is (kind == "bool"):
            raise StoreError(f"the size {text[:80]!a} is not of type {kind}")
        if kind == "bool":
            return self.env.create_symboolnode(found)
        if hint is not None and type(hint) is not (int if kind == "int" else float):
            raise StoreError(f"the size {text[:80]!a} was {hint!r}, which is not of type {kind}")
        return self.env.create_symintnode(found, hint=hint) if kind == "int" else self.env.create_symfloatnode(found, hint=hint)

    def _hint(self, expr: Expr) -> Any:
        """Return what an expression was when the program was exported; None where only a run can say."""
        if isinstance(expr, Apply):
            parts = [self._hint(part) for part in expr.args]
            if expr.op not in OPERATORS:
                raise StoreError(f"a size uses {expr.op[:40]!a}, which is not an operator")
            if expr.op == "**" and (type(expr.args[-1]) is not int or not 0 <= expr.args[-1] < 64):
                raise StoreError("a size has a large or symbolic exponent")
            if None in parts:
                return None
            return self._computed(expr.op, parts)
        if type(expr) is Sym and expr.name in self._hints:
            return self._hints[expr.name]
        if isinstance(expr, int | float) and _is_small(expr):
            return expr
        raise StoreError("a size names a symbol that the file does not list, or an absurd number")

    def _computed(self, op: str, parts: list[Any]) -> Any:
        if op == "**" and abs(parts[0]) > 1 and parts[0].bit_length() * parts[-1] > 64:
            raise StoreError("a size is too large")
        try:
            found = OPERATORS[op](*parts)
        except (ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise StoreError("a size cannot be computed") from error
        if not _is_small(found):
            raise StoreError("a size is too large")
        return found

    def _sympy(self, expr: Expr) -> Any:
        if isinstance(expr, Apply):
            operators = sympy_operators()
            if expr.op not in operators or not any(type(leaf) is Sym for leaf in leaves_in(expr)):
                raise StoreError(f"a size uses {expr.op[:40]!a} in a way that has no meaning")
            try:
                return operators[expr.op](*[self._sympy(part) for part in expr.args])
            except (ArithmeticError, TypeError, ValueError, AttributeError, AssertionError, RecursionError) as error:
                raise StoreError("a size cannot be made") from error
        if type(expr) is Sym:
            return self._symbols[expr.name]
        # By type, and never as text.
        if type(expr) is bool:
            return sympy.true if expr else sympy.false
        return sympy.Integer(expr) if type(expr) is int else sympy.Float(expr)


def _is_small(number: Any) -> bool:
    return type(number) in (int, float, bool) and -LIMIT <= number <= LIMIT
