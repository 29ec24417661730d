"""``min_cut`` and ``budget``: policies that choose what is kept by minimum cuts.

Every value that the backward may need is two vertices with an edge of as many bytes between them; what is there anyway lies
before none of them, and what must not be computed again lies behind the source.  The least cut is what to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from attrs import field, frozen

from ...ir.errors import ArgumentError, PartitionError
from ...ir.taking import kind_of
from .candidates import Candidate
from .crossing import crossing
from .flow import ENDLESS, Network
from .operators import is_heavy

__all__ = ["budget", "cut", "min_cut"]

WHICH = ("cheap", "all")


@frozen
class min_cut:  # noqa: N801 - a value that reads like a function
    """Keep as few bytes as can be: the least cut between what the forward computes and what the backward needs.

    Of several least cuts it is the last one, so as little as possible is computed again, and the cut does not depend on the order
    in which it was found.

    Args:
        recompute: what may be computed again.  ``"cheap"``: all but products of matrices, convolutions, attention, sorting and
            operators that are not torch's; ``"all"``: everything, so that what is kept is mostly nothing, and the backward runs
            the forward again.  What draws random numbers or has effects never is.

    Raises:
        ArgumentError: ``recompute`` is none of those.

    >>> product = Candidate("y", "aten.mm.default", 16, operands=("x", "w"))
    >>> values = [product, Candidate("z", "aten.exp.default", 16, operands=("y",), needed=True)]
    >>> sorted(min_cut()(values)), sorted(min_cut(recompute="all")(values))
    (['z'], [])
    """

    recompute: Literal["cheap", "all"] = field(default="cheap", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.recompute not in WHICH:
            raise ArgumentError(f'recompute={self.recompute!r} of min_cut: it is "cheap" or "all"')

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to keep."""
        return cut(candidates, {one.name: ENDLESS for one in candidates if self.recompute == "cheap" and _is_heavy(one)})


def _is_heavy(one: Candidate) -> bool:
    # What only the backward would compute is not computed again there.
    return one.forward and is_heavy(one.operator)


def cut(candidates: Sequence[Candidate], prices: Mapping[str, int], *, scale: int = 1) -> set[str]:
    """Return the names of what the last of the least cuts keeps.

    Args:
        candidates: all of them, in the order of the graph.
        prices: what it costs to compute some of them again, ``ENDLESS`` where that must not be.
        scale: what a byte costs.
    """
    numbers = {one.name: 2 * number + 2 for number, one in enumerate(candidates)}
    network = Network(2 * len(candidates) + 2)
    for one in candidates:
        begin = numbers[one.name]
        if one.number:
            continue  # kept whatever else is
        stays = one.storable or (one.needed and one.is_fixed)
        network.connect(begin, begin + 1, one.bytes * scale if stays else ENDLESS)
        price = ENDLESS if one.is_fixed else prices.get(one.name, 0)
        if price:
            network.connect(0, begin, price)
        if one.needed:
            network.connect(begin + 1, 1, ENDLESS)
        for name in one.operands:
            if name in numbers:
                network.connect(numbers[name] + 1, begin, ENDLESS)
    before = network.cut()
    return {one.name for one in candidates if not one.number and before[numbers[one.name]] and not before[numbers[one.name] + 1]}


@frozen
class budget:  # noqa: N801
    """Keep what fits into so many bytes, and compute again as little as that allows.

    It weighs bytes against work by minimum cuts, and where two cuts are left, takes from the dearer one what still fits, in the
    order of the graph.  Work is an estimate, so this is near the best and not always it.

    Args:
        bytes: how many bytes may be kept, at the sizes of the example.

    Raises:
        ArgumentError: it is no whole number of at least 0.
        PartitionError: what must be kept takes more; the message says the least that can be reached (when it is applied).

    >>> values = [Candidate("y", "aten.exp.default", 16, ("x",), needed=True, work=32.0)]
    >>> sorted(budget(16)(values)), sorted(budget(15)(values))
    (['y'], [])
    """

    bytes: int

    def __attrs_post_init__(self) -> None:
        given: object = self.bytes
        if type(given) is not int or given < 0:
            raise ArgumentError(f"budget takes how many bytes may be kept, a whole number of at least 0, not {_shown(given)}")

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to keep."""
        return _Weighing(candidates, self.bytes).kept()


def _shown(given: object) -> str:
    return repr(given) if isinstance(given, int | float) else kind_of(given)


@frozen
class _Point:
    """A set of values to keep, with what it takes and what is computed again for it."""

    kept: frozenset[str]
    bytes: int
    work: float


class _Weighing:
    """Searches the cuts that are best for some price of work, between keeping all and keeping the least."""

    def __init__(self, candidates: Sequence[Candidate], limit: int) -> None:
        self.candidates = candidates
        self.by_name = {one.name: one for one in candidates}
        self.limit = limit

    def kept(self) -> frozenset[str]:
        """Return the names of what to keep."""
        dear = self._point({one.name for one in self.candidates if one.forward})
        if dear.bytes <= self.limit:
            return dear.kept
        cheap = self._point(cut(self.candidates, {}))
        if cheap.bytes > self.limit:
            raise PartitionError(
                f"budget({self.limit:,}): the least that can be kept is {cheap.bytes:,} bytes; what draws random numbers, has "
                "effects, or reads memory that is written later cannot be computed again"
            )
        while (middle := self._between(cheap, dear)) is not None:
            cheap, dear = (middle, dear) if middle.bytes <= self.limit else (cheap, middle)
        return self._filled(cheap, dear)

    def _point(self, kept: Collection[str]) -> _Point:
        found = crossing(self.by_name, kept)
        again = [self.by_name[name] for name in found.again]
        work = sum([one.work for one in again if one.forward])
        return _Point(frozenset(kept), found.bytes(self.by_name), work)

    def _between(self, cheap: _Point, dear: _Point) -> _Point | None:
        # The best cut where both cost the same, if that is better than both.
        saved, more = dear.bytes - cheap.bytes, cheap.work - dear.work
        if saved <= 0 or more <= 0:
            return None
        scale = max(round(more), 1)
        prices = {one.name: round(one.work * saved) for one in self.candidates if one.forward and one.work}
        found = self._point(cut(self.candidates, prices, scale=scale))
        inside = cheap.bytes < found.bytes < dear.bytes and dear.work < found.work < cheap.work
        costs = [point.bytes * more + point.work * saved for point in (found, cheap)]
        return found if inside and costs[0] < costs[1] * (1 - 1e-9) else None

    def _filled(self, cheap: _Point, dear: _Point) -> frozenset[str]:
        # As much of the dearer cut as fits, from the beginning of the graph on.
        more = [one.name for one in self.candidates if one.name in dear.kept and one.name not in cheap.kept]
        best, low, high = cheap, 0, len(more)
        while high - low > 1:
            middle = (low + high) // 2
            point = self._point(cheap.kept.union(more[:middle]))
            if point.bytes <= self.limit:
                best, low = min(best, point, key=lambda one: one.work), middle
            else:
                high = middle
        return best.kept
