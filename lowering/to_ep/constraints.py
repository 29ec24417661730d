"""Ranges and guards as an exported program has them.

One idea: ranges are keyed by the very symbols that the fake values of the inputs have; guards are Python text over the
arguments by name, which ``ep.module()`` compiles and ``import_ep`` reads back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.export import ModuleCallEntry

from ...ir.errors import UnsupportedProgram
from ...ir.expression import Apply, Expr, InputDim, InputValue
from ...ir.program import Program
from ...ir.torch_private import pytree, ranges_in, symbolic_range
from .graphs import Made

__all__ = ["guard_texts", "range_constraints"]

CALLED = frozenset({"max", "min", "abs"})


def range_constraints(program: Program, root: Made) -> dict[Any, Any]:
    """Return the bounds of all symbols: those that the program states, then those of symbols that it leaves free.

    Args:
        program: its constraints are what is stated.
        root: the graph, whose fake values have the symbols.
    """
    free = ranges_in([node.meta["val"] for node in root.nodes.values()])
    known = {str(symbol): symbol for symbol in free}
    made: dict[Any, Any] = {}
    for span in program.constraints.ranges:
        found = symbolic_range(span.expr, span.low, span.high)
        if found is not None:
            made[known.get(str(found[0]), found[0])] = found[1]
    stated = {str(symbol) for symbol in made}
    return made | {symbol: bounds for symbol, bounds in free.items() if str(symbol) not in stated}


def guard_texts(program: Program, root: ModuleCallEntry) -> list[str]:
    """Return the guards as Python text.

    Args:
        program: its constraints hold the guards.
        root: the entry of the root among the module calls, which names the arguments.

    Raises:
        UnsupportedProgram: a guard has an operator that Python does not.
    """
    guards = program.constraints.guards
    if not guards:
        return []
    assert root.signature is not None
    spellings = _spellings(root.signature.in_spec, root.signature.forward_arg_names or [])
    return [_bare(_written(guard, spellings)) if isinstance(guard, Apply) else _written(guard, spellings) for guard in guards]


def _spellings(in_spec: Any, names: list[str]) -> list[str]:
    leaves = pytree.tree_unflatten(list(range(in_spec.num_leaves)), in_spec)
    found: list[str] = []
    for path, _ in pytree.tree_flatten_with_path(leaves)[0]:
        side, first, *rest = path
        name = first.key if side.idx else names[first.idx] if first.idx < len(names) else f"arg_{first.idx}"
        found.append(f"L[{name!r}]{pytree.keystr(tuple(rest))}")
    return found


def _written(expr: Expr, spellings: list[str]) -> str:
    match expr:
        case Apply(op=op, args=args):
            return _applied(op, [_written(arg, spellings) for arg in args])
        case InputDim(index=index, dim=dim, of=of):
            return f"{spellings[index]}.{of}()[{dim}]"
        case InputValue(index=index):
            return spellings[index]
        case bool() | int() | float():
            return repr(expr)
        case _:
            raise UnsupportedProgram(f"a guard speaks of {expr}, which is no input; write it over sizes of inputs")


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") else text


PREFIXES: Mapping[str, str] = {"neg": "-", "not": "not "}


def _applied(op: str, args: list[str]) -> str:
    if op in PREFIXES:
        return f"({PREFIXES[op]}{args[0]})"
    if op in CALLED:
        return f"{op}({', '.join(args)})"
    if op == "if":
        test, then, other = args
        return f"({then} if {test} else {other})"
    if op == "ceildiv":
        return f"(-((-{args[0]}) // {args[1]}))"
    return f"({f' {op} '.join(args)})"
