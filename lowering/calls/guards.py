"""Guards of the flat inputs: a fast generated function without messages, and one that explains what it refused.

They check types, dtypes, shapes, baked-in values, ranges and guards of the export.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define, field

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import same_arg
from ...ir.errors import InputValueError
from ...ir.expression import (
    OPERATORS,
    UNCOMPUTABLE,
    Apply,
    Expr,
    InputDim,
    InputValue,
    Sym,
    evaluate,
    inputs_in,
    leaves_in,
    write,
)
from ...ir.program import Program
from ...ir.signature import ArgumentType, LiteralType, NumberType, ObjectType, Range, RestType, TensorType, UserInput
from .data import foreign_class

__all__ = ["LeafChecks", "quick_check"]

INFIX = frozenset({"-", "//", "/", "%", "==", "!=", "<", "<=", ">", ">="})
"""Operators of two numbers that Python writes likewise; others are called."""

Check = Callable[[Sequence[Any]], bool]


def quick_check(types: Sequence[ArgumentType], ranges: Sequence[tuple[Expr, float, float]], guards: Sequence[Expr]) -> Check:
    """Return the fast guard: a function that returns whether flat inputs are plainly valid.

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


class LeafChecks:
    """Checks the flat inputs of one program; ``floating`` is set once the module was converted to another dtype."""

    def __init__(self, program: Program) -> None:
        specs = [spec for spec in program.signature.inputs if type(spec) is UserInput]
        self.count = len(specs)
        self.floating = False
        self.paths = [spec.argument or f"input {index}" for index, spec in enumerate(specs)]
        self.types = [spec.type for spec in specs]
        self.tensors = [(index, kind.dtype, _static(kind)) for index, kind in enumerate(self.types) if type(kind) is TensorType]
        self.others = [(index, kind) for index, kind in enumerate(self.types) if type(kind) in (LiteralType, NumberType)]
        self.dynamic = [(index, kind) for index, kind in enumerate(self.types) if _has_symbols(kind)]
        self.ranges = [bounds for bounds in program.constraints.ranges if bounds.low is not None or bounds.high is not None]
        self.guards = [guard for guard in program.constraints.guards if guard is not True]
        self.only = [
            (index, spec.only)
            for index, spec in enumerate(specs)
            if spec.only is not None and type(spec.type) in (ObjectType, RestType, LiteralType)
        ]
        """Arguments that nothing else checks, in programs from outside, and which classes they may have besides data."""
        self.quick = quick_check(self.types, [(bounds.expr, *_ends(bounds)) for bounds in self.ranges], self.guards)
        """Says whether inputs are plainly right."""

    def run(self, values: Sequence[Any]) -> None:
        """Check the inputs of one call.

        Raises:
            InputValueError: the first that is wrong, by name, with what was expected.
        """
        self.only_data(values)
        if torch.compiler.is_compiling() or not self.quick(values):
            self.look(values)

    def only_data(self, values: Sequence[Any]) -> None:
        """Check that a program from an untrusted source gets no object whose methods it could call.

        Raises:
            InputValueError: it is, in an argument whose type says nothing.
        """
        for index, kinds in self.only:
            odd = foreign_class(values[index], kinds)
            if odd is not None:
                name = f"{odd.__module__}.{odd.__qualname__}"
                raise InputValueError(
                    f"argument {self.paths[index]}: a program from a file or text takes data here (tensors, numbers, "
                    f"strings and containers of them), got a {name}; load(..., types=[{odd.__name__}]) lets it call its methods"
                )

    def look(self, values: Sequence[Any]) -> None:
        """Look at each input of one call, and raise as ``run`` does; the slow half of it."""
        for index, dtype, shape in self.tensors:
            value = values[index]
            if not isinstance(value, torch.Tensor):
                raise self._wrong(index, f"got {_describe(value)}")
            if value.dtype is not dtype and not (self.floating and value.is_floating_point() and dtype.is_floating_point):
                raise self._wrong(index, f"got dtype {value.dtype}")
            if shape is not None and value.shape != shape:
                raise self._wrong(index, f"got shape {tuple(value.shape)}")
        for index, kind in self.others:
            self._check_other(index, kind, values[index])
        if self.dynamic or self.guards or self.ranges:
            self._check_sizes(values)

    def _check_other(self, index: int, kind: ArgumentType, value: Any) -> None:
        if isinstance(kind, LiteralType):
            # None was dropped from the program: like ep.module(), do not look at what is passed for it.
            if kind.value is not None and not same_arg(kind.value, value):
                raise self._wrong(index, f"got {_describe(value)}")
        elif not isinstance(value, (int, float, bool, *SYMBOLIC)):
            raise self._wrong(index, f"got {_describe(value)}")

    def _check_sizes(self, values: Sequence[Any]) -> None:
        known: dict[Any, Any] = {}
        for index, kind in self.dynamic:
            for size, expected in self._sizes(index, kind, values[index]):
                if isinstance(expected, Sym) and known.setdefault(expected, size) != size:
                    raise self._wrong(
                        index, f"got {_sizes_of(values[index])}, but {expected.name} is {known[expected]} in an earlier argument"
                    )
        for index, kind in self.dynamic:
            for size, expected in self._sizes(index, kind, values[index]):
                if isinstance(expected, Sym) or not _bound(leaves_in(expected), known):
                    continue
                wanted = self._value(expected, known)
                if wanted != size:
                    raise self._wrong(index, f"got {_sizes_of(values[index])}, where {write(expected)} is {wanted}")
        for bounds in self.ranges:
            self._check_range(bounds, known, values)
        for guard in self.guards:
            if not self._value(guard, _given(guard, values)):
                names = ", ".join(dict.fromkeys(self.paths[index] for index in inputs_in(guard)))
                raise InputValueError(f"argument {names}: the program was exported for inputs with {write(guard, self.paths)}")

    def _sizes(self, index: int, kind: Any, value: Any) -> list[tuple[Any, Expr]]:
        if isinstance(kind, NumberType):
            return [(value, kind.expr)] if kind.expr is not None else []
        if value.dim() != len(kind.shape):
            raise self._wrong(index, f"got shape {tuple(value.shape)}")
        for size, expected in zip(value.shape, kind.shape, strict=True):
            if isinstance(expected, int) and size != expected:
                raise self._wrong(index, f"got shape {tuple(value.shape)}")
        return [pair for pair in zip(value.shape, kind.shape, strict=True) if not isinstance(pair[1], int)]

    def _check_range(self, bounds: Range, known: dict[Any, Any], values: Sequence[Any]) -> None:
        if not _bound(leaves_in(bounds.expr), known):
            return
        size = self._value(bounds.expr, known | _given(bounds.expr, values))
        low, high = _ends(bounds)
        if low <= size <= high:
            return
        for index, kind in self.dynamic:
            if any(expected == bounds.expr for _, expected in self._sizes(index, kind, values[index])):
                raise self._wrong(
                    index, f"got {_sizes_of(values[index])}, where {write(bounds.expr)} must be {_range(low, high)}"
                )
        raise InputValueError(f"{write(bounds.expr)} is {size}, but must be {_range(low, high)}")

    def _value(self, expr: Expr, known: dict[Any, Any]) -> Any:
        try:
            return evaluate(expr, known)
        except UNCOMPUTABLE as error:
            read = ", ".join(dict.fromkeys(self.paths[index] for index in inputs_in(expr))) or "sizes"
            said = f"argument {read}: the program was exported for inputs with {write(expr, self.paths)}, which has no value here"
            raise InputValueError(f"{said} ({error})") from None

    def _wrong(self, index: int, got: str) -> InputValueError:
        return InputValueError(f"argument {self.paths[index]}: expected {_expected(self.types[index])}, {got}")


def _ends(bounds: Range) -> tuple[float, float]:
    # A lower bound of 2 is the exporter's assumption that a dynamic size is not 0 or 1; sizes 0 and 1 still run.
    low = bounds.low if bounds.low is not None and bounds.low > 2 else -math.inf
    return low, bounds.high if bounds.high is not None else math.inf


def _static(kind: TensorType) -> tuple[int, ...] | None:
    return kind.shape if all(type(size) is int for size in kind.shape) else None  # type: ignore[return-value]


def _has_symbols(kind: Any) -> bool:
    if isinstance(kind, NumberType):
        return kind.expr is not None and not isinstance(kind.expr, int)
    return isinstance(kind, TensorType) and _static(kind) is None


def _bound(leaves: Sequence[Expr], known: dict[Any, Any]) -> bool:
    return all(leaf in known for leaf in leaves if isinstance(leaf, Sym))


def _given(expr: Expr, values: Sequence[Any]) -> dict[Any, Any]:
    return {leaf: _read(leaf, values) for leaf in leaves_in(expr) if isinstance(leaf, InputDim | InputValue)}


def _read(leaf: Any, values: Sequence[Any]) -> Any:
    value = values[leaf.index]
    if isinstance(leaf, InputValue):
        return value
    return value.size(leaf.dim) if leaf.of == "size" else value.stride(leaf.dim)


def _range(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low}"
    return f"at most {high}" if low == -math.inf else f"between {low} and {high}"


def _sizes_of(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{value!r}"


def _describe(value: Any) -> str:
    return f"{value!r}" if isinstance(value, int | float | str | bool | type(None)) else f"a {type(value).__name__}"


def _expected(kind: Any) -> str:
    match kind:
        case TensorType(dtype=dtype, shape=shape):
            sizes = ", ".join(write(size) for size in shape)
            return f"a tensor of shape ({sizes}{',' * (len(shape) == 1)}) and dtype {dtype}"
        case LiteralType(value=value):
            return f"the value {value!r} that the program was exported with"
        case NumberType(kind=name):
            return f"a number ({name})"
        case _:
            return "what the program was exported with"
