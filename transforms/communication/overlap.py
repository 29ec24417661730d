"""``overlap_communication``: what is sent is sent early, and waited for late.

Nodes are put in order one after another, each when all that must come before it is done: a start as soon as it can be, then what
only starts need; a wait when nothing else can be done; everything else in the order that it has.  How long a collective takes is
not weighed; a limit says how many may be under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from ...ir.errors import ArgumentError
from ...ir.graph import Graph, Node
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ..precedence import precedences
from ..transformation import UNLIMITED, Fuel, transformation
from .starts import is_start, is_wait, talking

__all__ = ["feeders", "overlap_communication", "waited_for"]

START, FEEDS, AS_IT_IS, WAIT = range(4)


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "nothing but the order of nodes changes, and every process group keeps its order",
        "what stands before a start is what it needs, or another start",
        "what stands behind a wait needs it, or needs another wait that stands behind it",
    ],
)
def overlap_communication(program: Program, *, in_flight: int | None = None, fuel: Fuel = UNLIMITED) -> Program:
    """Start to communicate as early as possible, and wait as late as possible.

    Before::

        a = _c10d_functional.all_reduce.default(x, "sum", "0")
        b = _c10d_functional.wait_tensor.default(a)
        c = aten.div.Tensor(b, 2)
        d = aten.mm.default(y, y)
        e = _c10d_functional.all_reduce.default(d, "sum", "0")
        f = _c10d_functional.wait_tensor.default(e)

    After::

        a = _c10d_functional.all_reduce.default(x, "sum", "0")
        d = aten.mm.default(y, y)
        e = _c10d_functional.all_reduce.default(d, "sum", "0")
        b = _c10d_functional.wait_tensor.default(a)
        c = aten.div.Tensor(b, 2)
        f = _c10d_functional.wait_tensor.default(e)

    The order is one that the dependency relation allows, so each process group keeps its own, writes stay on their side of what
    reads them, and the numbers are equal.  What is computed for starts alone is computed as soon as a start is; what needs what
    was waited for comes behind the wait.  Everything else keeps its order.  Bodies are treated each by itself, shared ones once;
    calls of bodies that communicate keep their order.  The result depends on the program alone, so all processes that run one
    program go on running one.  Memory of what is under way is held longer: every wait that is late keeps a result.

    Args:
        program: a program at any stage.
        in_flight: how many starts may be ahead of their waits in one graph; one more comes only where nothing else can, and
            what has no wait there is not counted.  By default there is no limit.
        fuel: a rewrite is one node that moves up over others.

    Returns:
        The program in that order.

    Raises:
        ArgumentError: ``in_flight`` is not a number of collectives.

    >>> import purefx as px
    >>> x, y = px.Ref("x"), px.Ref("y")
    >>> from purefx.laws.toy import NEG, SEND, WAIT
    >>> nodes = [px.Node("a", SEND, (x, "0")), px.Node("b", WAIT, (px.Ref("a"),)), px.Node("c", NEG, (y,))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"), px.Input("y")), nodes, (px.Ref("b"), px.Ref("c")))})
    >>> [node.name for node in px.training.overlap_communication(program).main.nodes]
    ['a', 'c', 'b']
    """
    if in_flight is not None and (type(in_flight) is not int or in_flight < 1):
        raise ArgumentError(f"overlap_communication takes in_flight=, an int of at least 1 or None, not {in_flight!r}")
    graphs: dict[str, Graph] = {}
    for name, before in precedences(program, talking(program)):
        graph = program.graphs[name]
        order = _Schedule(graph, before, in_flight).order()
        graphs[name] = graph.with_nodes([graph.nodes[number] for number in _moved(graph, order, name, fuel)])
    return program.with_graphs(graphs) if graphs else program


def feeders(graph: Graph) -> set[str]:
    """Return the values that starts alone need: every user of them is a start or another of these.

    Args:
        graph: one graph; what it returns, writes or is asked for by others is none.

    >>> from purefx.ir import Input, Ref
    >>> from purefx.laws.toy import NEG, SEND
    >>> nodes = (Node("a", NEG, (Ref("x"),)), Node("b", NEG, (Ref("a"),)), Node("c", SEND, (Ref("b"), "0")))
    >>> sorted(feeders(Graph((Input("x"),), nodes, (Ref("c"),))))
    ['a', 'b']
    """
    found: set[str] = set()
    starts = {node.name for node in graph.nodes if is_start(node)}
    given = set(graph.output_refs())
    for node in reversed(graph.nodes):
        users = graph.users.get(node.name, ())
        if users and node.name not in given and node.name not in starts and all(one in found or one in starts for one in users):
            found.add(node.name)
    return found


class _Schedule:
    """The nodes of a graph that may come next, best first: starts and what feeds them, others, waits; each as they stand.

    What has to hold back, because enough is under way, waits with the waits.
    """

    def __init__(self, graph: Graph, before: Sequence[Sequence[int]], limit: int | None) -> None:
        fed = feeders(graph)
        self.rank = [_rank(node, fed) for node in graph.nodes]
        self.limit = limit
        self.started = waited_for(graph) if limit is not None else {}
        """For each wait the start that it waits for."""
        self.awaited = set(self.started.values())
        self.under_way: set[int] = set()
        self.after: list[list[int]] = [[] for _ in graph.nodes]
        self.missing = [len(of) for of in before]
        for number, of in enumerate(before):
            for earlier in of:
                self.after[earlier].append(number)

    def order(self) -> list[int]:
        """Return the numbers of the nodes in the order in which they are to stand."""
        heaps: list[list[int]] = [[] for _ in (START, FEEDS, AS_IT_IS, WAIT)]
        for number, count in enumerate(self.missing):
            if not count:
                heappush(heaps[self.rank[number]], number)
        held: list[int] = []
        order: list[int] = []
        while len(order) < len(self.rank):
            number = self._next(heaps, held)
            order.append(number)
            self._count(number)
            for later in self.after[number]:
                self.missing[later] -= 1
                if not self.missing[later]:
                    heappush(heaps[self.rank[later]], later)
        return order

    def _next(self, heaps: Sequence[list[int]], held: list[int]) -> int:
        if self._has_room():
            while held:
                heappush(heaps[START], heappop(held))
        while heaps[START]:
            number = heappop(heaps[START])
            if number not in self.awaited or self._has_room():
                return number
            heappush(held, number)
        return heappop(heaps[FEEDS] or heaps[AS_IT_IS] or heaps[WAIT] or held)

    def _has_room(self) -> bool:
        return self.limit is None or len(self.under_way) < self.limit

    def _count(self, number: int) -> None:
        if number in self.awaited:
            self.under_way.add(number)
        self.under_way.discard(self.started.get(number, -1))


def waited_for(graph: Graph) -> dict[int, int]:
    """Return, for each wait for a result of a start in the same graph, the number of the wait and that of the start.

    Args:
        graph: one graph.

    >>> from purefx.ir import Input, Ref
    >>> from purefx.laws.toy import SEND, WAIT
    >>> waited_for(Graph((Input("x"),), (Node("a", SEND, (Ref("x"), "0")), Node("b", WAIT, (Ref("a"),))), ()))
    {1: 0}
    """
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    found: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if not is_wait(node):
            continue
        [name, *_] = node.refs() or [""]
        while name in position and (item := graph.nodes[position[name]].projection) is not None:
            name = item[0]
        if name in position and is_start(graph.nodes[position[name]]):
            found[number] = position[name]
    return found


def _rank(node: Node, fed: set[str]) -> int:
    if is_wait(node):
        return WAIT
    if is_start(node):
        return START
    return FEEDS if node.name in fed and not is_boundary(node) else AS_IT_IS


def _moved(graph: Graph, order: Sequence[int], name: str, fuel: Fuel) -> list[int]:
    # The order after as many moves as there is fuel for: each puts one node where it is to be, over nodes that come later.
    if not fuel.limited:
        return list(order)
    now = list(range(len(order)))
    for place, number in enumerate(order):
        if now[place] != number and not fuel.burn("move", graph.nodes[number].name, "up", graph=name):
            break
        now.remove(number)
        now.insert(place, number)
    return now
