"""Sizes and guards as data: integers, symbols and a handful of operators.

Dynamic sizes, which ``torch.export`` writes in sympy and Python text, become small trees that can be compared,
printed and evaluated without ``eval``.  They are not simplified.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen


@frozen
class Sym:
    """A symbolic size, named as the exporter named it (``s77``).

    >>> evaluate(Sym("s77"), {Sym("s77"): 3})
    3
    """

    name: str


@frozen
class InputDim:
    """Size ``dim`` of the user input number ``index``; ``of`` is ``"size"`` or ``"stride"``.

    >>> evaluate(Apply("*", (InputDim(0, 1), 2)), {InputDim(0, 1): 5})
    10
    """

    index: int
    dim: int
    of: str = "size"


@frozen
class InputValue:
    """The user input number ``index`` itself, a number.

    >>> evaluate(Apply("<", (InputValue(0), 4)), {InputValue(0): 3})
    True
    """

    index: int


@frozen
class Apply:
    """An operator applied to expressions; ``op`` is a key of ``OPERATORS``.

    >>> evaluate(Apply("+", (Sym("s0"), 1)), {Sym("s0"): 4})
    5
    """

    op: str
    args: tuple[Expr, ...]


Expr = int | float | bool | Sym | InputDim | InputValue | Apply


def _power(base: Any, exponent: Any) -> Any:
    if (
        type(base) is int
        and type(exponent) is int
        and abs(base) > 1
        and base.bit_length() * exponent > MOST_BITS
    ):
        raise OverflowError("a power is too large")
    return base**exponent


LARGEST = 2**63
"""Sizes and the numbers that they are compared with are integers of 64 bits."""

MOST_BITS = 4096
"""A power with more bits is not computed: sizes are never that large."""

DEEPEST = 128
"""The maximum nesting depth of an expression: functions on it are recursive."""

UNCOMPUTABLE = (ArithmeticError, TypeError, ValueError)
"""Errors of operators without a value for their operands: a division by zero, a power that is too large."""

OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": lambda *parts: sum(parts),
    "-": operator.sub,
    "*": lambda *parts: math.prod(parts),
    "//": operator.floordiv,
    "/": operator.truediv,
    "%": operator.mod,
    "**": _power,
    "ceildiv": lambda a, b: -(-a // b),
    "max": max,
    "min": min,
    "abs": abs,
    "neg": operator.neg,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda *parts: all(parts),
    "or": lambda *parts: any(parts),
    "not": operator.not_,
    "if": lambda test, then, other: then if test else other,
}


ARITIES: Mapping[str, tuple[int, float]] = {
    **dict.fromkeys(OPERATORS, (2, 2)),
    **dict.fromkeys(("+", "*", "and", "or"), (1, math.inf)),
    **dict.fromkeys(("max", "min"), (2, math.inf)),
    **dict.fromkeys(("abs", "neg", "not"), (1, 1)),
    "if": (3, 3),
}
"""The least and the largest number of operands of an operator."""


def evaluate(expr: Expr, known: Mapping[Any, Any]) -> Any:
    """Return the value of an expression.

    Args:
        expr: the expression; it nests a few levels.
        known: values for every ``Sym``, ``InputDim`` and ``InputValue`` in it.

    Raises:
        KeyError: a leaf has no value.
        ArithmeticError: it has no value or a huge one: see ``UNCOMPUTABLE``.

    >>> evaluate(Apply("==", (Apply("%", (Sym("s0"), 4)), 0)), {Sym("s0"): 8})
    True
    """
    if isinstance(expr, Apply):
        return OPERATORS[expr.op](*(evaluate(arg, known) for arg in expr.args))
    if isinstance(expr, int | float):
        return expr
    return known[expr]


def leaves_in(expr: Expr) -> list[Expr]:
    """Return the leaves of an expression from left to right.

    >>> leaves_in(Apply("+", (Sym("s0"), 1)))
    [Sym(name='s0'), 1]
    """
    if isinstance(expr, Apply):
        return [leaf for arg in expr.args for leaf in leaves_in(arg)]
    return [expr]


def symbols_in(expr: Expr) -> list[str]:
    """Return the names of the symbols in an expression, repeats kept.

    >>> symbols_in(Apply("*", (2, Sym("s0"))))
    ['s0']
    """
    return [leaf.name for leaf in leaves_in(expr) if isinstance(leaf, Sym)]


def inputs_in(expr: Expr) -> list[int]:
    """Return the numbers of the user inputs that an expression reads, repeats kept.

    >>> inputs_in(Apply("<", (InputDim(0, 1), InputDim(2, 0))))
    [0, 2]
    """
    return [leaf.index for leaf in leaves_in(expr) if isinstance(leaf, InputDim | InputValue)]


COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def write(expr: Expr, paths: Sequence[str] = (), outer: str = "==") -> str:
    """Return an expression as text.

    Args:
        expr: the expression.
        paths: the names of the user inputs.
        outer: the operator around it; operands of arithmetic get brackets.

    >>> write(Apply("*", (Apply("+", (Sym("s0"), 1, Sym("s1"))), 2)))
    '(s0 + 1 + s1) * 2'
    >>> write(Apply("==", (Apply("*", (2, InputDim(0, 1))), Sym("s0"))), ["x"])
    '2 * x.size(1) == s0'
    """
    match expr:
        case Apply(op=op, args=args) if not op.isalpha() and len(args) > 1:
            text = f" {op} ".join([write(arg, paths, op) for arg in args])
            return text if outer in COMPARISONS else f"({text})"
        case Apply(op=op, args=args):
            return f"{op}({', '.join(write(arg, paths) for arg in args)})"
        case Sym(name=name):
            return name
        case InputDim(index=index, dim=dim, of=of):
            return f"{paths[index] if index < len(paths) else f'input {index}'}.{of}({dim})"
        case InputValue(index=index):
            return paths[index] if index < len(paths) else f"input {index}"
        case _:
            return str(expr)
