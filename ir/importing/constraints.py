"""Ranges and guards of an exported program, as expressions over its user inputs.

sympy expressions become ``Expr`` values; unsupported functions are refused by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from ..analysis.numbers import SYMBOLIC
from ..calls.argument_tree import ArgumentTree
from ..errors import UnsupportedProgram
from ..expression import Apply, Expr, InputDim, InputValue, Sym
from ..signature import (
    ArgumentType,
    Constraints,
    LiteralType,
    NumberType,
    ObjectType,
    Range,
    TensorType,
)
from ..torch_private import device_of, finite, guards_of, pytree, sympy

SYMPY_OPERATORS = {
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
    """Convert a sympy expression to an ``Expr``.

    Raises:
        UnsupportedProgram: it uses an unsupported function.

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
    op = SYMPY_OPERATORS.get(type(expr).__name__)
    if op is None:
        raise UnsupportedProgram(
            f"the size {expr} uses {type(expr).__name__}, which is not supported"
        )
    return Apply(op, tuple(read_expression(arg) for arg in expr.args))


def tensor_type(value: torch.Tensor) -> TensorType:
    """Return the type of an argument that is a tensor, fake or not.

    >>> tensor_type(torch.ones(2, 3))
    TensorType(dtype=torch.float32, shape=(2, 3), device='cpu')
    """
    shape = tuple([read_size(size) for size in value.shape])
    return TensorType(value.dtype, shape, str(device_of(value)))


def type_of(value: Any) -> ArgumentType:
    """Return the type of an argument with a fake value.

    >>> type_of(torch.ones(2))
    TensorType(dtype=torch.float32, shape=(2,), device='cpu')
    """
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, SYMBOLIC):
        kind = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(value)]
        return NumberType(kind, read_size(value) if kind == "int" else None)
    if value is None or isinstance(value, bool | int | float | str):
        return LiteralType(value)
    return ObjectType(type(value).__name__)


OPERATORS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%", ast.Pow: "**",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg",
}  # fmt: skip

FUNCTIONS = {
    "max": "max",
    "min": "min",
    "abs": "abs",
    "Max": "max",
    "Min": "min",
    "Mod": "%",
    "FloorDiv": "//",
}


def read_constraints(ep: ExportedProgram) -> Constraints:
    """Return the ranges of symbols and the guards of an exported program.

    Raises:
        UnsupportedProgram: a guard cannot be translated; the message quotes it.
    """
    ranges: list[Range] = []
    for symbol, bounds in ep.range_constraints.items():
        low, high = finite(bounds.lower), finite(bounds.upper)
        if low is not None or high is not None:
            ranges.append(Range(read_expression(symbol), low, high))
    texts = guards_of(ep)
    places = _places(ep, texts) if texts else {}
    return Constraints(tuple(ranges), tuple(read_guard(text, places) for text in texts))


def _places(ep: ExportedProgram, texts: Sequence[str]) -> dict[str, int]:
    # Guards spell the path of a user input by argument name, or flat.  An argument of ``*xs`` is an item of xs in guards, and
    # has the name xs_0 in the signature; one of ``**options`` is an item of options, and has its own name.
    call = ep.module_call_graph[0].signature
    if call is None:
        return {}
    names, tree = (
        call.forward_arg_names or [],
        ArgumentTree.of(call.in_spec, example=ep.example_inputs),
    )
    rests = {name for text in texts for name in re.findall(r"L\['(\w+)'\]", text)} - {
        *names,
        "flat_args",
    }
    found: dict[str, int] = {}
    for index, (number, path) in enumerate(tree.places):
        key = tree.keys[number]
        if isinstance(key, str):
            spelled = [f"[{key!r}]", *[f"[{rest!r}][{key!r}]" for rest in rests]]
        else:
            name = names[key] if key < len(names) else ""
            rest, _, item = name.rpartition("_")
            spelled = [f"[{name!r}]", *([f"[{rest!r}][{item}]"] if rest in rests else [])]
        for head in (
            f"['flat_args'][{index}]",
            *[start + pytree.keystr(path) for start in spelled],
        ):
            found.setdefault(f"L{head}", index)
    return found


def read_guard(text: str, places: Mapping[str, int]) -> Expr:
    """Return a guard as an expression.

    Args:
        text: Python text as torch writes guards.
        places: the number of the user input for each path, spelled as ``ast.unparse`` does.

    Raises:
        UnsupportedProgram: it uses something beyond sizes, numbers and comparisons.

    >>> read_guard("2*L['x'].size()[0] == L['y'].size()[0]", {"L['x']": 0, "L['y']": 1})
    Apply(op='==', args=(Apply(op='*', args=(2, InputDim(index=0, dim=0, of='size'))), InputDim(index=1, dim=0, of='size')))
    """
    try:
        return _translate(ast.parse(text.strip(), mode="eval").body, places)
    except (SyntaxError, KeyError, RecursionError) as error:
        raise UnsupportedProgram(f"the guard {text!r} cannot be enforced here ({error})") from error


def _translate(tree: ast.expr, places: Mapping[str, int]) -> Expr:
    match tree:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return Apply(OPERATORS[type(op)], (_translate(left, places), _translate(right, places)))
        case ast.UnaryOp(op=op, operand=operand):
            return Apply(OPERATORS[type(op)], (_translate(operand, places),))
        case ast.BoolOp(op=op, values=values):
            return Apply(OPERATORS[type(op)], tuple(_translate(value, places) for value in values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_translate(side, places) for side in (left, *others)]
            parts = [
                Apply(OPERATORS[type(op)], (a, b))
                for op, a, b in zip(ops, sides, sides[1:], strict=False)
            ]
            return parts[0] if len(parts) == 1 else Apply("and", tuple(parts))
        case ast.IfExp(test=test, body=body, orelse=other):
            return Apply("if", tuple(_translate(part, places) for part in (test, body, other)))
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=base, attr=("size" | "stride") as of), args=[]),
            slice=ast.Constant(value=int() as dim),
        ):
            return InputDim(places[ast.unparse(base)], dim, of)
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return Apply(FUNCTIONS[name], tuple(_translate(arg, places) for arg in args))
        case _:
            return InputValue(places[ast.unparse(tree)])
