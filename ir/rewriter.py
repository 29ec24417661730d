"""``Rewriter``: edits of one graph, written down against the nodes that are there and applied in one walk.

A transformation inserts nodes before or after others, lets users use other values, and erases nodes; it never rebuilds a graph by
hand and never sees half of its own work.  Without an edit the result is the very graph, and a node that no edit touches stays the
very node.  Whether an edit is right is not checked here: dependencies and ``verify`` say that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from .arguments import Arg, replace_refs
from .graph import Graph, Input, Node
from .names import Names

__all__ = ["Rewriter"]


class Rewriter:
    """Edits of one graph; numbers are positions of its nodes, -1 is before them, and their count stands for the output.

    Args:
        graph: stays as it is.

    >>> from purefx.ir import Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), (Ref("y"),))
    >>> edit = Rewriter(graph)
    >>> edit.graph() is graph
    True
    >>> edit.after(0, Node(edit.names.fresh("y"), Op("toy.exp"), (Ref("y"),)))
    >>> edit.use(1, "y", Ref("y_1"))
    >>> [node.name for node in edit.graph().nodes], edit.graph().output
    (['y', 'y_1'], (Ref(name='y_1'),))
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.end = len(graph.nodes)
        """The number that stands for the output."""
        self.uses: dict[int, dict[str, Arg]] = {}
        """What users use instead, by number of the user and name of the value."""
        self._before: dict[int, list[Node]] = {}
        self._after: dict[int, list[Node]] = {}
        self._everywhere: dict[str, Arg] = {}
        self._erased: set[str] = set()

    @cached_property
    def names(self) -> Names:
        """The names that are taken; inserted nodes take fresh ones."""
        return self.source.names()

    @cached_property
    def position(self) -> Mapping[str, int]:
        """The number of the node that defines each value, -1 for an input."""
        found = {formal.name: -1 for formal in self.source.inputs}
        found.update((node.name, number) for number, node in enumerate(self.source.nodes))
        return found

    @property
    def idle(self) -> bool:
        """Whether nothing was edited."""
        return not (self._before or self._after or self.uses or self._everywhere or self._erased)

    def before(self, number: int, *nodes: Node, first: bool = False) -> None:
        """Insert nodes before a node, behind those that were inserted there already, or first of all."""
        _insert(self._before.setdefault(number, []), nodes, first=first)

    def after(self, number: int, *nodes: Node, first: bool = False) -> None:
        """Insert nodes after a node, behind those that were inserted there already, or first of all."""
        _insert(self._after.setdefault(number, []), nodes, first=first)

    def use(self, number: int, name: str, arg: Arg) -> None:
        """Let one user use something else than a value."""
        self.uses.setdefault(number, {})[name] = arg

    def replace(self, name: str, arg: Arg) -> None:
        """Let every user use something else than a value; inserted nodes say what they mean."""
        self._everywhere[name] = arg

    def erase(self, *names: str) -> None:
        """Take nodes out; who used them must use something else."""
        self._erased.update(names)

    def inserted(self) -> list[Node]:
        """Return the nodes that were inserted."""
        return [node for table in (self._before, self._after) for nodes in table.values() for node in nodes]

    def graph(self, *, inputs: tuple[Input, ...] | None = None, output: Arg = ...) -> Graph:
        """Return the graph after the edits.

        Args:
            inputs: what stands in place of its inputs.
            output: what stands in place of its output, before uses of it are replaced.
        """
        source = self.source
        given = replace_refs(source.output if output is ... else output, self._known(self.end))
        nodes = source.nodes if self.idle else tuple(self._nodes())
        if nodes is source.nodes and given is source.output and inputs in (None, source.inputs):
            return source
        return Graph(source.inputs if inputs is None else inputs, nodes, given)

    def _nodes(self) -> list[Node]:
        before, after, erased = self._before, self._after, self._erased
        found = [*before.get(-1, ()), *after.get(-1, ())]
        for number, node in enumerate(self.source.nodes):
            if number in before:
                found += before[number]
            if node.name not in erased:
                known = self._known(number)
                found.append(node.using(known) if known else node)
            if number in after:
                found += after[number]
        return [*found, *before.get(self.end, ()), *after.get(self.end, ())]

    def _known(self, number: int) -> Mapping[str, Arg]:
        own = self.uses.get(number)
        return self._everywhere if own is None else {**self._everywhere, **own}


def _insert(there: list[Node], nodes: tuple[Node, ...], *, first: bool) -> None:
    there[:] = [*nodes, *there] if first else [*there, *nodes]
