"""Policies choose the values that the forward saves for the backward; all other values are recomputed.

A policy is a function from candidates, in the order of the graph, to the names of those to save.  Values that must not be
recomputed are always saved, and values that the backward does not need never are, so no policy can make a wrong program.

``min_cut`` and ``budget`` use minimum cuts: every value that the backward may need is two vertices, with an edge whose capacity
is its size.  Available values have no predecessors, and values that must not be recomputed are successors of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from attrs import field, frozen

from ...ir.errors import ArgumentError, NamingError, PartitionError
from ...ir.graph import Stack
from ...ir.validation import kind_of
from .candidates import Candidate, is_heavy

Policy = Callable[[Sequence[Candidate]], Collection[str]]
"""The policy of ``partition_joint``: returns the names of the candidates to save."""


@frozen
class save_all:  # noqa: N801 - a value that reads like a function
    """Save every value that the forward computes and the backward needs, as autograd does.

    >>> sorted(save_all()([Candidate("y", "aten.relu.default", 16), Candidate("m", "aten.le.Scalar", 4, forward=False)]))
    ['y']
    """

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to save."""
        return {one.name for one in candidates if one.forward}


@frozen
class recompute:  # noqa: N801
    """Recompute the values inside some module calls, and save their arguments, like ``torch.utils.checkpoint``.

    Args:
        globs: globs of module paths; a call of a matching module is recomputed with all calls inside it.  Its results that other
            nodes of the forward use are saved if the backward needs them.

    Raises:
        ArgumentError: a glob is not a string, or no glob is passed.
        NamingError: a glob matches no module that the forward calls (raised when the policy is applied).

    >>> from purefx.ir import Frame
    >>> inside = Candidate("y", "aten.relu.default", 16, stack=(Frame("layers.0"), Frame("layers.0.act")))
    >>> sorted(recompute("layers.*")([Candidate("x", "aten.exp.default", 16), inside]))
    ['x']
    """

    globs: tuple[str, ...]

    def __init__(self, *globs: str) -> None:
        texts: tuple[object, ...] = globs
        for glob in texts:
            if type(glob) is not str:
                raise ArgumentError(
                    f'recompute takes globs of module paths, such as "layers.*", not {kind_of(glob)}'
                )
        if not globs:
            raise ArgumentError(
                'recompute takes globs of module paths, as in recompute("layers.*"); "*" matches every module'
            )
        self.__attrs_init__(globs)  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to save."""
        paths = dict.fromkeys([frame.path for one in candidates for frame in one.stack])
        chosen: set[str] = set()
        for glob in self.globs:
            found = [path for path in paths if fnmatchcase(path, glob)]
            if not found:
                raise NamingError(
                    f"recompute({glob!r}) matches no module that the forward calls; those are {sorted(paths)[:50]}"
                )
            chosen.update(found)
        of = {one.name: _chosen_call(one.stack, chosen) for one in candidates}
        users = [one for one in candidates if one.forward]
        arguments = {
            name
            for one in users
            for name in one.operands
            if name in of and of[name] != of[one.name]
        }
        return {
            one.name
            for one in candidates
            if one.forward and (not of[one.name] or one.name in arguments)
        }


def _chosen_call(stack: Stack, chosen: Collection[str]) -> Stack:
    # The outermost call of a chosen module, with the calls around it.
    for number, frame in enumerate(stack):
        if frame.path in chosen:
            return stack[: number + 1]
    return ()


@frozen
class LiveAcross:
    """The saved and the recomputed values.

    >>> LiveAcross(frozenset({"y"}), frozenset({"z"}), frozenset({"x"})).saved
    frozenset({'y'})
    """

    saved: frozenset[str]
    """The saved candidates."""
    again: frozenset[str]
    """The candidates that the backward computes."""
    direct: frozenset[str]
    """The state and arguments that it uses directly."""


def live_across(
    candidates: Mapping[str, Candidate], kept: Collection[str], *, also: Collection[str] = ()
) -> LiveAcross:
    """Return the values that are live across the cut: walk from the inputs of the backward to saved or available values.

    Args:
        candidates: all of them, by name, in the order of the graph.
        kept: the candidates that are saved if the backward needs them.
        also: further inputs of the backward: state and arguments.

    >>> made = {"y": Candidate("y", "exp", 16, operands=("x",)), "z": Candidate("z", "exp", 16, operands=("y",), needed=True)}
    >>> live_across(made, {"y"})
    LiveAcross(saved=frozenset({'y'}), again=frozenset({'z'}), direct=frozenset())
    """
    first = _walk(candidates, kept, also)
    better = _through_bases(candidates, first)
    return first if better is None else _walk(candidates, better, also)


def _walk(
    candidates: Mapping[str, Candidate], kept: Collection[str], also: Collection[str]
) -> LiveAcross:
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
        elif one.fixed or one.number or (one.storable and name in kept):
            saved.add(name)
        else:
            again.add(name)
            todo += one.operands
    return LiveAcross(frozenset(saved), frozenset(again), frozenset(direct))


def _through_bases(candidates: Mapping[str, Candidate], found: LiveAcross) -> set[str] | None:
    # Instead of a view its base is saved, if that takes no more memory or is available.
    kept, groups = set(found.saved), dict[str, set[str]]()
    for name in found.saved:
        chain = list(_chain(candidates, name))
        if len(chain) == 1:
            continue
        kept.discard(name)
        if chain[-1] not in candidates or any(
            one in found.saved or one in found.again for one in chain[1:]
        ):
            continue
        least = min(
            reversed([one for one in chain if candidates[one].storable]),
            key=lambda one: candidates[one].bytes,
        )
        kept.add(least)
        groups.setdefault(chain[-1], set()).add(least)
    for root, views in groups.items():
        if candidates[root].storable and candidates[root].bytes <= sum(
            [candidates[view].bytes for view in views]
        ):
            kept.difference_update(views)
            kept.add(root)
    return None if kept == set(found.saved) else kept


def _chain(candidates: Mapping[str, Candidate], name: str) -> Iterator[str]:
    # A value, its base, and so on; the last one is available, or not a view.
    yield name
    while (one := candidates.get(name)) is not None and one.view and not one.fixed:
        name = one.operands[0]
        yield name


ENDLESS = 1 << 100
"""The capacity of an edge that is never cut."""


class Network:
    """A directed graph with capacities; vertices are numbers, 0 is the source and 1 the sink.

    Args:
        size: the number of vertices.

    >>> network = Network(4)
    >>> for begin, end, capacity in ((0, 2, 3), (2, 3, 2), (3, 1, 2)):
    ...     network.connect(begin, end, capacity)
    >>> network.cut()
    [True, False, True, True]
    >>> network.flow
    2
    """

    def __init__(self, size: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(size)]
        """For each vertex the numbers of its outgoing edges; the reverse of edge ``n`` is edge ``n ^ 1``."""
        self.ends: list[int] = []
        self.left: list[int] = []
        """The residual capacity of each edge."""
        self.flow = 0

    def connect(self, begin: int, end: int, capacity: int) -> None:
        """Add an edge.

        Args:
            begin: its first vertex.
            end: its second vertex.
            capacity: an integer of at least 0.
        """
        for vertex, other, amount in ((begin, end, capacity), (end, begin, 0)):
            self.edges[vertex].append(len(self.ends))
            self.ends.append(other)
            self.left.append(amount)

    def cut(self) -> list[bool]:
        """Return for each vertex whether it is before the last minimum cut."""
        while (levels := self._levels(0, 0))[1] >= 0:
            self._push(levels)
        return [level < 0 for level in self._levels(1, 1)]

    def _levels(self, begin: int, back: int) -> list[int]:
        # The distance of each vertex from the source, or to the sink (``back`` is 1), in edges; -1 if unreachable.
        edges, ends, left = self.edges, self.ends, self.left
        levels = [-1] * len(edges)
        levels[begin] = 0
        reached = [begin]
        for vertex in reached:
            beyond = levels[vertex] + 1
            for edge in edges[vertex]:
                end = ends[edge]
                if levels[end] < 0 and left[edge ^ back]:
                    levels[end] = beyond
                    reached.append(end)
        return levels

    def _push(self, levels: list[int]) -> None:
        # Push the maximum flow along shortest paths; dead ends are not tried again.
        edges, ends, left = self.edges, self.ends, self.left
        tried = [0] * len(edges)
        path: list[int] = []
        vertex = 0
        while True:
            if vertex == 1:
                vertex = self._fill(path)
                continue
            mine = edges[vertex]
            while tried[vertex] < len(mine):
                edge = mine[tried[vertex]]
                if left[edge] and levels[ends[edge]] == levels[vertex] + 1:
                    break
                tried[vertex] += 1
            else:
                if not path:
                    return
                levels[vertex] = -1
                vertex = ends[path.pop() ^ 1]
                continue
            path.append(edge)
            vertex = ends[edge]

    def _fill(self, path: list[int]) -> int:
        # Fill a path to the sink, and return the vertex before its first full edge.
        left = self.left
        amount = min([left[edge] for edge in path])
        self.flow += amount
        first = len(path)
        for number in range(len(path) - 1, -1, -1):
            edge = path[number]
            left[edge] -= amount
            left[edge ^ 1] += amount
            if not left[edge]:
                first = number
        vertex = self.ends[path[first] ^ 1]
        del path[first:]
        return vertex


WHICH = ("cheap", "all")


@frozen
class min_cut:  # noqa: N801 - a value that reads like a function
    """Save as few bytes as possible: the minimum cut between the values of the forward and the inputs of the backward.

    Of several minimum cuts, the last one is used: it recomputes as little as possible, and is independent of the search order.

    Args:
        recompute: the values that may be recomputed.  ``"cheap"``: all but results of matrix products, convolutions, attention,
            sorting and operators outside of torch; ``"all"``: all, so that little is saved, and the backward runs the forward
            again.  Random operators and effects are never recomputed.

    Raises:
        ArgumentError: ``recompute`` is neither of these.

    >>> product = Candidate("y", "aten.mm.default", 16, operands=("x", "w"))
    >>> values = [product, Candidate("z", "aten.exp.default", 16, operands=("y",), needed=True)]
    >>> sorted(min_cut()(values)), sorted(min_cut(recompute="all")(values))
    (['z'], [])
    """

    recompute: Literal["cheap", "all"] = field(default="cheap", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.recompute not in WHICH:
            raise ArgumentError(
                f'min_cut: recompute={self.recompute!r} is unknown; pass "cheap" or "all"'
            )

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to save."""
        # Values outside of the forward are computed once in any case, in the backward.
        heavy = [
            one.name
            for one in candidates
            if self.recompute == "cheap" and one.forward and is_heavy(one.operator)
        ]
        return cut(candidates, dict.fromkeys(heavy, ENDLESS))


def cut(candidates: Sequence[Candidate], prices: Mapping[str, int], *, scale: int = 1) -> set[str]:
    """Return the names of the values that the last minimum cut saves.

    Args:
        candidates: all of them, in the order of the graph.
        prices: the cost of recomputing some of them, ``ENDLESS`` if that is forbidden.
        scale: the cost of a byte.
    """
    numbers = {one.name: 2 * number + 2 for number, one in enumerate(candidates)}
    network = Network(2 * len(candidates) + 2)
    for one in candidates:
        begin = numbers[one.name]
        if one.number:
            continue  # always saved
        stays = one.storable or (one.needed and one.fixed)
        network.connect(begin, begin + 1, one.bytes * scale if stays else ENDLESS)
        price = ENDLESS if one.fixed else prices.get(one.name, 0)
        if price:
            network.connect(0, begin, price)
        if one.needed:
            network.connect(begin + 1, 1, ENDLESS)
        for name in one.operands:
            if name in numbers:
                network.connect(numbers[name] + 1, begin, ENDLESS)
    before = network.cut()
    return {
        one.name
        for one in candidates
        if not one.number and before[numbers[one.name]] and not before[numbers[one.name] + 1]
    }


@frozen
class budget:  # noqa: N801
    """Save what fits into a number of bytes, and recompute as little as possible.

    It weighs bytes against work by minimum cuts.  When two cuts remain, it adds values of the larger one that still fit, in the
    order of the graph.  Work is an estimate, so the result is near the optimum, but not always optimal.

    Args:
        bytes: the maximum size of the saved values, at the sizes of the example.

    Raises:
        ArgumentError: ``bytes`` is not an integer of at least 0.
        PartitionError: the minimum is larger; the message names it (raised when the policy is applied).

    >>> values = [Candidate("y", "aten.exp.default", 16, ("x",), needed=True, work=32.0)]
    >>> sorted(budget(16)(values)), sorted(budget(15)(values))
    (['y'], [])
    """

    bytes: int

    def __attrs_post_init__(self) -> None:
        limit: object = self.bytes
        if type(limit) is not int or limit < 0:
            raise ArgumentError(
                f"budget takes the maximum number of bytes to save, an int of at least 0, not {limit!r}"
            )

    def __call__(self, candidates: Sequence[Candidate]) -> Collection[str]:
        """Return the names of the values to save."""
        return _Weighing(candidates, self.bytes).kept()


@frozen
class _Point:
    """A set of values to save, with its size and the work to recompute the others."""

    kept: frozenset[str]
    bytes: int
    work: float


class _Weighing:
    """Searches the cuts that are optimal for some price of work, between saving all and saving the minimum."""

    def __init__(self, candidates: Sequence[Candidate], limit: int) -> None:
        self.candidates = candidates
        self.by_name = {one.name: one for one in candidates}
        self.limit = limit

    def kept(self) -> frozenset[str]:
        """Return the names of the values to save."""
        dear = self._point({one.name for one in self.candidates if one.forward})
        if dear.bytes <= self.limit:
            return dear.kept
        cheap = self._point(cut(self.candidates, {}))
        if cheap.bytes > self.limit:
            raise PartitionError(
                f"budget({self.limit:,}): at least {cheap.bytes:,} bytes must be saved; values that are random, have effects, "
                "or read memory that is written later cannot be recomputed"
            )
        while (middle := self._between(cheap, dear)) is not None:
            cheap, dear = (middle, dear) if middle.bytes <= self.limit else (cheap, middle)
        return self._filled(cheap, dear)

    def _point(self, kept: Collection[str]) -> _Point:
        found = live_across(self.by_name, kept)
        again = [self.by_name[name] for name in found.again]
        size = sum([self.by_name[name].bytes for name in found.saved])
        return _Point(frozenset(kept), size, sum([one.work for one in again if one.forward]))

    def _between(self, cheap: _Point, dear: _Point) -> _Point | None:
        # The best cut for the price at which both cost the same, if it is better than both.
        saved, more = dear.bytes - cheap.bytes, cheap.work - dear.work
        if saved <= 0 or more <= 0:
            return None
        scale = max(round(more), 1)
        prices = {
            one.name: round(one.work * saved) for one in self.candidates if one.forward and one.work
        }
        found = self._point(cut(self.candidates, prices, scale=scale))
        inside = cheap.bytes < found.bytes < dear.bytes and dear.work < found.work < cheap.work
        costs = [point.bytes * more + point.work * saved for point in (found, cheap)]
        return found if inside and costs[0] < costs[1] * (1 - 1e-9) else None

    def _filled(self, cheap: _Point, dear: _Point) -> frozenset[str]:
        # As much of the larger cut as fits, from the beginning of the graph on.
        more = [
            one.name
            for one in self.candidates
            if one.name in dear.kept and one.name not in cheap.kept
        ]
        best, low, high = cheap, 0, len(more)
        while high - low > 1:
            middle = (low + high) // 2
            point = self._point(cheap.kept.union(more[:middle]))
            if point.bytes <= self.limit:
                best, low = min(best, point, key=lambda one: one.work), middle
            else:
                high = middle
        return best.kept
