"""``stats`` and ``tree``: the size of a program, in total and by module.

Torch's counter gives the floating point operations from shapes, without running the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from purefx.ir.analysis.numbers import too_much_work
from purefx.ir.arguments import Ref, thawed
from purefx.ir.calls.call_graph import bodies_of_calls, path_around
from purefx.ir.errors import ArgumentError
from purefx.ir.graph import Node, Op
from purefx.ir.inference import UNKNOWN, CallValues, ExampleValues, described, running
from purefx.ir.meta import Meta
from purefx.ir.names import escaped, last_name, parent_of, way_to
from purefx.ir.own_operators import tensors_of
from purefx.ir.persistent import Displayed
from purefx.ir.program import Program
from purefx.ir.state import SlotKind
from purefx.ir.torch_private import pytree
from purefx.ir.validation import a_program


class FlopCounter:
    """Counts the floating point operations of single nodes of one program; equal ones are counted once."""

    def __init__(self, program: Program) -> None:
        self.values = ExampleValues(program)
        self._known: dict[Any, int | None] = {}

    def node(self, node: Node, metas: Mapping[str, Meta]) -> int | None:
        """Return the operations of a node; None if they are unknown.

        Args:
            node: of any kind.
            metas: the meta of its operands.
        """
        do = node.do
        if (
            type(do) is not Op
            or do.target is None
            or do.effects.unknown
            or do.effects.through_bodies
        ):
            return None
        known = {name: self.values.example(metas[name].get("val")) for name in node.refs()}
        if any(value is None or value is UNKNOWN for value in known.values()):
            return None
        args = [
            thawed(arg, lambda leaf: known[leaf.name] if type(leaf) is Ref else leaf)
            for arg in node.args
        ]
        kwargs = {
            key: thawed(arg, lambda leaf: known[leaf.name] if type(leaf) is Ref else leaf)
            for key, arg in node.kwargs
        }
        if too_much_work(do.target, args) is not None:
            return None
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
            return None  # it would allocate memory, print, or draw random numbers
        key = do.name, described(args), described(kwargs)
        if key not in self._known:
            with running(self.values.mode):
                self._known[key] = _counted(do.target, args, kwargs)
        return self._known[key]


def _counted(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    from torch.utils.flop_counter import FlopCounterMode  # its import is slow and rarely needed

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            target(*args, **kwargs)
    except Exception:  # noqa: BLE001  it may have no kernel for tensors without contents, or raise anything for its arguments
        return None
    counts = counter.get_flop_counts().get("Global")
    return int(sum(counts.values())) if counts else None


SHOWN = 40
"""The maximal number of modules and operators in the text."""


@frozen
class ModuleStats:
    """One module, without the modules below it.

    >>> ModuleStats("layers.0", None, 2, 20, 80, None).path
    'layers.0'
    """

    path: str
    type_name: str | None
    operators: int
    """The number of operators that run in it."""
    parameters: int
    """The number of elements of its parameters; a tied one is counted at its first place."""
    bytes: int
    """The size of its state."""
    flops: int | None
    """Floating point operations of the operators that torch's counter knows; None if it knows none."""


@frozen
class Stats(Displayed):
    """The result of ``stats``; its text is a table.

    >>> print(str(Stats({"aten.relu.default": 1}, (), 1, 0, 0, None, {"aten.relu.default": 1})).splitlines()[0])
    1 operators in 0 modules (1 graphs)
    """

    _form = "table"
    operators: Mapping[str, int]
    """How often each operator runs, most frequent first."""
    modules: tuple[ModuleStats, ...]
    graphs: int
    parameters: int
    bytes: int
    flops: int | None
    """Floating point operations of one run; None if none is known."""
    uncounted: Mapping[str, int]
    """Operators that ``flops`` lacks, and how often they run."""

    def __str__(self) -> str:
        """Return a summary, then the operators and the modules as tables."""
        total = sum(self.operators.values())
        head = f"{total:,} operators in {len(self.modules):,} modules ({self.graphs:,} graphs)"
        size = f"{self.parameters:,} parameters, {self.bytes:,} bytes of state"
        missing = f"{sum(self.uncounted.values()):,} operators are not counted"
        counted = "unknown" if self.flops is None else f"{self.flops:,}"
        lines = [head, size, f"floating point operations: {counted} ({missing})", ""]
        lines += table(
            [
                ("operator", "runs"),
                *((name, f"{count:,}") for name, count in _first(self.operators.items())),
            ]
        )
        rows = [("module", "operators", "parameters", "bytes", "flops")]
        rows += [_row(module) for module in _first(self.modules)]
        more = max(len(self.operators), len(self.modules)) - SHOWN
        return "\n".join([*lines, "", *table(rows), *([f"... {more} more"] if more > 0 else [])])


def _row(module: ModuleStats) -> tuple[str, ...]:
    name = last_name(module.type_name or "")
    counts = (module.operators, module.parameters, module.bytes)
    flops = "-" if module.flops is None else f"{module.flops:,}"
    return (f"{module.path or '(root)'} {name}".strip(), *(f"{count:,}" for count in counts), flops)


def _first(items: Any) -> list[Any]:
    return list(items)[:SHOWN]


def table(rows: list[tuple[str, ...]], *, left: int = 1) -> list[str]:
    r"""Return rows as lines of columns.

    Names may be hostile: line breaks and terminal escapes in them are escaped.

    Args:
        rows: tuples of one length; the first has the titles.
        left: the number of left-aligned columns; the others are right-aligned.

    >>> table([("module", "runs"), ("a\nb", "12")])
    ['module  runs', 'a\\nb      12']
    """
    rows = [tuple([escaped(text).replace("\n", "\\n") for text in row]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[text.ljust(w) for text, w in zip(row[:left], widths, strict=False)] for row in rows]
    numbers = [
        [text.rjust(w) for text, w in zip(row[left:], widths[left:], strict=True)] for row in rows
    ]
    return ["  ".join([*words, *rest]).rstrip() for words, rest in zip(lines, numbers, strict=True)]


def stats(program: Program) -> Stats:
    """Count the operators, modules, parameters, bytes and floating point operations of a program.

    Args:
        program: a program at any stage.  Operations are counted from the fake values in meta, separately for each call of a
            shared body; operators without values are not counted.

    Returns:
        A value whose text is a table.

    Raises:
        TypeError: it is not a Program.

    >>> import torch, purefx as px
    >>> found = px.stats(px.capture(torch.nn.Linear(3, 4), (torch.ones(2, 3),)))
    >>> dict(found.operators), found.parameters, found.flops
    ({'aten.linear.default': 1}, 16, 48)
    """
    a_program(program, "stats")
    counter = FlopCounter(program)
    operators: Counter[str] = Counter()
    uncounted: Counter[str] = Counter()
    counts: dict[str, list[Counts]] = {}
    for run, places in [each for runs in CallValues(program).calls.values() for each in runs]:
        graph, times = run.body, sum(places.values())
        for node in graph.nodes:
            if type(node.do) is not Op:
                continue
            flops = counter.node(node, graph.metas)
            operators[node.do.name] += times
            if flops is None:
                uncounted[node.do.name] += times
            for path, count in places.items():
                each = (count, 0, 0, None if flops is None else count * flops)
                counts.setdefault(path_around(node, path), []).append(each)
    for path, parameters, size in _sizes(program):
        counts.setdefault(path, []).append((0, parameters, size, None))
    types = program.types
    paths = dict.fromkeys((*types, *counts))
    modules = tuple(
        [ModuleStats(path, types.get(path), *_sums(counts.get(path, ()))) for path in paths]
    )
    _, parameters, size, flops = _sums([one for each in counts.values() for one in each])
    ordered = [MappingProxyType(dict(each.most_common())) for each in (operators, uncounted)]
    return Stats(ordered[0], modules, len(program.order), parameters, size, flops, ordered[1])


def _sizes(program: Program) -> Iterator[tuple[str, int, int]]:
    # The module, the parameter elements and the bytes of each tensor of the state.
    seen: set[int] = set()
    for name, slot in program.state.pairs:
        path = name if slot.kind is SlotKind.MODULE else parent_of(name)
        for value in tensors_of(slot.value) if slot.kind is SlotKind.MODULE else (slot.value,):
            if isinstance(value, torch.Tensor) and id(value) not in seen:
                seen.add(id(value))
                own = value.numel() if isinstance(value, torch.nn.Parameter) else 0
                yield path, own, value.numel() * value.element_size()


Counts = tuple[int, int, int, int | None]
"""Operators, parameter elements, bytes and floating point operations."""


def _sums(counts: Sequence[Counts]) -> Counts:
    operators, parameters, sizes, flops = zip((0, 0, 0, None), *counts, strict=True)
    known = [count for count in flops if count is not None]
    return sum(operators), sum(parameters), sum(sizes), sum(known) if known else None


DEEPEST = 40
"""The deepest indentation of a row."""

FLAT = "The program is flat: no module has a body.  Use px.transform (--transform) to get one row for modules with equal bodies."


@frozen
class Row:
    """One module, or several with equal bodies and one parent, or parents in one row.

    >>> Row("a.0", ("a.0", "a.1"), 2, None, ("Block",), 4, 0, 0, None).label, Row("", ("",), 0, None, (), 0, 0, 0, None).label
    ('0, 1', '(root)')
    """

    path: str
    paths: tuple[str, ...]
    """The paths of all modules; the sizes are sums."""
    depth: int
    type_name: str | None
    bodies: tuple[str, ...]
    """The graphs that it runs, one for each kind of call."""
    operators: int
    parameters: int
    bytes: int
    flops: int | None
    like: str | None = None
    """An earlier module with the same modules below it, which are not repeated."""

    @property
    def label(self) -> str:
        """The last part of the paths, as in ``0-31``."""
        names = (
            list(dict.fromkeys([last_name(path) for path in self.paths]))
            if self.path
            else ["(root)"]
        )
        start = int(names[0]) if len(names[0]) < 9 and names[0].isdecimal() else 0
        if len(names) > 2 and names == [str(number) for number in range(start, start + len(names))]:
            return f"{names[0]}-{names[-1]}"
        return ", ".join(names if len(names) < 5 else [*names[:2], "...", names[-1]])


@frozen
class Tree(Displayed):
    """The modules of a program as rows, each before those of the modules in it; its text is a table.

    >>> Tree((Row("", ("",), 0, None, (), 1, 0, 0, None),)).rows[0].operators
    1
    """

    _form = "table"
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        """Return the rows as a table."""
        lines = table(
            [
                ("module", "", "class", "body", "operators", "parameters", "bytes", "flops"),
                *map(_cells, self.rows),
            ],
            left=4,
        )
        is_flat = len(self.rows) > 1 and not any(row.bodies for row in self.rows)
        return "\n".join([*lines, *(["", FLAT] if is_flat else [])])


def _cells(row: Row) -> tuple[str, ...]:
    times = f"x{len(row.paths):,}" if len(row.paths) > 1 else ""
    name = last_name(row.type_name or "")
    body = (
        f"as {row.like}" if row.like is not None else ", ".join([f"@{body}" for body in row.bodies])
    )
    counts = [f"{count:,}" for count in (row.operators, row.parameters, row.bytes)]
    flops = "-" if row.flops is None else f"{row.flops:,}"
    return ("  " * min(row.depth, DEEPEST) + row.label, times, name, body, *counts, flops)


def tree(program: Program, *, depth: int | None = None) -> Tree:
    """Return the tree of modules with the sizes of each; modules with equal bodies are one row.

    Args:
        program: a valid program at any stage.
        depth: levels below the root; 0 is the root alone.

    Raises:
        ArgumentError: the program is not a Program, or the depth is negative.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    >>> print(px.tree(px.transform(px.capture(model, (torch.ones(2),)))))
    module      class       body   operators  parameters  bytes  flops
    (root)      Sequential                 2           0      0      -
      0, 1  x2  ReLU        @ReLU          2           0      0      -
    """
    a_program(program, "tree")
    if depth is not None and depth < 0:
        raise ArgumentError(f"depth={depth}: pass the number of levels below the root, 0 or more")
    tree = _Modules(program)
    rows: list[Row] = []
    known: dict[int, str] = {}
    todo: list[tuple[int, list[str]]] = [(0, [""])]
    while todo:
        level, places = todo.pop()
        path, kind = places[0], tree.kinds[places[0]]
        children = tree.groups(places)
        like = known.setdefault(kind, path) if children and tree.bodies.get(path) else path
        rows.append(tree.row(places, level, like if like != path else None))
        if like == path and (depth is None or level < depth):
            todo += [(level + 1, group) for group in reversed(children)]
    return Tree(tuple(rows))


class _Modules:
    def __init__(self, program: Program) -> None:
        own = {module.path: module for module in stats(program).modules}
        self.own: Mapping[str, ModuleStats] = own
        paths = dict.fromkeys([above for path in own for above in ("", *way_to(path))])
        self.paths = paths or {"": None}
        self.children: dict[str, list[str]] = {path: [] for path in self.paths}
        for path in paths:
            if path:
                self.children[parent_of(path)].append(path)
        self.bodies: dict[str, tuple[str, ...]] = {}
        for frame, body in bodies_of_calls(program):
            has = self.bodies.get(frame.path, ())
            if frame.path and body not in has:
                self.bodies[frame.path] = (*has, body)
        self.kinds: dict[str, int] = {}
        self._numbers: dict[Any, int] = {}
        self._totals: dict[str, Counts] = {}
        for path in sorted(self.paths, key=_depth, reverse=True):
            self._add(path)

    def _add(self, path: str) -> None:
        one = self.own.get(path) or ModuleStats(path, None, 0, 0, 0, None)
        below = self.children[path]
        names = [(last_name(child), self.kinds[child]) for child in below]
        key = (
            one.type_name,
            self.bodies.get(path),
            one.operators,
            one.parameters,
            one.bytes,
            tuple(names),
        )
        self.kinds[path] = self._numbers.setdefault(key, len(self._numbers))
        counts = (one.operators, one.parameters, one.bytes, one.flops)
        self._totals[path] = _sums([counts, *[self._totals[child] for child in below]])

    def groups(self, places: Sequence[str]) -> list[list[str]]:
        """Return the children of equal modules, grouped by equal bodies."""
        found: dict[Any, list[str]] = {}
        for place in places:
            for child in self.children[place]:
                name = last_name(child)
                found.setdefault(self.kinds[child] if child in self.bodies else name, []).append(
                    child
                )
        return list(found.values())

    def row(self, places: Sequence[str], level: int, like: str | None) -> Row:
        """Return the row of equal modules."""
        path, one = places[0], self.own.get(places[0])
        counts = _sums([self._totals[place] for place in places])
        return Row(
            path,
            tuple(places),
            level,
            one.type_name if one else None,
            self.bodies.get(path, ()),
            *counts,
            like,
        )


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0
