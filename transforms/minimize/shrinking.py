"""Simpler types: numbers for symbols, smaller sizes, usual dtypes.

Each function takes the search and proposes candidates.  A size that is changed is changed wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...ir.expression import Apply, Sym
from ...ir.graph import Graph
from ...ir.inference import FakeValues
from ...ir.program import Program
from ...ir.signature import Constraints, NumberType, TensorType, UserInput
from .cutting import with_interface
from .retyping import Changes
from .search import Search
from .weight import literals_in

__all__ = ["shrink_sizes", "usual_dtypes", "without_symbols"]


def without_symbols(search: Search) -> None:
    """Put numbers in the place of symbolic sizes: those of the export, or the smallest that guards allow.

    Args:
        search: what is reduced.
    """
    search.offer("put numbers in the place of symbols", _with_numbers)


def _with_numbers(program: Program) -> Program | None:
    values, known = FakeValues(program), dict[str, Any]()
    for formal, spec in program.inputs:
        if type(spec) is UserInput and type(spec.type) is NumberType and spec.type.expr is not None:
            known[formal.name] = values.symbols.example(spec.type.expr)
    sizes = Changes(size=lambda size: values.symbols.example(size) if isinstance(size, Sym | Apply) else size)
    if None in known.values() or not (known or _symbols(program)):
        return None
    main = program.main
    pairs = [(formal, spec) for formal, spec in program.inputs if formal.name not in known]
    root = Graph(tuple([formal for formal, _ in pairs]), tuple([node.using(known) for node in main.nodes]), main.output)
    made = with_interface(program, root, [spec for _, spec in pairs], program.signature.outputs)
    return sizes.program(made.evolve(constraints=Constraints()))


def _symbols(program: Program) -> bool:
    kinds = [spec.type for spec in program.signature.inputs if type(spec) is UserInput]
    return any(isinstance(size, Sym | Apply) for kind in kinds if type(kind) is TensorType for size in kind.shape)


def shrink_sizes(search: Search) -> None:
    """Make sizes smaller, each wherever it stands, the largest first; alone, with literals, with its multiples.

    Args:
        search: what is reduced.
    """
    for size in sorted(_sizes(search.program), reverse=True):
        for less in dict.fromkeys((1, 2, 3, size // 2)):
            if 0 < less < size and any(
                search.offer(f"make sizes of {size} {less}", changes.program) for changes in _resizing(size, less)
            ):
                break


def _sizes(program: Program) -> set[int]:
    shapes = [spec.type.shape for spec in program.signature.inputs if type(spec) is UserInput and type(spec.type) is TensorType]
    shapes += [tuple(slot.value.shape) for _, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)]
    # A literal may be a factor of a size: views say those that belong together.
    shapes += [tuple(literals_in(node)) for _, node in program.nodes()]
    return {size for shape in shapes for size in shape if type(size) is int and 1 < size < LARGEST}


LARGEST = 2**31
"""Larger numbers among arguments mean the end."""


def _resizing(size: int, less: int) -> Iterator[Changes]:
    def one(number: Any) -> Any:
        return less if type(number) is int and number == size else number

    def multiples(number: Any) -> Any:
        return number // size * less if type(number) is int and number >= size and number % size == 0 else number

    yield Changes(size=one)
    yield Changes(size=one, literal=one)
    yield Changes(size=multiples, literal=multiples)


USUAL: Mapping[Any, torch.dtype] = {
    **dict.fromkeys((torch.float64, torch.bfloat16, torch.float16), torch.float32),
    **dict.fromkeys((torch.int32, torch.int16, torch.int8, torch.uint8), torch.int64),
}


def usual_dtypes(search: Search) -> None:
    """Compute in single precision and with long integers.

    Args:
        search: what is reduced.
    """
    for dtype, usual in USUAL.items():

        def change(value: Any, dtype: torch.dtype = dtype, usual: torch.dtype = usual) -> Any:
            return usual if value is dtype else value

        search.offer(f"{usual} in the place of {dtype}", Changes(dtype=change, literal=change).program)
