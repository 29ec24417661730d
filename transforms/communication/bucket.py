"""``bucket_collectives``: small collectives of one kind and group that may stand together become one.

A bucket grows along the order of its group.  The next collective joins if it does not need what comes of those that are in the
bucket, by the dependency relation, so no operator of the group comes between; the bucket is then one node of that relation, and
the graph is put in an order that it allows.  How much is under way at once is not weighed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from ...ir.arguments import Arg, Ref
from ...ir.errors import ArgumentError
from ...ir.graph import Frame, Graph, Node
from ...ir.meta import is_backward
from ...ir.program import Program
from ...ir.taking import kind_of
from ..precedence import precedences
from ..training.phases import is_joint, phases
from ..transformation import UNLIMITED, Fuel, transformation
from .joinable import Member, joined, member_of
from .starts import talking

__all__ = ["bucket_collectives"]

MEGABYTE = 1 << 20


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "each process group reduces, gathers and scatters the same tensors in the same order",
        "no bucket is larger than said, unless it is one collective",
        "no two buckets that follow one another could be one",
    ],
)
def bucket_collectives(program: Program, *, bytes: int = 25 * MEGABYTE, fuel: Fuel = UNLIMITED) -> Program:  # noqa: A002  as users say it
    """Join small collectives of one process group into one, which is sent as a whole.

    Before::

        a = _c10d_functional.all_reduce.default(x, "sum", "0")
        b = _c10d_functional.wait_tensor.default(a)
        c = _c10d_functional.all_reduce.default(y, "sum", "0")
        d = _c10d_functional.wait_tensor.default(c)

    After::

        all_reduce_coalesced = _c10d_functional.all_reduce_coalesced.default([x, y], "sum", "0")
        a = operator.getitem(all_reduce_coalesced, 0)
        c = operator.getitem(all_reduce_coalesced, 1)
        b = _c10d_functional.wait_tensor.default(a)
        d = _c10d_functional.wait_tensor.default(c)

    All-reduces, all-gathers and reduce-scatters of torch's functional collectives are joined, and what is coalesced already: of
    one group, reduction, dtype and device, of sizes that are known.  They follow one another in their group, and none needs what
    comes of another.  A bucket stands where its last member stood, what waits for the first ones behind it.  Collectives of the
    forward and of the backward of a joint program, and those in different calls with a preserved signature, stay apart.  The
    result depends on the program alone, so all processes that run one program agree.

    Gathered numbers are equal; so are sums of two processes, and minima, maxima and whole numbers of any.  A sum of floating
    point numbers of three or more processes is added up in an order of the backend that may depend on the size of what is sent.

    Args:
        program: a program at any stage; types of nodes are read (``infer`` makes them).
        bytes: how much a bucket holds at most: what the whole group reduces or gathers.
        fuel: a rewrite is one collective that joins others.

    Returns:
        The program with fewer collectives.

    Raises:
        ArgumentError: ``bytes`` is not a number of bytes.

    >>> import torch, purefx as px
    >>> import torch.distributed._functional_collectives
    >>> reduce, typed = px.op(torch.ops._c10d_functional.all_reduce.default), {"val": torch.empty(2)}
    >>> nodes = [px.Node(name, reduce, (px.Ref("x"), "sum", "0"), meta=typed) for name in "ab"]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref("a"), px.Ref("b")))})
    >>> [node.do.name for node in px.training.bucket_collectives(program).main.nodes]
    ['_c10d_functional.all_reduce_coalesced.default', 'operator.getitem', 'operator.getitem']
    """
    if type(bytes) is not int or bytes < 0:
        raise ArgumentError(f"bucket_collectives takes bytes=, an int of at least 0 such as 25 * 2**20, not {kind_of(bytes)}")
    graphs: dict[str, Graph] = {}
    for name, before in precedences(program, talking(program)):
        buckets = _Buckets(program, name, before)
        buckets.fill(bytes, fuel)
        graphs[name] = buckets.graph()
    return program.with_graphs(graphs) if graphs else program


class _Buckets:
    """The collectives of one graph, and which of them are one."""

    def __init__(self, program: Program, name: str, before: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.source = program.graphs[name]
        self.before = before
        self.first = list(range(len(before)))
        """For each node the first of its bucket."""
        self.buckets: dict[int, list[Member]] = {}
        """The members of each bucket of two and more, by the number of the first."""
        self.position = {node.name: number for number, node in enumerate(self.source.nodes)}
        frames = frozenset(Frame(frame.path, frame.call) for frame in program.call_signatures)
        backward = _backward(program) if name == program.root else None
        self.members: dict[int, tuple[Member, tuple[object, ...]]] = {}
        """What can be joined, each with what has to be equal besides its key."""
        for number, node in enumerate(self.source.nodes):
            member = member_of(self.source, node)
            if member is not None:
                late = is_backward(node.meta) if backward is None else node.name in backward
                preserved = tuple([frame for frame in node.stack if Frame(frame.path, frame.call) in frames])
                self.members[number] = member, (late, preserved)

    def fill(self, limit: int, fuel: Fuel) -> None:
        """Join as many as may be one and fit."""
        taken: set[int] = set()
        comes_of = self._comes_of()
        for seed, (member, key) in self.members.items():
            if seed in taken:
                continue
            bucket, size = [seed], member.size
            for number, (other, its_key) in self.members.items():
                if number <= seed or (member.key, key) != (other.key, its_key):
                    continue
                size += other.size
                if size > limit or not self._may_join(number, bucket, comes_of):
                    break
                if not fuel.burn("join", other.name, "to", member.name, graph=self.name):
                    break
                bucket.append(number)
            taken.update(bucket)
            if len(bucket) > 1:
                self.buckets[seed] = [self.members[number][0] for number in bucket]
                for number in bucket:
                    self.first[number] = seed
                comes_of = self._comes_of()

    def _may_join(self, number: int, bucket: list[int], comes_of: Sequence[int]) -> bool:
        # No way leads from the bucket to it, but that it comes next in its group.
        node, inside = self.source.nodes[number], sum(1 << each for each in bucket)
        names = {self.source.nodes[each].name for each in bucket}
        outside = [self.first[each] for each in self.before[number] if each not in bucket]
        return names.isdisjoint(node.refs()) and not any(comes_of[each] & inside for each in outside)

    def _comes_of(self) -> list[int]:
        # For the first of each bucket, what can be joined and has to come before it or is in it, as bits.
        found = [0] * len(self.before)
        parts = self._parts()
        for number in self._order(parts):
            for each in parts[number]:
                found[number] |= 1 << each if each in self.members else 0
                for earlier in self.before[each]:
                    found[number] |= found[self.first[earlier]]
        return found

    def _parts(self) -> dict[int, list[int]]:
        parts: dict[int, list[int]] = {}
        for number, first in enumerate(self.first):
            parts.setdefault(first, []).append(number)
        return parts

    def _order(self, parts: Mapping[int, Sequence[int]]) -> list[int]:
        # Each when what must come before it is there, in the order that there was; a bucket comes where its last one stood.
        after: dict[int, list[int]] = {first: [] for first in parts}
        missing = dict.fromkeys(parts, 0)
        for first, part in parts.items():
            for earlier in {self.first[number] for each in part for number in self.before[each]} - {first}:
                after[earlier].append(first)
                missing[first] += 1
        ready = [(parts[first][-1], first) for first, count in missing.items() if not count]
        heapify(ready)
        order: list[int] = []
        while ready:
            _, first = heappop(ready)
            order.append(first)
            for later in after[first]:
                missing[later] -= 1
                if not missing[later]:
                    heappush(ready, (parts[later][-1], later))
        return order

    def graph(self) -> Graph:
        """Return the graph with one node for each bucket, and one for each of its results."""
        if not self.buckets:
            return self.source
        names = self.source.names()
        made: dict[int, list[Node]] = {}
        numbers: dict[str, tuple[str, int]] = {}
        for first, members in self.buckets.items():
            name = names.fresh(members[0].operator)
            made[first], starts = joined(self.source, members, name)
            numbers.update({member: (name, number) for member, number in starts.items()})
        nodes: list[Node] = []
        for number in self._order(self._parts()):
            nodes += made.get(number) or [_taking(self.source.nodes[number], numbers)]
        return self.source.with_nodes(nodes)


def _backward(program: Program) -> frozenset[str] | None:
    # The backward of a joint program that is flat; of others the tracer may have said so.
    return frozenset(phases(program).backward) if is_joint(program) and not program.main.callers else None


def _taking(node: Node, numbers: Mapping[str, tuple[str, int]]) -> Node:
    # One of several results of what is in a bucket now.
    item = node.projection
    if item is None or item[0] not in numbers:
        return node
    name, first = numbers[item[0]]
    args: tuple[Arg, ...] = (Ref(name), first + item[1])
    return node.evolve(args=args)
