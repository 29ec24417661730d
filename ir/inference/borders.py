"""``borders_of``: the values of a program at the sizes 0 and 1 that it accepts.

torch traces each open size as if it were at least 2.  So what a recorded value says (its rank, which sizes are equal, whether it
is contiguous) is only proven from 2 on, also where the range of the size starts at 0 or 1.  A transformation that asks such a
question asks it again at each border: there all sizes are numbers, and operators are run on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import combinations, product
from typing import Any

import torch
from attrs import Factory, define

from ..expression import UNCOMPUTABLE, Expr, Sym, evaluate
from ..forks import cached_property
from ..graph import Node
from ..program import Program
from ..signature import Range
from ..torch_private import autocast_is_on, finite, ranges_in
from .interpreter import Interpreter, Run
from .results import all_agree, changes_sizes
from .values import (
    ASSUMED,
    LITERALS,
    UNKNOWN,
    ExampleValues,
    has_open_sizes,
    sizes_of_inputs,
)

EXAMPLE = 3
"""The number of a data-dependent size that is not at its border."""

OpenValues = Mapping[str, Collection[str]]
"""The names of the values that have open sizes or depend on them, by graph."""

ALL_COMBINATIONS = 3
"""With more open sizes, only two of them are at a border at the same time, or all of them."""


@define(eq=False)
class Border:
    """The values of a program where some of its open sizes are 0 or 1, and the others those of the export."""

    sizes: Mapping[str, int]
    """The sizes that are 0 or 1, by symbol."""
    domain: _BorderValues
    """The fake values; all their sizes are numbers."""
    _values: dict[tuple[str, str], Any] = Factory(dict)

    def __str__(self) -> str:
        return " and ".join([f"{name} = {size}" for name, size in self.sizes.items()])

    @cached_property
    def _interpreter(self) -> Interpreter:
        return Interpreter(self.domain.program, values=self.domain)

    def value(self, graph: str, name: str) -> Any:
        """Return the value of a node or an input of a graph; None if it is unknown, or differs between the calls."""
        if (graph, name) not in self._values:
            self._values[graph, name] = self._common(graph, name)
        return self._values[graph, name]

    def agrees(self, graph: str, name: str, dim: int | None = None) -> bool:
        """Return whether a number, or a dimension of a tensor, is what a recorded size says.

        Args:
            graph: the graph of the value.
            name: the number or the tensor.
            dim: the dimension of the tensor; None for a number.
        """
        value, size = self.value(graph, name), self.domain.program.graphs[graph].metas[name]["val"]
        if dim is not None:
            is_there = isinstance(value, torch.Tensor) and dim < value.dim()
            value, size = value.shape[dim] if is_there else None, size.shape[dim]
        size = self.domain.example(size)
        return size is not UNKNOWN and value == size

    def _common(self, graph: str, name: str) -> Any:
        meta = self.domain.program.graphs[graph].metas.get(name, {})
        if meta.get("val") is None:
            return None
        recorded, runs = self.domain.example(meta["val"]), tuple[Run, ...]()
        if recorded is UNKNOWN or self.domain.doubts(graph, name):
            runs = self._interpreter.runs_with(graph, name)
        # If no call of the body could be inferred, it is the recorded value.
        values = [run.known[name] for run in runs if name in run.known] or [recorded]
        is_known = all(value is not UNKNOWN for value in values)
        return values[0] if is_known and all_agree(values[0], values[1:]) else None


@define(eq=False)
class _Shared:
    """The fake values and the results of operators at all borders, also of later versions of the program."""

    fakes: ExampleValues
    """Makes the fake values."""
    numbers: dict[Hashable, Any] = Factory(dict)
    """The fake values and the numbers at some sizes, by recorded value."""
    results: dict[Hashable, tuple[Any, Any]] = Factory(dict)
    """Each result, by operator and operands, with these objects: their ids stay valid."""


class _BorderValues(ExampleValues):
    """The domain of a border."""

    def __init__(
        self,
        program: Program,
        sizes: Mapping[str, int],
        open_values: Callable[[], OpenValues],
        shared: _Shared,
    ) -> None:
        super().__init__(program, sizes)
        self.open_values, self.shared = open_values, shared
        self.mode, self.fake = shared.fakes.mode, shared.fakes.fake
        known = self._made, self._numbers
        self._made, self._numbers = shared.numbers.setdefault(tuple(sizes.items()), known)

    def doubts(self, graph: str, name: str) -> bool:
        """Return whether a value depends on an open size; others are as torch recorded them."""
        return name in self.open_values()[graph]

    def run(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator; the earlier result if it had the same operands, as in an equal layer."""
        if node.callees:  # a body is run again, for its own values
            return super().run(node, target, args, kwargs)
        modes = torch.is_grad_enabled(), autocast_is_on()
        key = id(node.do), modes, _identity(args), _identity(kwargs)
        results = self.shared.results
        if key not in results:
            results[key] = super().run(node, target, args, kwargs), (node, args, kwargs)
        return results[key][0]


def _identity(arg: Any) -> Hashable:
    if isinstance(arg, dict):
        return dict, *map(_identity, arg.items())
    if isinstance(arg, tuple | list):
        return type(arg), *map(_identity, arg)
    return (type(arg), repr(arg)) if type(arg) in LITERALS else id(arg)


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
    shared = before[0].domain.shared if before else _Shared(ExampleValues(program))
    open_values = cache(partial(_open_values, program))
    accepted = [sizes for sizes in _choices(low) if _is_accepted(program, sizes)]
    return tuple(
        [
            Border(sizes, _BorderValues(program, {**others, **sizes}, open_values, shared))
            for sizes in accepted
        ]
    )


def _open_values(program: Program) -> OpenValues:
    # The values that have open sizes or depend on them, by graph.
    graphs = program.graphs
    values: dict[str, set[str]] = {}
    for name in program.bottom_up:
        metas, callers = graphs[name].metas, graphs[name].callers
        values[name] = {key for key in metas if has_open_sizes(metas[key].get("val"))}
        values[name] |= {each.name for each in callers if any(map(values.get, each.callees))}
    for name in reversed(program.bottom_up):
        for node in graphs[name].nodes:
            if changes_sizes(node.do):
                values[name].update(node.refs())
            if node.name in values[name] or not values[name].isdisjoint(node.refs()):
                values[name].add(node.name)
                for body in node.callees:
                    values[body].update(formal.name for formal in graphs[body].inputs)
    return values


def _ranges(program: Program) -> dict[str, Range]:
    # The range of each symbol.  An fx graph has no constraints, and its environment has the assumption of torch as a range: any
    # size may be 0 or 1 there.
    spans = program.constraints.ranges
    ranges = {span.expr.name: span for span in spans if isinstance(span.expr, Sym)}
    known = ranges_in([formal.val for formal in program.main.inputs])
    for symbol, bounds in known.items():
        size = Sym(str(symbol))
        if symbol.is_integer and size.name not in ranges:
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
