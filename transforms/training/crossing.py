"""``chosen``: what crosses from the forward to the backward when a policy has said what it would keep.

Walks back from what the backward takes, to values that are kept or are there anyway; all between is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from .candidates import Candidate, Table

__all__ = ["Crossing", "chosen"]


@frozen
class Crossing:
    """What the backward gets, and what it computes again.

    >>> Crossing(("y",), frozenset({"z"}), ("x",)).saved
    ('y',)
    """

    saved: tuple[str, ...]
    """The candidates that are handed over, in the order of the graph."""
    again: frozenset[str]
    """Those that the backward computes."""
    direct: tuple[str, ...]
    """State and arguments that it takes as they are, in the order of the graph."""


def chosen(table: Table, kept: Collection[str]) -> Crossing:
    """Return what crosses.

    Args:
        table: the candidates.
        kept: the names of those that are kept if the backward needs them.
    """
    first = _walk(table, kept)
    better = _through_bases(table, first)
    return first if better is None else _walk(table, better)


def _walk(table: Table, kept: Collection[str]) -> Crossing:
    candidates = table.candidates
    seen, saved, again, direct = set[str](), set[str](), set[str](), set[str]()
    todo = list(table.needed)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        one = candidates.get(name)
        if one is None:
            direct.add(name)
        elif one.is_fixed or one.number or (one.storable and name in kept):
            saved.add(name)
        else:
            again.add(name)
            todo += one.operands
    return Crossing(_in_order(table, saved), frozenset(again), _in_order(table, direct))


def _in_order(table: Table, names: Collection[str]) -> tuple[str, ...]:
    return tuple([name for name in table.order if name in names])


def _through_bases(table: Table, found: Crossing) -> set[str] | None:
    # A view is kept as the value that it is a view of, where that takes no more or is there anyway.
    candidates, there = table.candidates, {*found.saved, *found.again}
    kept = set(found.saved)
    groups: dict[str, list[str]] = {}
    for name in found.saved:
        chain = list(_chain(candidates, name))
        if len(chain) == 1:
            continue
        last = chain[-1]
        if last not in candidates or not there.isdisjoint(chain[1:]):
            kept.discard(name)
            continue
        least = min(reversed([one for one in chain if candidates[one].storable]), key=lambda one: candidates[one].bytes)
        kept.discard(name)
        kept.add(least)
        groups.setdefault(last, []).append(least)
    for root, views in groups.items():
        one = candidates[root]
        if one.storable and one.bytes <= sum([candidates[view].bytes for view in dict.fromkeys(views)]):
            kept.difference_update(views)
            kept.add(root)
    return kept if kept != set(found.saved) else None


def _chain(candidates: Mapping[str, Candidate], name: str) -> Iterator[str]:
    # A value, what it is a view of, and so on; the last is no view, or there anyway.
    yield name
    while (one := candidates.get(name)) is not None and one.view and not one.is_fixed:
        name = one.operands[0]
        yield name
