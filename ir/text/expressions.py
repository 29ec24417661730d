"""Sizes and guards as text: ``(2 * s77) == size(#0, 1)``, written and read.

One idea: an operator with several operands stands between them in brackets of its own, everything else is written as a
call, so no precedence has to be known.  Nothing is evaluated.
"""

from __future__ import annotations

from ..expression import Apply, Expr, InputDim, InputValue, Sym
from .arguments import opaque, print_arg
from .lexer import MAX_DEPTH, Cursor, read_list
from .spelling import is_word, quoted, spell_value

__all__ = ["print_expr", "print_shape", "read_expr", "read_shape"]

INFIX = ("+", "-", "*", "//", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or")

OF_INPUT = ("size", "stride", "value")
"""Words before ``(`` that read an input and are no operators."""


def print_expr(expr: Expr, depth: int = 0) -> str:
    """Return an expression as text.

    Args:
        expr: what to print.
        depth: how many operators it is in; an operator inside another gets brackets.

    >>> print_expr(Apply("==", (Apply("*", (2, Sym("s77"))), InputDim(0, 1))))
    '(2 * s77) == size(#0, 1)'
    """
    match expr:
        case Sym(name):
            return spell_value(name)
        case InputDim(index, dim, ("size" | "stride") as of):
            return f"{of}(#{index}, {dim})"
        case InputValue(index):
            return f"value(#{index})"
        case Apply(op, args) if depth < MAX_DEPTH:
            return _print_apply(op, [print_expr(arg, depth + 1) for arg in args], depth)
        case bool() | int() | float():
            return print_arg(expr)
        case _:
            return opaque(type(expr).__qualname__)


def _print_apply(op: str, args: list[str], depth: int) -> str:
    if op in INFIX and len(args) > 1:
        joined = f" {op} ".join(args)
        return f"({joined})" if depth else joined
    bare = is_word(op) and op not in INFIX and op not in OF_INPUT
    return f"{op if bare else quoted(op)}({', '.join(args)})"


def print_shape(shape: tuple[Expr, ...]) -> str:
    """Return sizes as text, without brackets.

    >>> print_shape((Sym("s77"), 3))
    's77, 3'
    """
    return ", ".join([print_expr(size) for size in shape])


def read_expr(cursor: Cursor) -> Expr:
    """Read an expression.

    Raises:
        ParseError: something else stands here.

    >>> read_expr(Cursor("(2 * s77) == size(#0, 1)"))
    Apply(op='==', args=(Apply(op='*', args=(2, Sym(name='s77'))), InputDim(index=0, dim=1, of='size')))
    """
    first = _read_operand(cursor)
    op = cursor.text
    if op not in INFIX or cursor.kind not in ("symbol", "word"):
        return first
    args = [first]
    while cursor.skip(op):
        args.append(_read_operand(cursor))
    return Apply(op, tuple(args))


def _read_operand(cursor: Cursor) -> Expr:
    if cursor.kind == "number":
        return cursor.number()
    if cursor.kind == "word" and cursor.text in ("True", "False"):
        return cursor.advance() == "True"
    if cursor.skip("("):
        with cursor.nested():
            inside = read_expr(cursor)
            cursor.take(")")
            return inside
    if cursor.kind == "string":
        return Apply(cursor.string(), _read_operands(cursor))
    if cursor.kind == "value":
        return Sym(cursor.value())
    name = cursor.value() if cursor.kind == "word" else ""
    if not name:
        raise cursor.expected("a size")
    if cursor.text != "(":
        return Sym(name)
    return _read_of_input(cursor, name) if name in OF_INPUT else Apply(name, _read_operands(cursor))


def _read_operands(cursor: Cursor) -> tuple[Expr, ...]:
    with cursor.nested():
        return tuple(read_list(cursor, read_expr))


def _read_of_input(cursor: Cursor, of: str) -> Expr:
    cursor.take("(")
    cursor.take("#")
    index = cursor.integer("the number of an input")
    if of == "value":
        cursor.take(")")
        return InputValue(index)
    cursor.take(",")
    dim = cursor.integer("a dimension")
    cursor.take(")")
    return InputDim(index, dim, of)


def read_shape(cursor: Cursor) -> tuple[Expr, ...]:
    """Read sizes in square brackets.

    >>> read_shape(Cursor("[s77, 3]"))
    (Sym(name='s77'), 3)
    """
    return tuple(read_list(cursor, read_expr, opening="[", closing="]"))
