"""One function that says whether the flat inputs of a call are plainly right, written for one program.

One idea: it is straight-line code that compares types, dtypes and sizes and knows no message; where it is not sure (a
subclass of Tensor, a symbolic size, another dtype) it says False, and ``checks.py`` looks again and says what is wrong.  So it
may doubt what is right, and never accepts what ``checks.py`` refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define, field

from ..ir.arguments import same_arg
from ..ir.expression import OPERATORS, Apply, Expr, InputDim, InputValue, Sym, leaves_in
from ..ir.signature import ArgumentType, LiteralType, NumberType, TensorType

__all__ = ["quick_check"]

INFIX = frozenset({"-", "//", "/", "%", "==", "!=", "<", "<=", ">", ">="})
"""Operators of two numbers that Python writes likewise; others are called."""

Check = Callable[[Sequence[Any]], bool]


def quick_check(types: Sequence[ArgumentType], ranges: Sequence[tuple[Expr, float, float]], guards: Sequence[Expr]) -> Check:
    """Return a function that says whether flat inputs are plainly right.

    Args:
        types: of the inputs.
        ranges: expressions over symbols, each with what it may be at least and at most.
        guards: expressions over inputs that must be true.

    >>> check = quick_check([TensorType(torch.float32, (Sym("s0"), 3))], [(Sym("s0"), 3, 8)], [])
    >>> check([torch.ones(4, 3)]), check([torch.ones(2, 3)]), check([torch.ones(4, 3, dtype=torch.int32)])
    (True, False, False)
    """
    writer = _Writer()
    for index, kind in enumerate(types):
        writer.input(index, kind)
    for text, expected in writer.later:
        if writer.knows(expected):
            writer.must(f"{text} == {writer.text(expected)}")
    for expr, low, high in ranges:
        if writer.knows(expr):
            writer.must(f"{writer.entry(low)} <= {writer.text(expr)} <= {writer.entry(high)}")
    for guard in guards:
        writer.must(writer.text(guard))
    return writer.made(len(types))


@define
class _Writer:
    lines: list[str] = field(factory=list)
    table: dict[str, Any] = field(factory=dict)
    symbols: dict[Sym, str] = field(factory=dict)
    later: list[tuple[str, Expr]] = field(factory=list)
    """Sizes that are computed from symbols, which may be bound further on."""

    def must(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return False")

    def entry(self, value: Any) -> str:
        name = f"t{len(self.table)}"
        self.table[name] = value
        return name

    def knows(self, expr: Expr) -> bool:
        return all(leaf in self.symbols for leaf in leaves_in(expr) if isinstance(leaf, Sym))

    def input(self, index: int, kind: ArgumentType) -> None:
        match kind:
            case TensorType(dtype=dtype, shape=shape):
                self.must(f"(type(v{index}) is Tensor or type(v{index}) is Parameter) and v{index}.dtype is {self.entry(dtype)}")
                self._shape(index, shape)
            case LiteralType(value=value) if value is not None:
                self.must(f"{self.entry(same_arg)}({self.entry(value)}, v{index})")
            case NumberType(expr=expr):
                self.must(f"(type(v{index}) is int or type(v{index}) is float or type(v{index}) is bool)")
                if expr is not None and not isinstance(expr, int):
                    self._size(f"v{index}", expr)
            case _:
                pass

    def _shape(self, index: int, shape: tuple[Expr, ...]) -> None:
        if all(type(size) is int for size in shape):
            self.must(f"v{index}.shape == {self.entry(shape)}")
            return
        sizes = [f"v{index}_{dim}" for dim in range(len(shape))]
        self.lines.append(f"{', '.join(sizes)}, = v{index}.shape")
        for name, expected in zip(sizes, shape, strict=True):
            self._size(name, expected)

    def _size(self, name: str, expected: Expr) -> None:
        if isinstance(expected, Sym) and expected not in self.symbols:
            self.symbols[expected] = name
        elif isinstance(expected, Apply):
            self.later.append((name, expected))
        else:
            self.must(f"{name} == {self.text(expected)}")

    def text(self, expr: Expr) -> str:
        match expr:
            case Sym():
                return self.symbols[expr]
            case InputDim(index=index, dim=dim, of=of):
                return f"v{index}.{'size' if of == 'size' else 'stride'}({dim:d})"
            case InputValue(index=index):
                return f"v{index}"
            case Apply(op=op, args=(left, right)) if op in INFIX:
                return f"({self.text(left)} {op} {self.text(right)})"
            case Apply(op=op, args=args):
                return f"{self.entry(OPERATORS[op])}({', '.join(self.text(arg) for arg in args)})"
            case _:
                return self.entry(expr)

    def made(self, count: int) -> Check:
        names = "".join(f"v{index}, " for index in range(count))
        body = [f"{names}= values"] if count else []
        body += [*self.lines, "return True"]
        wrong = "except (TypeError, ValueError, ArithmeticError, IndexError): return False"
        source = "\n".join(["def check(values):", "    try:", *(f"        {line}" for line in body), f"    {wrong}"])
        names_of: dict[str, Any] = {**self.table, "Tensor": torch.Tensor, "Parameter": torch.nn.Parameter}
        exec(compile(source, "<purefx checks>", "exec"), names_of)  # noqa: S102  the text is ours: values are in the table
        return names_of["check"]
