"""``borders_of``: the values of a program at the sizes 0 and 1 that it accepts.

torch traces each open size as if it were at least 2.  So what a recorded value says (its rank, which sizes are equal, whether it
is contiguous) is only proven from 2 on, also where the range of the size starts at 0 or 1.  A transformation that asks such a
question asks it again at each border: there all sizes are numbers, and operators are run on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, product
from typing import Any

import torch

from ..expression import UNCOMPUTABLE, Expr, Sym, evaluate
from ..forks import cached_property
from ..graph import Node
from ..program import Program
from ..signature import Range
from ..torch_private import finite, pytree, ranges_in
from .interpreter import Interpreter, Run
from .results import all_agree
from .values import UNKNOWN, ExampleValues, sizes_of_inputs

ASSUMED = 2
"""The smallest size that torch assumes when it traces an open size."""

EXAMPLE = 3
"""The number of a data-dependent size that is not at its border."""

ALL_COMBINATIONS = 3
"""With more open sizes, only two of them are at a border at the same time, or all of them."""


class Border:
    """The values of a program where some of its open sizes are 0 or 1, and the others those of the export.

    Args:
        program: the program.
        sizes: the sizes that are 0 or 1, by symbol.
        others: numbers for data-dependent sizes, by symbol.
        before: the same border of an earlier version of the program; its values are reused.
    """

    def __init__(
        self,
        program: Program,
        sizes: Mapping[str, int],
        others: Mapping[str, int],
        before: Border | None = None,
    ) -> None:
        self.sizes, self.others = sizes, others
        self.domain = _BorderValues(program, {**others, **sizes})
        """The fake values; all their sizes are numbers."""
        if before is not None and before.others == others:
            self.domain.reuse(before.domain)
        self._values: dict[tuple[str, str], Any] = {}

    def __str__(self) -> str:
        return " and ".join([f"{name} = {size}" for name, size in self.sizes.items()])

    @cached_property
    def _runs(self) -> Mapping[str, Sequence[Run]]:
        interpreter = Interpreter(self.domain.program, values=self.domain)
        interpreter.walk()
        return interpreter.runs

    def value(self, graph: str, name: str) -> Any:
        """Return the value of a node or an input of a graph; None if it is unknown, or differs between the calls."""
        if (graph, name) not in self._values:
            self._values[graph, name] = self._common(graph, name)
        return self._values[graph, name]

    def agrees(self, graph: str, name: str, recorded: Any, dim: int | None = None) -> bool:
        """Return whether a number, or a dimension of a tensor, is what a recorded size says.

        Args:
            graph: the graph of the value.
            name: the number or the tensor.
            recorded: the recorded size.
            dim: the dimension of the tensor; None for a number.
        """
        value, size = self.value(graph, name), self.domain.example(recorded)
        if dim is not None:
            is_there = isinstance(value, torch.Tensor) and dim < value.dim()
            value = value.shape[dim] if is_there else None
        return size is not UNKNOWN and value == size

    def _common(self, graph: str, name: str) -> Any:
        meta = self.domain.program.graphs[graph].metas.get(name, {})
        if meta.get("val") is None:
            return None
        runs = self._runs.get(graph, ())
        values = [run.known[name] for run in runs if name in run.known]
        if not values:
            values = [self.domain.example(meta["val"])]  # no call of the body could be inferred
        is_known = all(value is not UNKNOWN for value in values)
        return values[0] if is_known and all_agree(values[0], values[1:]) else None


class _BorderValues(ExampleValues):
    """The domain of a border: it keeps the results of operators for later versions of the program."""

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        super().__init__(program, sizes)
        self._results: dict[Hashable, tuple[Any, Any]] = {}
        """Each result, by node and operands, with these objects: their ids stay valid."""

    def reuse(self, before: _BorderValues) -> None:
        """Share the fake values and the results of a domain with equal sizes."""
        self.mode, self._made, self._results = before.mode, before._made, before._results
        self._numbers = before._numbers

    def run(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator; the earlier result if the node and its operands are the same objects."""
        leaves = pytree.tree_leaves((args, kwargs))
        key = id(node), *map(_identity, leaves)
        if (known := self._results.get(key)) is not None:
            return known[0]
        result = super().run(node, target, args, kwargs)
        if not any(map(callable, leaves)):  # a body is run again, for its own values
            self._results[key] = result, (node, leaves)
        return result


def _identity(leaf: Any) -> Hashable:
    is_number = isinstance(leaf, bool | int | float)
    return (type(leaf), repr(leaf)) if is_number else id(leaf)


def borders_of(program: Program, before: Sequence[Border] = ()) -> tuple[Border, ...]:
    """Return the borders of a program: one for each choice of 0 or 1 for open sizes whose ranges include it.

    A fact about sizes is proven if it holds for the recorded values and at each border.  Most programs have no border:
    ``Dim.DYNAMIC`` and ``Dim.AUTO`` start at 2.

    Args:
        program: any program; its constraints have the ranges.
        before: the borders of an earlier version; only the values of changed nodes are inferred again.

    >>> from purefx.ir import Graph
    >>> borders_of(Program.of({"": Graph((), (), ())}))
    ()
    """
    ranges = _ranges(program)
    low = {name: _small(span) for name, span in ranges.items() if _small(span)}
    if not low:
        return ()
    others = {name: _example(span) for name, span in ranges.items() if not name.startswith("s")}
    accepted = [sizes for sizes in _choices(low) if _is_accepted(program, sizes)]
    earlier = {tuple(border.sizes.items()): border for border in before}
    return tuple(
        [Border(program, sizes, others, earlier.get(tuple(sizes.items()))) for sizes in accepted]
    )


def _ranges(program: Program) -> dict[str, Range]:
    # The range of each symbol.  An fx graph has no constraints, and its environment has the assumption of torch as a range: any
    # size may be 0 or 1 there.
    spans = program.constraints.ranges
    if spans:
        return {span.expr.name: span for span in spans if isinstance(span.expr, Sym)}
    known = ranges_in([formal.meta.get("val") for formal in program.main.inputs])
    ranges: dict[str, Range] = {}
    for symbol, bounds in known.items():
        if symbol.is_integer:
            size = Sym(str(symbol))
            ranges[size.name] = Range(size, 0, finite(bounds.upper))
    return ranges


def _small(span: Range) -> list[int]:
    end = ASSUMED if span.high is None else min(span.high + 1, ASSUMED)
    return list(range(max(span.low or 0, 0), end))


def _example(span: Range) -> int:
    least = max(span.low or 0, EXAMPLE)
    return least if span.high is None else min(least, span.high)


def _choices(low: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    # The borders: each non-empty set of sizes, with each small number for each of them.
    names = list(low)
    for count in range(1, len(names) + 1):
        if ALL_COMBINATIONS < len(names) != count > 2:
            continue
        for chosen in combinations(names, count):
            options = [low[name] for name in chosen]
            if len(chosen) > ALL_COMBINATIONS:
                yield from _equal(chosen, low)
                continue
            for numbers in product(*options):
                yield dict(zip(chosen, numbers, strict=True))


def _equal(names: Sequence[str], low: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    for number in range(ASSUMED):
        yield {name: number if number in low[name] else low[name][0] for name in names}


def _is_accepted(program: Program, sizes: Mapping[str, int]) -> bool:
    # Whether no range and no guard excludes it; those with other symbols may hold for some of their numbers.
    known = {Sym(name): number for name, number in sizes.items()}
    for span in program.constraints.ranges:
        if (number := _number(span.expr, known)) is not None and (
            (span.low is not None and number < span.low)
            or (span.high is not None and number > span.high)
        ):
            return False
    if not program.constraints.guards:
        return True
    places = {
        place: number
        for place, size in sizes_of_inputs(program).items()
        if (number := _number(size, known)) is not None
    }
    return all(_number(guard, places) is not False for guard in program.constraints.guards)


def _number(expr: Expr, known: Mapping[Any, Any]) -> Any:
    with suppress(KeyError, *UNCOMPUTABLE):
        return evaluate(expr, known)
    return None
