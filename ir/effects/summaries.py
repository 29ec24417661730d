"""``summary``: what a whole body does, in terms of its inputs and of the state that it reads.

One idea: one walk in order of execution that knows of each value which inputs and which slots it may share memory with.  A
body is summed up once, however often it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field

from ..arguments import refs_in
from ..graph import Graph
from .aliasing import item_of, join_aliases, taken_apart
from .resolved import Happening, Shared
from .unions import Unions

__all__ = ["summary"]


def summary(graph: Graph, inner: Sequence[Happening]) -> Happening:
    """Return what a body does.

    Args:
        graph: the body.
        inner: what its nodes do.
    """
    origins = _Origins({formal.name: {formal.name} for formal in graph.inputs})
    writes: dict[str, None] = {}
    writes_slots: dict[str, None] = {}
    reads_slots: dict[str, None] = {}
    completes: dict[str, None] = {}
    apart = taken_apart(graph, inner)
    by_name = {node.name: happening for node, happening in zip(graph.nodes, inner, strict=True)} if apart else {}
    for node, happening in zip(graph.nodes, inner, strict=True):
        written = origins.of(happening.writes)
        writes.update(dict.fromkeys(written.values))
        writes_slots.update(dict.fromkeys((*written.slots, *happening.writes_slots)))
        reads_slots.update(dict.fromkeys((*happening.reads_slots, *happening.aliases_slots)))
        completes.update(dict.fromkeys(origins.of(happening.completes).values))
        if (item := item_of(node)) is not None and item[0] in apart:
            shared = by_name[item[0]].results[item[1]]
            origins.add(node.name, shared.values, shared.slots)
        else:
            origins.add(node.name, happening.aliases, happening.aliases_slots)
    given = origins.of(graph.output_refs())
    return Happening(
        writes=tuple(writes),
        writes_slots=tuple(writes_slots),
        reads_slots=tuple(reads_slots),
        aliases=given.values,
        aliases_slots=given.slots,
        results=tuple([origins.of(names, first) for names, first in _results(graph, inner)]),
        random=any(happening.random for happening in inner),
        ordered=any(happening.ordered for happening in inner),
        domains=tuple(dict.fromkeys([key for happening in inner for key in happening.domains])),
        completes=tuple(completes),
        scope=_scope(happening.scope for happening in inner),
    )


@define
class _Origins:
    """For each value the inputs and the slots that it may share memory with."""

    inputs: dict[str, set[str]]
    slots: dict[str, set[str]] = field(factory=dict)

    def of(self, names: Sequence[str], first: int = 0) -> Shared:
        inputs = {origin for name in names for origin in self.inputs.get(name, ())}
        slots = {origin for name in names for origin in self.slots.get(name, ())}
        return Shared(tuple(sorted(inputs)), tuple(sorted(slots)), first)

    def add(self, name: str, aliases: Sequence[str], slots: Sequence[str]) -> None:
        found = self.of(aliases)
        if found.values:
            self.inputs[name] = set(found.values)
        if found.slots or slots:
            self.slots[name] = {*found.slots, *slots}


def _results(graph: Graph, inner: Sequence[Happening]) -> list[tuple[list[str], int]]:
    # The values in each result of a body that gives several, and the number of the first that overlaps with it.
    if type(graph.output) is not tuple:
        return []
    memory = Unions()
    join_aliases(memory, graph, inner, lambda slot: ("slot", slot))
    first: dict[object, int] = {}
    found: list[tuple[list[str], int]] = []
    for number, item in enumerate(graph.output):
        names = refs_in((item,))
        for name in names[1:]:
            memory.join(names[0], name)
        found.append((names, first.setdefault(memory.find(names[0]), number) if names else number))
    return found


def _scope(steps: Iterable[tuple[int, int]]) -> tuple[int, int]:
    closes = opens = 0
    for closing, opening in steps:
        closes += max(0, closing - opens)
        opens = max(0, opens - closing) + opening
    return closes, opens
