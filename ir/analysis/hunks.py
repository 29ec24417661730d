"""Sequence diffs as hunks: what is removed and added at which position, with the context around it.

Common prefixes and suffixes stay, then items that occur once on both sides and keep their order (a longest increasing
subsequence); what lies between is a hunk.  Time is linear except for that subsequence, which takes n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from attrs import frozen

from ..errors import DiffError

AROUND = 2
"""How many items of context a hunk has before and after it, unless another hunk is nearer."""


@frozen
class Hunk:
    """One place at which a sequence changes.

    >>> Hunk(3, removed=("a",)).added
    ()
    """

    start: int
    """The position of the change in the sequence before."""
    removed: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    above: tuple[Any, ...] = ()
    """What stays, right before the change."""
    below: tuple[Any, ...] = ()
    """What stays, right after it."""
    ends: bool = False
    """Whether the sequence ends here, so that additions are appended."""


Hunks = tuple[Hunk, ...]


def _itself(item: Any) -> Hashable:
    return item


def hunks(before: Sequence[Any], after: Sequence[Any], *, key: Callable[[Any], Hashable] = _itself) -> Hunks:
    """Return the hunks that turn one sequence into another.

    Args:
        before: the one.
        after: the other.
        key: a name for an item; items that stay or move are found by it, and then compared.

    Returns:
        Hunks from the first place to the last; none for equal sequences.

    >>> [(hunk.start, hunk.removed, hunk.added) for hunk in hunks("abcdef", "abXdfg")]
    [(2, ('c',), ('X',)), (4, ('e',), ()), (6, (), ('g',))]
    """
    if before is after:
        return ()
    whole = _trimmed(before, after, (0, len(before), 0, len(after)))
    found: list[Hunk] = []
    mine, theirs = whole[0], whole[2]
    for index, other in [*_kept(before, after, whole, key), (whole[1], whole[3])]:
        start, end, first, last = _trimmed(before, after, (mine, index, theirs, other))
        if start < end or first < last:
            found.append(Hunk(start, tuple(before[start:end]), tuple(after[first:last])))
        mine, theirs = index + 1, other + 1
    return _with_surroundings(before, found)


Window = tuple[int, int, int, int]
"""From where to where, before and after."""


def _trimmed(before: Sequence[Any], after: Sequence[Any], window: Window) -> Window:
    start, end, first, last = window
    while start < end and first < last and (before[start] is after[first] or before[start] == after[first]):
        start, first = start + 1, first + 1
    while start < end and first < last and (before[end - 1] is after[last - 1] or before[end - 1] == after[last - 1]):
        end, last = end - 1, last - 1
    return start, end, first, last


def _kept(before: Sequence[Any], after: Sequence[Any], window: Window, key: Callable[[Any], Hashable]) -> list[tuple[int, int]]:
    # The longest run of items that occur once on each side, are equal, and come in the same order on both.
    start, end, first, last = window
    mine, theirs = _once(before, start, end, key), _once(after, first, last, key)
    pairs = [(index, theirs[name]) for name, index in mine.items() if theirs.get(name, -1) >= 0 and index >= 0]
    pairs = [(index, other) for index, other in pairs if before[index] == after[other]]
    ends: list[int] = []
    last_of: list[int] = []
    previous: list[int] = []
    for number, (_, other) in enumerate(pairs):
        length = bisect_left(ends, other)
        previous.append(last_of[length - 1] if length else -1)
        if length == len(ends):
            ends.append(other)
            last_of.append(number)
        else:
            ends[length], last_of[length] = other, number
    run: list[tuple[int, int]] = []
    number = last_of[-1] if last_of else -1
    while number >= 0:
        run.append(pairs[number])
        number = previous[number]
    return run[::-1]


def _once(items: Sequence[Any], start: int, end: int, key: Callable[[Any], Hashable]) -> dict[Hashable, int]:
    # -1 for what occurs more often; in the order of the items.
    found: dict[Hashable, int] = {}
    for index in range(start, end):
        name = key(items[index])
        found[name] = -1 if name in found else index
    return found


def _with_surroundings(before: Sequence[Any], found: list[Hunk]) -> Hunks:
    free = 0
    for number, hunk in enumerate(found):
        end = hunk.start + len(hunk.removed)
        limit = found[number + 1].start if number + 1 < len(found) else len(before)
        above = tuple(before[max(free, hunk.start - AROUND) : hunk.start])
        free = min(end + AROUND, limit)
        below = tuple(before[end:free])
        found[number] = Hunk(hunk.start, hunk.removed, hunk.added, above, below, ends=free == len(before))
    return tuple(found)


def patched(items: tuple[Any, ...], changes: Hunks, *, what: str) -> tuple[Any, ...]:
    """Return a sequence with hunks applied; the same object if there are none.

    Args:
        items: a sequence that the hunks fit.
        changes: what ``hunks`` gave.
        what: the sequence, for the message.

    Raises:
        DiffError: what a hunk removes, or has around it, does not stand there.

    >>> patched(tuple("abcd"), hunks("abcd", "aXcd"), what="letters")
    ('a', 'X', 'c', 'd')
    >>> patched(tuple("zzzz"), hunks("abcd", "aXcd"), what="letters")
    Traceback (most recent call last):
    ...
    purefx.ir.errors.DiffError: the diff does not fit: letters, entry 0 is 'z', and should be 'a'
    """
    if not changes:
        return items
    result: list[Any] = []
    done = 0
    for hunk in changes:
        _fit(items, hunk, what)
        result += items[done : hunk.start]
        result += hunk.added
        done = hunk.start + len(hunk.removed)
    result += items[done:]
    return tuple(result)


def _fit(items: tuple[Any, ...], hunk: Hunk, what: str) -> None:
    begin = hunk.start - len(hunk.above)
    known = (*hunk.above, *hunk.removed, *hunk.below)
    if hunk.ends and len(items) > begin + len(known):
        raise DiffError(f"the diff does not fit: {what} has {len(items)} entries, and should have {begin + len(known)}")
    for index, expected in enumerate(known, begin):
        if index >= len(items):
            raise DiffError(f"the diff does not fit: {what} ends at entry {index}, which should be {_shown(expected)}")
        if items[index] is not expected and items[index] != expected:
            raise DiffError(
                f"the diff does not fit: {what}, entry {index} is {_shown(items[index])}, and should be {_shown(expected)}"
            )


def _shown(item: Any) -> str:
    return ascii(item) if isinstance(item, str) else str(item)
