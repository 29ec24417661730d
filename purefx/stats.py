"""``stats``: how large a program is, and what it is made of.

One idea: everything is counted as it runs from the root: a body that is called twice counts twice, a tensor that has two names
counts once.  Of an operator that is given bodies each body counts once, whichever of them runs.  What an operator costs is asked
in each call: bodies are shared by calls of other sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from purefx._flops import FlopCounter
from purefx.ir.arguments import bodies_in
from purefx.ir.fakes import CallValues
from purefx.ir.graph import Graph
from purefx.ir.names import escaped
from purefx.ir.node import Call, Node, Op
from purefx.ir.opaque import tensors_of
from purefx.ir.paths import join
from purefx.ir.program import Program
from purefx.ir.state import SlotKind

__all__ = ["ModuleStats", "Stats", "stats"]

SHOWN = 40
"""How many modules and operators the text names."""


@frozen
class ModuleStats:
    """One module, without what is below it.

    >>> ModuleStats("layers.0", None, 2, 20, 80, None).path
    'layers.0'
    """

    path: str
    type_name: str | None
    operators: int
    """How many operators run in it."""
    parameters: int
    """How many numbers its parameters have; a tied one is counted where it comes first."""
    bytes: int
    """How large its state is."""
    flops: int | None
    """Floating point operations of those that torch's counter knows; None where it knows none."""


@frozen
class Stats:
    """What ``stats`` found; its text is a table.

    >>> print(str(Stats({"aten.relu.default": 1}, (), 1, 0, 0, None, {"aten.relu.default": 1})).splitlines()[0])
    1 operators in 0 modules (1 graphs)
    """

    operators: Mapping[str, int]
    """How often each operator runs, most frequent first."""
    modules: tuple[ModuleStats, ...]
    graphs: int
    parameters: int
    bytes: int
    flops: int | None
    """Floating point operations of one run; None where none is known."""
    uncounted: Mapping[str, int]
    """Operators that are not in ``flops``, and how often they run."""

    def __str__(self) -> str:
        """Return a summary, then the operators and the modules as tables."""
        total = sum(self.operators.values())
        head = f"{total:,} operators in {len(self.modules):,} modules ({self.graphs:,} graphs)"
        size = f"{self.parameters:,} parameters, {self.bytes:,} bytes of state"
        missing = f"{sum(self.uncounted.values()):,} operators are not counted"
        counted = "unknown" if self.flops is None else f"{self.flops:,}"
        lines = [head, size, f"floating point operations: {counted} ({missing})", ""]
        lines += _table([("operator", "runs"), *((name, f"{count:,}") for name, count in _first(self.operators.items()))])
        rows = [("module", "operators", "parameters", "bytes", "flops")]
        rows += [_row(module) for module in _first(self.modules)]
        more = max(len(self.operators), len(self.modules)) - SHOWN
        return "\n".join([*lines, "", *_table(rows), *([f"... {more} more"] if more > 0 else [])])


def _row(module: ModuleStats) -> tuple[str, ...]:
    name = (module.type_name or "").rpartition(".")[2]
    counts = (module.operators, module.parameters, module.bytes)
    flops = "-" if module.flops is None else f"{module.flops:,}"
    return (f"{module.path or '(root)'} {name}".strip(), *(f"{count:,}" for count in counts), flops)


def _first(items: Any) -> list[Any]:
    return list(items)[:SHOWN]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    # Names are whatever a program says; a table is printed, so none of them may end its line or speak to the terminal.
    rows = [tuple([escaped(text).replace("\n", "\\n") for text in row]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pairs = [list(zip(row, widths, strict=True)) for row in rows]
    return ["  ".join([first.ljust(width), *(text.rjust(w) for text, w in rest)]) for (first, width), *rest in pairs]


def stats(program: Program) -> Stats:
    """Count the operators, modules, parameters, bytes and floating point operations of a program.

    Args:
        program: a program at any stage.  Operations are counted from the fake values in meta, in a shared body from those of each
            call; what has none is not counted.

    Returns:
        A value whose text is a table.

    Raises:
        TypeError: it is no Program.

    >>> import torch, purefx as px
    >>> found = px.stats(px.capture(torch.nn.Linear(3, 4), (torch.ones(2, 3),)))
    >>> dict(found.operators), found.parameters, found.flops
    ({'aten.linear.default': 1}, 16, 48)
    """
    if not isinstance(program, Program):
        raise TypeError(f"stats takes a purefx Program, not a {type(program).__name__}; start with import_ep(ep)")
    counter = FlopCounter()
    operators: Counter[str] = Counter()
    uncounted: Counter[str] = Counter()
    by_module: dict[str, list[int | None]] = {}
    for graph, places in _places(program):
        for node, flops in zip(graph.nodes, counter.graph(graph), strict=True):
            if type(node.do) is not Op:
                continue
            times = sum(places.values())
            operators[node.do.name] += times
            if flops is None:
                uncounted[node.do.name] += times
            for path, count in places.items():
                _add(by_module, _home(node, path), count, flops)
    sizes = _sizes(program)
    modules = tuple(_modules(program, by_module, sizes))
    return Stats(
        MappingProxyType(dict(operators.most_common())),
        modules,
        len(program.order),
        sum(parameters for parameters, _ in sizes.values()),
        sum(size for _, size in sizes.values()),
        _total([module.flops for module in modules]),
        MappingProxyType(dict(uncounted.most_common())),
    )


def _places(program: Program) -> list[tuple[Graph, dict[str, int]]]:
    # How often each graph runs, by the path of the module that it runs in; once for each call that gives it other values.
    values = CallValues(program)
    found: dict[str, dict[int, tuple[Any, dict[str, int]]]] = {name: {} for name in reversed(program.bottom_up)}
    found[program.root][id(values.root)] = (values.root, {"": 1})
    for name, runs in found.items():
        for call, places in runs.values():
            for node in program.graphs[name].callers:
                do = node.do
                inner = [do.graph] if type(do) is Call else bodies_in(node.args, node.kwargs)
                for callee in inner:
                    run = values.inner(call, node, callee)
                    _, counts = found[callee].setdefault(id(run), (run, {}))
                    for path, count in places.items():
                        place = join(path, do.instance.path) if type(do) is Call else _home(node, path)
                        counts[place] = counts.get(place, 0) + count
    return [(values.body(name, call), places) for name, runs in found.items() for call, places in runs.values()]


def _home(node: Node, path: str) -> str:
    return join(path, node.stack[-1].path) if node.stack else path


def _add(by_module: dict[str, list[int | None]], path: str, count: int, flops: int | None) -> None:
    known = by_module.setdefault(path, [0, None])
    known[0] = (known[0] or 0) + count
    if flops is not None:
        known[1] = (known[1] or 0) + count * flops


def _sizes(program: Program) -> dict[str, tuple[int, int]]:
    # Numbers in parameters and bytes of state, by module; each tensor once.
    found: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    tensors: set[int] = set()
    for name, slot in program.state.pairs:
        if slot.cell in seen:
            continue
        seen.add(slot.cell)
        path = name if slot.kind is SlotKind.MODULE else name.rpartition(".")[0]
        values = tensors_of(slot.value) if slot.kind is SlotKind.MODULE else (slot.value,)
        for value in values:
            if isinstance(value, torch.Tensor) and id(value) not in tensors:
                tensors.add(id(value))
                parameters, size = found.get(path, (0, 0))
                own = value.numel() if isinstance(value, torch.nn.Parameter) else 0
                found[path] = (parameters + own, size + value.numel() * value.element_size())
    return found


def _modules(
    program: Program, by_module: dict[str, list[int | None]], sizes: dict[str, tuple[int, int]]
) -> Iterator[ModuleStats]:
    types = {module.path: module.type_name for module in program.modules}
    for path in dict.fromkeys((*types, *by_module, *sizes)):
        operators, flops = by_module.get(path, (0, None))
        yield ModuleStats(path, types.get(path), operators or 0, *sizes.get(path, (0, 0)), flops)


def _total(flops: list[int | None]) -> int | None:
    known = [count for count in flops if count is not None]
    return sum(known) if known else None
