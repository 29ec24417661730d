"""The modules of a program as rows of a tree, with what is in and below each: modules that run equal bodies are one row.

``purefx.stats`` counts, and the calls say which body each module runs; here is only which rows there are.  Modules of a flat
program run no bodies, so each has its own row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from purefx.ir.calls.call_graph import bodies_of_calls
from purefx.ir.names import way_to
from purefx.ir.program import Program
from purefx.stats import ModuleStats, stats

__all__ = ["Row", "rows_of"]


@frozen
class Row:
    """One module, or several that run equal bodies and are children of one, or of such.

    >>> Row("a.0", ("a.0", "a.1"), 2, None, ("Block",), 4, 0, 0, None).label, Row("", ("",), 0, None, (), 0, 0, 0, None).label
    ('0, 1', '(root)')
    """

    path: str
    paths: tuple[str, ...]
    """Those of all; the numbers are the sums."""
    depth: int
    type_name: str | None
    bodies: tuple[str, ...]
    """The graphs that it runs, one for each kind of call."""
    operators: int
    parameters: int
    bytes: int
    flops: int | None
    like: str | None = None
    """A module in another place that has the same below it, which is not told again."""

    @property
    def label(self) -> str:
        """The last part of the path, or of all of them: ``0-31``."""
        names = list(dict.fromkeys([path.rpartition(".")[2] for path in self.paths])) if self.path else ["(root)"]
        start = int(names[0]) if len(names[0]) < 9 and names[0].isdecimal() else 0
        if len(names) > 2 and names == [str(number) for number in range(start, start + len(names))]:
            return f"{names[0]}-{names[-1]}"
        return ", ".join(names if len(names) < 5 else [*names[:2], "...", names[-1]])

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        found = asdict(self)
        return {**found, "class": found.pop("type_name"), "times": len(self.paths)}


def rows_of(program: Program, *, depth: int | None = None) -> list[Row]:
    """Return the rows, each before those of the modules in it.

    Args:
        program: a valid program at any stage.
        depth: how deep; 0 is the root alone.

    >>> import purefx as px
    >>> nodes = [px.Node(m, px.Op("toy.neg"), (px.Ref(x),), stack=(px.Frame(m),)) for m, x in (("a", "x"), ("b", "a"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("b"),))})
    >>> [(row.label, row.operators) for row in rows_of(program)]
    [('(root)', 2), ('a', 1), ('b', 1)]
    """
    tree = _Tree(program)
    rows: list[Row] = []
    told: dict[int, str] = {}
    todo: list[tuple[int, list[str]]] = [(0, [""])]
    while todo:
        level, places = todo.pop()
        path, kind = places[0], tree.kinds[places[0]]
        children = tree.groups(places)
        like = told.setdefault(kind, path) if children and tree.bodies.get(path) else path
        rows.append(tree.row(places, level, like if like != path else None))
        if like == path and (depth is None or level < depth):
            todo += [(level + 1, group) for group in reversed(children)]
    return rows


class _Tree:
    def __init__(self, program: Program) -> None:
        own = {module.path: module for module in stats(program).modules}
        self.own: Mapping[str, ModuleStats] = own
        paths = dict.fromkeys([above for path in own for above in ("", *way_to(path))])
        self.paths = paths or {"": None}
        self.children: dict[str, list[str]] = {path: [] for path in self.paths}
        for path in paths:
            if path:
                self.children[path.rpartition(".")[0]].append(path)
        self.bodies: dict[str, tuple[str, ...]] = {}
        for frame, body in bodies_of_calls(program):
            has = self.bodies.get(frame.path, ())
            if frame.path and body not in has:
                self.bodies[frame.path] = (*has, body)
        self.kinds: dict[str, int] = {}
        self._numbers: dict[Any, int] = {}
        self._totals: dict[str, tuple[int, int, int, int | None]] = {}
        for path in sorted(self.paths, key=_depth, reverse=True):
            self._add(path)

    def _add(self, path: str) -> None:
        one = self.own.get(path) or ModuleStats(path, None, 0, 0, 0, None)
        below = self.children[path]
        names = [(child.rpartition(".")[2], self.kinds[child]) for child in below]
        key = (one.type_name, self.bodies.get(path), one.operators, one.parameters, one.bytes, tuple(names))
        self.kinds[path] = self._numbers.setdefault(key, len(self._numbers))
        counts = (one.operators, one.parameters, one.bytes, one.flops)
        self._totals[path] = _sums([counts, *[self._totals[child] for child in below]])

    def groups(self, places: Sequence[str]) -> list[list[str]]:
        """Return the children of modules that are alike, those together that run equal bodies."""
        found: dict[Any, list[str]] = {}
        for place in places:
            for child in self.children[place]:
                name = child.rpartition(".")[2]
                found.setdefault(self.kinds[child] if child in self.bodies else name, []).append(child)
        return list(found.values())

    def row(self, places: Sequence[str], level: int, like: str | None) -> Row:
        """Return the row of some modules that are alike."""
        path, one = places[0], self.own.get(places[0])
        counts = _sums([self._totals[place] for place in places])
        return Row(path, tuple(places), level, one.type_name if one else None, self.bodies.get(path, ()), *counts, like)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _sums(counts: Sequence[tuple[int, int, int, int | None]]) -> tuple[int, int, int, int | None]:
    operators, parameters, sizes, flops = zip(*counts, strict=True)
    known = [count for count in flops if count is not None]
    return sum(operators), sum(parameters), sum(sizes), sum(known) if known else None
