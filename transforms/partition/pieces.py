"""Parts that are used again: tags a, b, a become the parts ``a``, ``b``, ``a_1``.

One idea: in the order of the tags, each runs as far as it can with what is there; a later visit of a tag is another part.
Where every tag can be had in one piece this is what placing does without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ...ir.names import Names

__all__ = ["in_pieces"]


def in_pieces(tags: tuple[str, ...], wanted: Sequence[int | None], before: list[list[int]]) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the parts, and the part of each node.

    Args:
        tags: the tags in the order in which they are tried.
        wanted: the number of the tag of each node; a node without one goes to the part that runs when it can.
        before: for each node those that it depends on.

    >>> in_pieces(("a", "b"), [0, 1, 0], [[], [0], [1]])
    (('a', 'b', 'a_1'), [0, 1, 2])
    """
    work = _Pieces(len(tags), wanted, before)
    visits = _with_unused(work.run(), tags)
    names, fresh = [], Names(tags)
    part_of: dict[int, int] = {}
    seen: set[int] = set()
    for number, (tag, visit) in enumerate(visits):
        names.append(fresh.fresh(tags[tag]) if tag in seen else tags[tag])
        seen.add(tag)
        part_of[visit] = number
    return tuple(names), [part_of[visit] for visit in work.of]


def _with_unused(visits: list[int], tags: Sequence[str]) -> list[tuple[int, int]]:
    # A tag that no node has is a part without nodes, before the first part whose tag comes later.
    found = [(tag, number) for number, tag in enumerate(visits)]
    for tag in range(len(tags)):
        if tag not in visits:
            at = next((index for index, (other, _) in enumerate(found) if other > tag), len(found))
            found.insert(at, (tag, -1 - tag))
    return found


class _Pieces:
    """One walk over the nodes in an order in which each tag goes on for as long as it can."""

    def __init__(self, count: int, wanted: Sequence[int | None], before: list[list[int]]) -> None:
        self.count = count
        self.wanted = wanted
        self.waiting = [len(earlier) for earlier in before]
        self.after: list[list[int]] = [[] for _ in before]
        for number, earlier in enumerate(before):
            for other in earlier:
                self.after[other].append(number)
        self.ready: dict[int, list[int]] = {}
        self.free: list[int] = []
        """Nodes without a tag that can run."""
        self.of = [0] * len(before)
        for number, count_before in enumerate(self.waiting):
            if not count_before:
                self._give(number)

    def _give(self, number: int) -> None:
        tag = self.wanted[number]
        if tag is None:
            self.free.append(number)
        else:
            heapq.heappush(self.ready.setdefault(tag, []), number)

    def run(self) -> list[int]:
        """Return the tag of each visit in order."""
        visits: list[int] = []
        self._visit(None, 0)  # what needs nothing that is tagged goes to the first part
        tag = 0
        while self.ready:
            tag = min(self.ready, key=lambda other: (other - tag) % self.count)
            self._visit(tag, len(visits))
            visits.append(tag)
        return visits or [0]

    def _visit(self, tag: int | None, visit: int) -> None:
        while self.free or tag in self.ready:
            number = self.free.pop() if self.free or tag is None else heapq.heappop(self.ready[tag])
            if tag is not None and tag in self.ready and not self.ready[tag]:
                del self.ready[tag]
            self.of[number] = visit
            for later in self.after[number]:
                self.waiting[later] -= 1
                if not self.waiting[later]:
                    self._give(later)
