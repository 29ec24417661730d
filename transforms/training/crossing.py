"""``crossing``: what crosses from the forward to the backward when a policy has said what it would keep.

Walks back from what the backward takes, to values that are kept or are there anyway; all between is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from .candidates import Candidate

__all__ = ["Crossing", "crossing"]


@frozen
class Crossing:
    """What the backward gets, and what it computes again.

    >>> Crossing(frozenset({"y"}), frozenset({"z"}), frozenset({"x"})).saved
    frozenset({'y'})
    """

    saved: frozenset[str]
    """The candidates that are handed over."""
    again: frozenset[str]
    """Those that the backward computes."""
    direct: frozenset[str]
    """State and arguments that it takes as they are."""

    def bytes(self, candidates: Mapping[str, Candidate]) -> int:
        """Return what is handed over takes, at the sizes of the example.

        Args:
            candidates: all of them, by name.
        """
        return sum([candidates[name].bytes for name in self.saved])


def crossing(candidates: Mapping[str, Candidate], kept: Collection[str], *, also: Collection[str] = ()) -> Crossing:
    """Return what crosses.

    Args:
        candidates: all of them, by name, in the order of the graph.
        kept: those that are kept if the backward needs them.
        also: what else the backward takes, state and arguments.

    >>> made = {"y": Candidate("y", "exp", 16, operands=("x",)), "z": Candidate("z", "exp", 16, operands=("y",), needed=True)}
    >>> crossing(made, {"y"})
    Crossing(saved=frozenset({'y'}), again=frozenset({'z'}), direct=frozenset())
    """
    first = _walk(candidates, kept, also)
    better = _through_bases(candidates, first)
    return first if better is None else _walk(candidates, better, also)


def _walk(candidates: Mapping[str, Candidate], kept: Collection[str], also: Collection[str]) -> Crossing:
    seen, saved, again, direct = set[str](), set[str](), set[str](), set[str]()
    todo = [*[one.name for one in candidates.values() if one.needed], *also]
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
    return Crossing(frozenset(saved), frozenset(again), frozenset(direct))


def _through_bases(candidates: Mapping[str, Candidate], found: Crossing) -> set[str] | None:
    # A view is kept as the value that it is a view of, where that takes no more or is there anyway.
    kept, groups = set(found.saved), dict[str, set[str]]()
    for name in found.saved:
        chain = list(_chain(candidates, name))
        if len(chain) == 1:
            continue
        kept.discard(name)
        if chain[-1] not in candidates or any(one in found.saved or one in found.again for one in chain[1:]):
            continue
        least = min(reversed([one for one in chain if candidates[one].storable]), key=lambda one: candidates[one].bytes)
        kept.add(least)
        groups.setdefault(chain[-1], set()).add(least)
    for root, views in groups.items():
        if candidates[root].storable and candidates[root].bytes <= sum([candidates[view].bytes for view in views]):
            kept.difference_update(views)
            kept.add(root)
    return None if kept == set(found.saved) else kept


def _chain(candidates: Mapping[str, Candidate], name: str) -> Iterator[str]:
    # A value, what it is a view of, and so on; the last is no view, or there anyway.
    yield name
    while (one := candidates.get(name)) is not None and one.view and not one.is_fixed:
        name = one.operands[0]
        yield name
