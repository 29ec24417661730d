"""The contract of a program as text: signature, constraints, and the sizes and guards in them, written and read.

``(2 * s77) == size(#0, 1)`` is read by precedence, without recursion.
"""

from __future__ import annotations

from typing import assert_never

from ..expression import Apply, Expr, InputDim, InputValue, Sym
from ..signature import (
    ArgumentType,
    Constraints,
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    OutputSpec,
    Range,
    RestType,
    StateGradient,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from .arguments import opaque, print_arg, read_arg
from .lexer import MAX_DEPTH, Cursor, is_word, quoted, read_list, spell_path, spell_value
from .state import print_dtype, read_dtype

__all__ = [
    "print_constraints",
    "print_expr",
    "print_input",
    "print_lifted",
    "print_names",
    "print_output",
    "print_shape",
    "read_constraints",
    "read_expr",
    "read_input",
    "read_lifted",
    "read_names",
    "read_output",
    "read_shape",
]

INFIX = ("+", "-", "*", "//", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or")

OF_INPUT = ("size", "stride", "value")
"""Words before ``(`` that read an input and are not operators."""


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


def print_input(spec: InputSpec) -> str:
    """Return what an input of the root graph is for, as text.

    >>> print_input(StateInput("lin.weight")), print_input(UserInput(LiteralType(None), "mask"))
    ('state lin.weight', 'user mask: literal None')
    >>> print_input(UserInput(ObjectType(), "y", LiteralType(1))), print_input(UserInput(RestType(), "args"))
    ('user y: object "" default 1', 'user args: rest')
    """
    match spec:
        case StateInput(slot):
            return f"state {spell_path(slot)}"
        case UserInput(kind, argument, default, _):
            otherwise = "" if default is None else f" default {print_arg(default.value)}"
            return f"user {spell_path(argument)}: {_print_type(kind)}{otherwise}"
        case Token():
            return "token"
        case _:
            assert_never(spec)


def _print_type(kind: ArgumentType) -> str:
    match kind:
        case TensorType(dtype, shape, device):
            place = "" if device == "cpu" else f" on {quoted(device)}"
            return f"{print_dtype(dtype)}[{print_shape(shape)}]{place}"
        case NumberType(name, expr):
            return f"number {spell_path(name)}" + ("" if expr is None else f" {print_expr(expr)}")
        case LiteralType(value):
            return f"literal {print_arg(value)}"
        case ObjectType(description):
            return f"object {quoted(description)}"
        case RestType(keywords):
            return "rest keywords" if keywords else "rest"
        case _:
            assert_never(kind)


def read_input(cursor: Cursor) -> InputSpec:
    """Read what an input of the root graph is for.

    >>> read_input(Cursor("user x: f32[s77, 3]")).type.shape
    (Sym(name='s77'), 3)
    """
    match cursor.take("state", "user", "token"):
        case "state":
            return StateInput(cursor.path("the name of a slot"))
        case "user":
            argument = cursor.path("the name of an argument")
            cursor.take(":")
            kind = _read_type(cursor)
            default = LiteralType(read_arg(cursor)) if cursor.skip("default") else None
            return UserInput(kind, argument, default, tuple(cursor.known.types.values()))
        case _:
            return Token()


def _read_type(cursor: Cursor) -> ArgumentType:
    if cursor.skip("literal"):
        return LiteralType(read_arg(cursor))
    if cursor.skip("object"):
        return ObjectType(cursor.string("a description"))
    if cursor.skip("rest"):
        return RestType(keywords=cursor.skip("keywords"))
    if cursor.skip("number"):
        name = cursor.path("int, float or bool")
        return NumberType(name, None if cursor.kind in ("newline", "end") else read_expr(cursor))
    dtype = read_dtype(cursor)
    shape = read_shape(cursor)
    return TensorType(dtype, shape, cursor.string("a device") if cursor.skip("on") else "cpu")


def print_output(spec: OutputSpec) -> str:
    """Return what an output of the root graph is for, as text.

    >>> print_output(UserOutput()), print_output(StateMutation("n")), print_output(InputMutation(3))
    ('user', 'state n', 'input 3')
    >>> print_output(LossOutput()), print_output(StateGradient("lin.weight")), print_output(InputGradient(0))
    ('loss', 'gradient of state lin.weight', 'gradient of leaf 0')
    """
    match spec:
        case UserOutput():
            return "user"
        case StateMutation(slot):
            return f"state {spell_path(slot)}"
        case InputMutation(index):
            return f"input {index}"
        case Token():
            return "token"
        case LossOutput():
            return "loss"
        case StateGradient(slot):
            return f"gradient of state {spell_path(slot)}"
        case InputGradient(leaf):
            return f"gradient of leaf {leaf}"
        case _:
            assert_never(spec)


def read_output(cursor: Cursor) -> OutputSpec:
    """Read what an output of the root graph is for.

    >>> read_output(Cursor("input 3"))
    InputMutation(index=3)
    """
    match cursor.take("user", "state", "input", "token", "loss", "gradient"):
        case "user":
            return UserOutput()
        case "state":
            return StateMutation(cursor.path("the name of a slot"))
        case "input":
            return InputMutation(cursor.integer("the number of an input"))
        case "loss":
            return LossOutput()
        case "gradient":
            return _read_gradient(cursor)
        case _:
            return Token()


def _read_gradient(cursor: Cursor) -> OutputSpec:
    cursor.take("of")
    if cursor.take("state", "leaf") == "state":
        return StateGradient(cursor.path("the name of a slot"))
    return InputGradient(cursor.integer("the number of a leaf of the arguments"))


def print_lifted(place: SunkInput) -> str:
    """Return a state input that was turned into reads, as text.

    >>> print_lifted(SunkInput("lin.weight")), print_lifted(SunkInput("lin.bias", 2, used=False))
    ('lin.weight', 'lin.bias behind 2 unused')
    """
    behind = f" behind {place.behind}" if place.behind else ""
    return f"{spell_path(place.slot)}{behind}{'' if place.used else ' unused'}"


def read_lifted(cursor: Cursor) -> SunkInput:
    """Read a state input that was turned into reads.

    >>> read_lifted(Cursor("lin.bias behind 2"))
    SunkInput(slot='lin.bias', behind=2, used=True)
    """
    slot = cursor.path("the name of a slot")
    behind = cursor.integer("a number of user inputs") if cursor.skip("behind") else 0
    return SunkInput(slot, behind, not cursor.skip("unused"))


def print_names(names: tuple[str, ...]) -> str:
    """Return names in brackets.

    >>> print_names(("x", "a b"))
    '(x, "a b")'
    """
    return f"({', '.join([spell_path(name) for name in names])})"


def read_names(cursor: Cursor) -> tuple[str, ...]:
    """Read names in brackets.

    >>> read_names(Cursor('(x, "a b")'))
    ('x', 'a b')
    """
    return tuple(read_list(cursor, Cursor.path))


def print_constraints(constraints: Constraints) -> list[str]:
    """Return one line for each range and guard.

    >>> from purefx.ir import Sym
    >>> print_constraints(Constraints((Range(Sym("s77"), 2, None),)))
    ['range s77 from 2']
    """
    lines: list[str] = []
    for bounds in constraints.ranges:
        low = "" if bounds.low is None else f" from {bounds.low}"
        high = "" if bounds.high is None else f" to {bounds.high}"
        lines.append(f"range {print_expr(bounds.expr)}{low}{high}")
    return [*lines, *[f"guard {print_expr(guard)}" for guard in constraints.guards]]


def read_constraints(cursor: Cursor) -> Constraints:
    """Read the ranges and guards in a block."""
    ranges: list[Range] = []
    guards: list[Expr] = []
    for _ in cursor.block():
        if cursor.take("range", "guard") == "guard":
            guards.append(read_expr(cursor))
            continue
        expr = read_expr(cursor)
        low = cursor.integer("the lower bound") if cursor.skip("from") else None
        high = cursor.integer("the upper bound") if cursor.skip("to") else None
        ranges.append(Range(expr, low, high))
    return Constraints(tuple(ranges), tuple(guards))
