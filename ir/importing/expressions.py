"""sympy expressions become ``Expr`` values.

One idea: a table from sympy's node types to our operators; what is not in it is refused by name, never printed and
evaluated.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch

from ..errors import UnsupportedProgram
from ..expression import Apply, Expr, Sym

__all__ = ["read_expression", "read_size"]

OPERATORS = {
    "Add": "+", "Mul": "*", "Pow": "**", "PowByNatural": "**", "FloorDiv": "//", "CleanDiv": "//", "IntTrueDiv": "/",
    "CeilDiv": "ceildiv", "Mod": "%", "PythonMod": "%", "Max": "max", "Min": "min", "Abs": "abs", "Equality": "==",
    "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">", "GreaterThan": ">=",
    "And": "and", "Or": "or", "Not": "not",
}  # fmt: skip


def read_size(size: Any) -> Expr:
    """Return a size as an expression; a plain integer is itself."""
    if isinstance(size, torch.SymInt):
        return read_expression(size.node.expr)
    return int(size)


def read_expression(expr: Any) -> Expr:
    """Return a sympy expression as ours.

    Raises:
        UnsupportedProgram: it has a function that we do not know.

    >>> read_expression(2 * sympy.Symbol("s0") + 1)
    Apply(op='+', args=(1, Apply(op='*', args=(2, Sym(name='s0')))))
    """
    if isinstance(expr, sympy.Symbol):
        return Sym(str(expr.name))
    if isinstance(expr, sympy.Integer | int):
        return int(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if isinstance(expr, sympy.Rational):
        return Apply("/", (int(expr.p), int(expr.q)))
    if isinstance(expr, sympy.Float):
        return float(expr)
    op = OPERATORS.get(type(expr).__name__)
    if op is None:
        raise UnsupportedProgram(f"the size {expr} uses {type(expr).__name__}, which is not supported")
    return Apply(op, tuple(read_expression(arg) for arg in expr.args))
