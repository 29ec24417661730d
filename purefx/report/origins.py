"""Histories of all nodes of a version, as rows: what ``purefx.history`` says of each, worked out together.

The versions of a program are made once, where ``history`` makes them for each question.
"""

from __future__ import annotations

from collections.abc import Sequence

from purefx.ir.analysis.history import (
    _back,  # pyright: ignore[reportPrivateUsage]  what ``history`` does when it has the versions
)
from purefx.ir.analysis.versions import origins_at
from purefx.ir.calls.call_graph import all_instances
from purefx.ir.graph import Call, Get
from purefx.ir.names import is_below, join
from purefx.ir.origins import INPUT, Imported, Place, Version, roots_at
from purefx.ir.program import Program
from purefx.report.rows import Tables, said_line
from purefx.report.table import NOTHING

__all__ = ["Histories"]

MOST = 64
"""How many places of a change the page has; it says how many there are."""

MOST_IMPORTED = 8
"""The same for imported nodes."""


class Histories:
    """Answers for the nodes of one version of a program.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (px.Node("y", px.Op("toy.one")),), (px.Ref("y"),))})
    >>> Histories(program, (), Tables()).of("", "y", "toy.one")
    -1
    """

    def __init__(self, program: Program, every: Sequence[Version], tables: Tables) -> None:
        self._program = program
        self._every = every
        self._tables = tables
        self._paths = all_instances(program)
        self._known: dict[Imported, int] = {}

    @property
    def root(self) -> str:
        """The id of the graph whose inputs have histories."""
        return self._program.root

    def of(self, graph: str, name: str, op: str) -> int:
        """Return the number of the history of a node; -1 where nothing is known.

        Args:
            graph: the id of its graph.
            name: of the node.
            op: what it does, in a word.
        """
        found, reads = origins_at(self._program, graph, name)
        path = self._path(graph, name)
        roots, state = roots_at(found, path), self._state(reads, path)
        if not (roots or state):
            return NOTHING
        text, tables = self._tables.texts.text, self._tables
        changes = [
            (one.number, text(one.step), tuple(map(text, one.rules)), *self._listed(one.before), *self._listed(one.after))
            for one in _back(self._every, found, Place(graph, name, op))
        ]
        nodes = sorted([one for one in roots if one.op != INPUT], key=_order)
        inputs = sorted([one.name for one in roots if one.op == INPUT])
        return tables.histories.add((
            tuple(map(tables.changes.add, changes)),
            tables.lists.add(tuple(map(self._imported, nodes[:MOST_IMPORTED]))), len(nodes),
            tuple(map(text, inputs[:MOST])), tuple(map(text, state[:MOST])),
        ))  # fmt: skip

    def _path(self, graph: str, name: str) -> str | None:
        # The module that runs it, if one does.
        node = self._program.graphs[graph].by_name.get(name)
        paths = self._paths.get(graph, [])
        if node is not None and type(node.do) is Call:
            paths = [join(path, node.do.instance.path) for path in paths]
        return paths[0] if len(paths) == 1 else None

    def _state(self, reads: Sequence[tuple[str, str]], at: str | None) -> list[str]:
        graphs = self._program.graphs
        slots = [(graph, do.slot) for graph, name in reads if type(do := graphs[graph].by_name[name].do) is Get]
        every = [(path, join(path, slot)) for graph, slot in slots for path in self._paths.get(graph, ())]
        mine = [slot for path, slot in every if at is not None and (path == at or is_below(path, at))]
        return sorted({*(mine or [slot for _, slot in every])})

    def _listed(self, places: tuple[Place, ...]) -> tuple[int, int]:
        text, add = self._tables.texts.text, self._tables.places.add
        rows = [add((text(one.graph), text(one.name), text(one.op))) for one in places[:MOST]]
        return self._tables.lists.add(tuple(rows)), len(places)

    def _imported(self, origin: Imported) -> int:
        found = self._known.get(origin)
        if found is None:
            text = self._tables.texts.text
            module = str(origin.stack[-1]) if origin.stack else None
            found = self._tables.imported.add((text(origin.name), text(origin.op), text(module), text(said_line(origin))))
            self._known[origin] = found
        return found


def _order(origin: Imported) -> tuple[str, str, str]:
    return origin.graph, origin.stack[-1].path if origin.stack else "", origin.name
