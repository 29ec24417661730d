"""Do the types and sizes that a program was exported for hold where it is put?

One idea: sizes are compared as numbers where both are, and bound to the program's symbols where it has some; its ranges and
guards must then hold.  What can not be told to hold is refused: inside of another program nobody checks it.  A symbolic size is
only ever compared as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field

from ..arguments import Arg, Ref, same_arg
from ..expression import Expr, InputDim, InputValue, Sym, evaluate
from ..program import Program
from ..signature import ArgumentType, LiteralType, NumberType, TensorType, UserInput

__all__ = ["misfits"]

Bounds = tuple[int | None, int | None]


def misfits(program: Program, leaves: Sequence[Arg], values: Mapping[str, Any], outer: Program) -> Iterator[str]:
    """Yield what of a program's inputs does not hold for some arguments.

    Args:
        program: what is put in the place of a module; it has user inputs only.
        leaves: the arguments, one for each input.
        values: fake values of the caller, by name, as far as they are known.
        outer: the program of the caller, whose sizes have ranges.

    >>> from purefx.ir import Program
    >>> list(misfits(Program.of({}), (), {}, Program.of({})))
    []
    """
    bounds = {found.expr.name: (found.low, found.high) for found in outer.constraints.ranges if type(found.expr) is Sym}
    work = _Binding(bounds)
    for index, (spec, leaf) in enumerate(zip(program.signature.inputs, leaves, strict=True)):
        if type(spec) is UserInput:
            known = values.get(leaf.name) if type(leaf) is Ref else leaf
            said = work.leaf(index, spec.type, leaf, known)
            yield from (f"its input {spec.argument or index} {fault}" for fault in said)
    for found in program.constraints.ranges:
        yield from work.range(found.expr, found.low, found.high)
    for guard in program.constraints.guards:
        yield from work.guard(guard)


@define
class _Binding:
    bounds: Mapping[str, Bounds]
    known: dict[Any, Any] = field(factory=dict)
    """What the program's symbols and sizes are here: numbers, or the text of a symbolic size."""

    def leaf(self, index: int, kind: ArgumentType, leaf: Arg, value: Any) -> Iterator[str]:
        match kind:
            case LiteralType(value=expected):
                if type(leaf) is Ref or not same_arg(expected, leaf):
                    yield f"was exported as the constant {expected!r}, and is {_said(leaf)} here"
            case TensorType():
                if type(leaf) is not Ref:
                    yield f"is a tensor, and the constant {leaf!r} here"
                elif isinstance(value, torch.Tensor):
                    yield from self._tensor(index, kind, value)
            case NumberType(kind=number, expr=expr):
                if type(leaf) is not Ref and type(leaf).__name__ != number:
                    yield f"is a number ({number}), and {_said(leaf)} here"
                self.known[InputValue(index)] = _size(value)
                if expr is not None:
                    yield from self._bind(expr, _size(value), "")
            case _:
                pass

    def _tensor(self, index: int, kind: TensorType, value: torch.Tensor) -> Iterator[str]:
        if kind.dtype is not value.dtype:
            yield f"is a {kind.dtype}, and a {value.dtype} here"
        if len(kind.shape) != value.dim():
            yield f"has {len(kind.shape)} dimensions, and {value.dim()} here"
            return
        for dim, (expected, found) in enumerate(zip(kind.shape, value.shape, strict=True)):
            self.known[InputDim(index, dim)] = _size(found)
            yield from self._bind(expected, _size(found), f"in dimension {dim} ")

    def _bind(self, expected: Expr, found: Any, where: str) -> Iterator[str]:
        if type(expected) is Sym:
            before = self.known.setdefault(expected, found)
            if before != found:
                yield f"{where}has the size of another one, {before}, and {found} here"
        elif type(expected) is int and expected != found:
            more = "; export it with that dimension dynamic" if type(found) is str else ""
            yield f"{where}was exported for the size {expected}, and that is {found} here{more}"
        elif type(expected) is not int and self._value(expected) != found:
            yield f"{where}can not be told to have the size that it was exported for"

    def _value(self, expr: Expr) -> Any:
        try:
            return evaluate(expr, self.known)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    def range(self, expr: Expr, low: int | None, high: int | None) -> Iterator[str]:
        found = self.known.get(expr)
        if found is None:
            return
        mine = (found, found) if type(found) is int else self.bounds.get(found, (None, None))
        below = low is not None and low > 2 and (mine[0] is None or mine[0] < low)
        if below or (type(found) is int and low is not None and found < low):
            yield f"it was exported for sizes from {low} on, and one is {found} here"
        if high is not None and (mine[1] is None or mine[1] > high):
            yield f"it was exported for sizes up to {high}, and one is {found} here"

    def guard(self, guard: Expr) -> Iterator[str]:
        held = self._value(guard)
        if held is not True:
            yield f"it was exported under a guard that {'does not hold' if held is False else 'can not be told to hold'} here"


def _size(value: Any) -> Any:
    return value if type(value) is int or value is None else str(value)


def _said(leaf: Arg) -> str:
    return "a value" if type(leaf) is Ref else repr(leaf)
