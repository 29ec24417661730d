"""``Rewriter``: edits of one graph, recorded by position and applied in one walk.

A transformation inserts nodes before or after others, replaces operands, and erases nodes; it never rebuilds a graph by hand and
never reads half-edited graphs.  Without edits the result is the same graph, and untouched nodes stay the same objects.  The
replacement of an erased node gets its origin (``origins.py``).  Edits of values and positions that do not exist are refused
here; ``verify`` checks the result.  ``with_reads`` makes one edit at once: it reads state where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from .arguments import Arg, Ref, refs_in, replace_refs
from .errors import NamingError
from .forks import cached_property
from .graph import Call, Do, Frame, Get, Graph, Input, Node, Stack
from .meta import ORIGIN, Meta
from .names import Names
from .origins import with_replaced_origins
from .own_operators import user_stack
from .state import State, reading_place


@define(eq=False)
class Relocation:
    """Rewrites module paths; objects whose paths do not change stay the same.

    >>> below = Relocation(lambda path: f"a.{path}")
    >>> below.do(Get("weight")), below.stack((Frame("b", 1),))
    (Get(slot='a.weight'), (Frame(path='a.b', call=1),))
    """

    way: Callable[[str], str]
    """Returns the path as written in the new place."""
    outer: Stack = ()
    """The calls around all nodes in the new place."""
    _stacks: dict[int, tuple[Stack, Stack]] = field(factory=dict, init=False)
    """By the id of a stack, which is kept alive here: hashing the frames of each node is slow."""

    def do(self, do: Do) -> Do:
        """Return an operation with rewritten paths."""
        if type(do) is Get:
            path = self.way(do.slot)
            return do if path == do.slot else Get(path)
        if type(do) is Call:
            frame = self.frame(do.instance)
            return do if frame is do.instance else Call(frame, do.graph)
        return do

    def frame(self, frame: Frame) -> Frame:
        """Return a module call with a rewritten path."""
        path = self.way(frame.path)
        return frame if path == frame.path else Frame(path, frame.call)

    def stack(self, stack: Stack) -> Stack:
        """Return the rewritten stack of a node; nodes of one call share one tuple."""
        if not stack:
            return self.outer
        known = self._stacks.get(id(stack))
        if known is None:
            made = (*self.outer, *self.frames(stack))
            known = self._stacks[id(stack)] = stack, stack if made == stack else made
        return known[1]

    def frames(self, stack: Stack) -> Stack:
        """Return the rewritten frames of a stack, without the outer ones."""
        return tuple([self.frame(frame) for frame in stack])

    def node(self, node: Node) -> Node:
        """Return a node with rewritten paths."""
        return node.evolve(do=self.do(node.do), stack=self.stack(node.stack))

    def graph(self, graph: Graph) -> Graph:
        """Return a body with rewritten paths."""
        return graph.with_nodes(map(self.node, graph.nodes))


class Rewriter:
    """Edits of one graph; numbers are positions of its nodes, -1 is before the first, and their count is the output.

    Args:
        graph: the graph to edit; it is not changed.

    >>> from purefx.ir import Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), (Ref("y"),))
    >>> edit = Rewriter(graph)
    >>> edit.graph() is graph
    True
    >>> edit.after(0, Node(edit.names.fresh("y"), Op("toy.exp"), (Ref("y"),)))
    >>> edit.use(1, "y", Ref("y_1"))
    >>> [node.name for node in edit.graph().nodes], edit.graph().output
    (['y', 'y_1'], (Ref(name='y_1'),))

    To replace all uses of a value in a program, use ``replace`` and ``with_main``; ``verify(infer=True)`` checks the result:

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> edit = px.ir.Rewriter(program.main)
    >>> relu = edit.source.nodes[0]
    >>> twice = px.Node(edit.names.fresh("twice"), px.op(torch.ops.aten.add.Tensor), (px.Ref("relu"), px.Ref("relu")))
    >>> edit.after(edit.position["relu"], twice)
    >>> edit.replace("relu", px.Ref(twice.name))
    >>> px.lower(px.transform(program.with_main(edit.graph())))(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.end = len(graph.nodes)
        """The number of the output."""
        self.uses: dict[int, dict[str, Arg]] = {}
        """Replacements for single users, by number of the user and name of the value."""
        self._before: dict[int, list[Node]] = {}
        self._after: dict[int, list[Node]] = {}
        self._instead: dict[int, Node] = {}
        self._everywhere: dict[str, Arg] = {}
        self._erased: set[str] = set()

    @cached_property
    def names(self) -> Names:
        """The used names; inserted nodes need fresh ones."""
        return self.source.names()

    @cached_property
    def position(self) -> Mapping[str, int]:
        """The number of the node that defines each value, -1 for an input."""
        return {**{formal.name: -1 for formal in self.source.inputs}, **self.source.position}

    @property
    def idle(self) -> bool:
        """Whether nothing was edited."""
        return not (
            self._before
            or self._after
            or self._instead
            or self.uses
            or self._everywhere
            or self._erased
        )

    def before(self, number: int, *nodes: Node, first: bool = False) -> None:
        """Insert nodes before a node, after those inserted there earlier, or first."""
        _insert(self._before.setdefault(number, []), nodes, first=first)

    def after(self, number: int, *nodes: Node, first: bool = False) -> None:
        """Insert nodes after a node and after those inserted there earlier, or directly behind the node."""
        _insert(self._after.setdefault(number, []), nodes, first=first)

    def use(self, number: int, name: str, arg: Arg) -> None:
        """Replace a value for one user."""
        self.uses.setdefault(number, {})[name] = arg

    def replace(self, name: str, arg: Arg) -> None:
        """Replace a value for all users but the inserted nodes."""
        self._everywhere[name] = arg

    def erase(self, *names: str) -> None:
        """Remove nodes; redirect their users first."""
        self._erased.update(names)

    def drop(self, name: str, arg: Arg) -> None:
        """Remove a node and replace its value for all users; earlier replacements apply to the new value."""
        self._erased.add(name)
        self._everywhere[name] = replace_refs(arg, self._everywhere)

    def put(self, number: int, node: Node) -> None:
        """Replace a node by another one of the same name."""
        if node is not self.source.nodes[number]:
            self._instead[number] = node

    def inserted(self) -> list[Node]:
        """Return the nodes that were inserted."""
        return [
            node
            for table in (self._before, self._after)
            for nodes in table.values()
            for node in nodes
        ]

    def graph(self, *, inputs: tuple[Input, ...] | None = None, output: Arg = ...) -> Graph:
        """Return the graph after the edits.

        Args:
            inputs: its new inputs.
            output: its new output, before replacements apply.

        Raises:
            NamingError: an edit names a value or a position that the graph does not have.
        """
        lost = [
            repr(name) for name in (*self._erased, *self._everywhere) if name not in self.position
        ]
        lost += [
            str(number)
            for number in (*self._before, *self._after, *self.uses)
            if not -1 <= number <= self.end
        ]
        if lost:
            raise NamingError(
                f"edits would be lost: the graph has no value or position {', '.join(lost)}"
            )
        source, gone = self.source, self._gone()
        given = replace_refs(source.output if output is ... else output, self._known(self.end))
        nodes = source.nodes if self.idle else tuple(self._nodes())
        if gone:
            inputs = with_replaced_origins(source.inputs if inputs is None else inputs, gone)
            nodes = with_replaced_origins(nodes, gone)
        if nodes is source.nodes and given is source.output and inputs in (None, source.inputs):
            return source
        return Graph(source.inputs if inputs is None else inputs, nodes, given)

    def _gone(self) -> Mapping[str, list[Meta]]:
        # Replacements of erased nodes, for all users or for single ones.
        found: dict[str, list[Meta]] = {}
        pairs = [(name, by) for name, by in self._everywhere.items() if name in self._erased]
        pairs += [pair for used in self.uses.values() for pair in used.items()]
        for name, by in pairs:
            if type(by) is Ref and ORIGIN in self.source.metas.get(name, {}):
                found.setdefault(by.name, []).append(self.source.metas[name])
        return found

    def _nodes(self) -> list[Node]:
        found = [*self._before.get(-1, ()), *self._after.get(-1, ())]
        for number, node in enumerate(self.source.nodes):
            found += self._before.get(number, ())
            if node.name not in self._erased:
                made = self._instead.get(number, node)
                found.append(made.using(known) if (known := self._known(number)) else made)
            found += self._after.get(number, ())
        return [*found, *self._before.get(self.end, ()), *self._after.get(self.end, ())]

    def _known(self, number: int) -> Mapping[str, Arg]:
        return (
            {**self._everywhere, **self.uses[number]} if number in self.uses else self._everywhere
        )


def with_reads(
    graph: Graph, state: State, sources: Mapping[str, tuple[str, Meta]]
) -> tuple[Graph, frozenset[str]]:
    """Return a graph in which each module call reads its state before the first use, and the used names.

    Args:
        graph: the root of a flat program.
        state: which names are one tensor.
        sources: state inputs, or present reads, which are erased: the slot, and the meta of a read, by name.

    >>> from purefx.ir import Op, Slot, SlotKind, pmap
    >>> state = State(("w",), pmap({"w": Slot(SlotKind.BUFFER, None, 0, 0)}))
    >>> graph = Graph((Input("w"),), (Node("y", Op("toy.neg"), (Ref("w"),)),), Ref("y"))
    >>> [node.name for node in with_reads(graph, state, {"w": ("w", {})})[0].nodes]
    ['w', 'y']
    """
    names, nodes = graph.names(), list[Node]()
    readers: dict[tuple[str, Frame | None], str] = {}
    used: set[str] = set()

    def read(uses: Iterable[str], stack: Stack) -> dict[str, Arg]:
        found: dict[str, Arg] = {}
        for use in uses:
            slot, meta = sources[use]
            depth, name = reading_place(state, slot, stack)
            # The innermost frame identifies the scope: a path and a call number name one call.
            key = (use, stack[depth - 1] if depth else None)
            reader = readers.get(key)
            if reader is None:
                reader = readers[key] = names.fresh(use) if use in used else use
                used.add(use)
                nodes.append(Node(reader, Get(name), (), (), stack[:depth], meta))
            if reader != use:
                found[use] = Ref(reader)
        return found

    for node in graph.nodes:
        uses = [name for name in refs_in(node.args, node.kwargs) if name in sources]
        if uses and (others := read(uses, user_stack(node))):
            node = node.using(others)
        if node.name not in sources:
            nodes.append(node)
    output = replace_refs(
        graph.output, read([name for name in graph.output_refs() if name in sources], ())
    )  # may read once more
    return Graph(graph.inputs, tuple(nodes), output), frozenset(used)


def _insert(there: list[Node], nodes: tuple[Node, ...], *, first: bool) -> None:
    there[:] = [*nodes, *there] if first else [*there, *nodes]
