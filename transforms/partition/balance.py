"""Where to cut a row of sizes so that the largest part is as small as it can be.

One idea: whether a bound can be kept is found in one greedy walk, so the smallest bound is found by halving between sums
that do occur; then each cut is chosen among those that still keep it.  It knows nothing of programs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

__all__ = ["balanced"]


def balanced(sizes: Sequence[float], depths: Sequence[int], parts: int) -> list[int]:
    """Return where each part ends: ``k`` numbers of segments, the last of them the number of all.

    Args:
        sizes: of the segments, at least one for each part.
        depths: how bad the cut before each segment is, and behind the last; those that keep the bound and are best are taken.
        parts: how many parts.

    >>> balanced([4, 1, 1, 2, 2, 1], [0] * 7, 3)
    [1, 4, 6]
    """
    sums = _exact_sums(sizes)
    bound = _smallest_bound(sums, parts)
    count = len(sizes)
    # How far a part that begins at a segment may go, and how many parts the rest needs at least.
    reach = [_reach(sums, start, bound) for start in range(count)]
    need = [0] * (count + 1)
    for start in range(count - 1, -1, -1):
        need[start] = 1 + need[reach[start]]
    ends: list[int] = []
    start = 0
    for left in range(parts - 1, 0, -1):
        fits = [end for end in range(start + 1, reach[start] + 1) if need[end] <= left <= count - end]
        # Best would be an equal share of what is left; all is multiplied by the number of shares.
        share, shares = sums[count] - sums[start], left + 1
        off = {end: abs((sums[end] - sums[start]) * shares - share) for end in fits}
        start = min(fits, key=lambda end: (depths[end], off[end]))
        ends.append(start)
    return [*ends, count]


def _exact_sums(sizes: Sequence[float]) -> list[int]:
    # Integers, because a sum of floats that was found must be met again: a float is an integer over a power of two.
    ratios = [size.as_integer_ratio() for size in sizes]
    unit = max(below for _, below in ratios)
    return [0, *accumulate([above * (unit // below) for above, below in ratios])]


def _smallest_bound(sums: Sequence[int], parts: int) -> int:
    low, high = max(end - start for start, end in pairwise(sums)), sums[-1]
    while low < high:
        middle = (low + high) // 2
        used, largest, over, start = 0, low, high, 0
        while start < len(sums) - 1:
            end = _reach(sums, start, middle)
            used += 1
            largest = max(largest, sums[end] - sums[start])
            if end < len(sums) - 1:
                over = min(over, sums[end + 1] - sums[start])
            start = end
        if used <= parts:
            high = largest
        else:
            low = over
    return high


def _reach(sums: Sequence[int], start: int, bound: int) -> int:
    # The last segment that still fits, counted from the front; sums do not fall, so it can be searched.
    return bisect_right(sums, sums[start] + bound) - 1
