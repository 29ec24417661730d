"""Histories of all nodes of a version, as rows: what ``purefx.history`` says of each, worked out together.

The versions of a program are made once, where ``history`` makes them for each question.
"""

from __future__ import annotations

from collections.abc import Sequence

from purefx.ir.analysis.history import changes_of, in_order, origins_at, path_of, state_of
from purefx.ir.calls.call_graph import all_instances
from purefx.ir.origins import INPUT, Imported, Place, Version, roots_at
from purefx.ir.program import Program
from purefx.ir.show.values import said_line
from purefx.report.rows import Tables
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
        path = path_of(self._program.graphs[graph].by_name.get(name), self._paths.get(graph, ()))
        roots, state = roots_at(found, path), state_of(self._program, reads, path, self._paths)
        if not (roots or state):
            return NOTHING
        text, tables = self._tables.texts.text, self._tables
        changes = [
            (one.number, text(one.step), tuple(map(text, one.rules)), *self._listed(one.before), *self._listed(one.after))
            for one in changes_of(self._every, found, Place(graph, name, op))
        ]
        nodes = in_order([one for one in roots if one.op != INPUT])
        inputs = sorted([one.name for one in roots if one.op == INPUT])
        return tables.histories.add((
            tuple(map(tables.changes.add, changes)),
            tables.lists.add(tuple(map(self._imported, nodes[:MOST_IMPORTED]))), len(nodes),
            tuple(map(text, inputs[:MOST])), tuple(map(text, state[:MOST])),
        ))  # fmt: skip

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
