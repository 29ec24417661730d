"""Private names of torch for symbolic sizes: symbols, their environments and bounds.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import sympy
import torch
import torch.utils._sympy.functions
import torch.utils._sympy.numbers
import torch.utils._sympy.value_ranges
from torch.utils._traceback import CapturedTraceback

from .fakes import FakeTensor

__all__ = [
    "fresh_bindings", "new_shape_env", "new_symbol", "ranges_in", "size_number", "symbol_facts", "symbolic_range",
    "symbols_of", "sympy_operators",
]  # fmt: skip


def size_number(size: Any) -> int | float | bool | None:
    """Return what a symbolic number was when its program was exported; None where only a run can say.

    Its symbols are replaced by the numbers that the exporter saw; no public way to that number leaves the environment as it
    is: comparing or converting a symbolic number installs a guard.
    """
    node = size.node
    number = node.expr.xreplace(node.shape_env.backed_var_to_val)
    return None if number.free_symbols else cast("int | float | bool", node.pytype(number))


def new_shape_env() -> Any:
    """Return an environment for symbolic sizes; no public module has the class."""
    # Importing these takes a quarter of what purefx takes, and few programs ask.
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv()


def new_symbol(env: Any, name: str, number: int, low: int | None, high: int | None) -> torch.SymInt:
    """Return a symbolic integer of a given name: what torch does when it loads an exported program.

    Args:
        env: the environment that it lives in.
        name: of the symbol; ``u0`` is one that no input tells.
        number: what stands for it where a size must be decided.
        low: the bounds, both included; None is what sizes have.
        high: likewise.
    """
    symbol = _symbol(name)
    is_backed = name.startswith("s")
    if is_backed:
        env.add_backed_var_to_val(symbol, number)
    infinite = torch.utils._sympy.numbers.int_oo
    env.constrain_symbol_range(symbol, compiler_min=0 if low is None else low, compiler_max=infinite if high is None else high)
    env.var_to_stack[symbol] = CapturedTraceback.extract(skip=1)
    return cast(torch.SymInt, env.create_symintnode(symbol, hint=number if is_backed else None))


def _symbol(name: str) -> Any:
    # As torch makes it: a size that an input tells is positive.
    return sympy.Symbol(name, integer=True, positive=True) if name.startswith("s") else sympy.Symbol(name, integer=True)


def symbols_of(env: Any) -> dict[str, Any]:
    """Return the symbolic integers of an environment by name."""
    if env is None:
        return {}
    numbers: Mapping[Any, Any] = env.backed_var_to_val
    symbols = [symbol for symbol in env.var_to_range if symbol not in env.replacements]
    hints = {symbol: int(numbers[symbol]) if symbol in numbers else None for symbol in symbols}
    return {str(symbol): env.create_symintnode(symbol, hint=hint) for symbol, hint in hints.items()}


def ranges_in(values: Iterable[Any]) -> dict[Any, Any]:
    """Return the bounds of the symbols in fake values, as their environment has them, in the order in which they are met."""
    found: dict[Any, Any] = {}
    for value in values:
        for part in value if isinstance(value, tuple | list) else (value,):
            sizes: Iterable[Any] = (*part.shape, *part.stride()) if isinstance(part, FakeTensor) else (part,)
            for size in sizes:
                if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool):
                    node = size.node
                    known = node.shape_env.var_to_range
                    symbols = sorted(node.expr.free_symbols, key=str)
                    found.update((symbol, known[symbol]) for symbol in symbols if symbol in known and symbol not in found)
    return found


def fresh_bindings(env: Any, value: Any) -> Any:
    """Return where a fake value holds symbols that its operator has just made, and take them from the list of those to bind."""
    from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

    return compute_unbacked_bindings(env, value)


def symbolic_range(expr: Any, low: int | None, high: int | None) -> tuple[Any, Any] | None:
    """Return a symbol and its bounds as ``ep.range_constraints`` has them; None for an expression.

    >>> from purefx.ir.expression import Sym
    >>> symbolic_range(Sym("s0"), 2, None)
    (s0, VR[2, int_oo])
    """
    name = getattr(expr, "name", None)
    if name is None:
        return None
    infinite = torch.utils._sympy.numbers.int_oo
    symbol = _symbol(name)
    bounds: Any = torch.utils._sympy.value_ranges.ValueRanges
    return symbol, bounds(-infinite if low is None else low, infinite if high is None else high)


def symbol_facts(node: Any, symbol: Any) -> tuple[int | None, int | None, int | None]:
    """Return what the environment of a symbolic number knows of one of its symbols: the number that was seen, and its bounds.

    Args:
        node: the node of a symbolic number.
        symbol: one of the symbols in its expression.
    """
    env = node.shape_env
    bounds = env.var_to_range.get(symbol)
    ends = (None, None) if bounds is None else (bounds.lower, bounds.upper)
    return _finite(env.backed_var_to_val.get(symbol)), _finite(ends[0]), _finite(ends[1])


def _finite(number: Any) -> int | None:
    if number is None or not getattr(number, "is_Integer", False) or abs(int(number)) >= 2**62:
        return None
    return int(number)


def sympy_operators() -> Mapping[str, Callable[..., Any]]:
    """Return what makes sympy expressions as torch has them, by the names of ``purefx.ir.expression``.

    >>> sympy_operators()["//"](sympy.Symbol("s0"), 2)
    (s0//2)
    """
    return _SYMPY_OPERATORS


_functions: Any = torch.utils._sympy.functions

_SYMPY_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": sympy.Add, "*": sympy.Mul, "**": sympy.Pow, "-": lambda a, b: a - b, "neg": lambda a: -a,
    "//": _functions.FloorDiv, "/": _functions.IntTrueDiv, "%": _functions.Mod, "ceildiv": _functions.CeilDiv,
    "max": _functions.Max, "min": _functions.Min, "abs": sympy.Abs, "==": sympy.Eq, "!=": sympy.Ne, "<": sympy.Lt,
    "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge, "and": sympy.And, "or": sympy.Or, "not": sympy.Not,
}  # fmt: skip
