"""Bodies of operators that go with them into a module call.

One idea: what such a body names of the state and of modules is counted from the module that the operator stands in, so it is
written anew when that changes; one body in two modules becomes two.  Bodies that name nothing of either stay as they are.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.arguments import Arg, Body, Ref
from ...ir.graph import Graph
from ...ir.names import Names
from ...ir.node import Call, Do, Frame, Get, Node, Op
from ...ir.paths import relative
from ...ir.program import Program
from ..reading import placed

__all__ = ["MovedBodies", "seen_from"]


class MovedBodies:
    """The bodies that operators in the modules of one program are given.

    Args:
        program: a program whose root names everything from the root.
        names: hands out ids of graphs.
    """

    def __init__(self, program: Program, names: Names) -> None:
        self.program = program
        self.names = names
        self.graphs: dict[str, Graph] = {}
        """Those that are written anew."""
        self._known: dict[tuple[str, str], str] = {}
        self._first: dict[str, str] = {}
        self._todo: list[tuple[str, str]] = []
        self._placed = placed(program)

    def take(self, node: Node, path: str) -> Node:
        """Return an operator of the root as it stands in a module.

        Args:
            node: gives bodies to its operator.
            path: of the module; the root is ``""``.
        """
        moved = self._moved(node, path)
        while self._todo:
            name, place = self._todo.pop()
            graph = self.program.graphs[name]
            nodes = [self._moved(inner, place) for inner in graph.nodes]
            nodes = [evolve(inner, do=seen_from(inner.do, place)) if type(inner.do) is not Op else inner for inner in nodes]
            self.graphs[self._known[name, place]] = evolve(graph, nodes=tuple(nodes))
        return moved

    def _moved(self, node: Node, path: str) -> Node:
        if type(node.do) is not Op or not node.do.effects.through_bodies:
            return node

        def body(ref: Ref | Body) -> Arg:
            return Body(self._name(ref.graph, path)) if type(ref) is Body and ref.graph in self._placed else ref

        return node.with_refs(body)

    def _name(self, name: str, path: str) -> str:
        known = self._known.get((name, path))
        if known is None:
            first = self._first.setdefault(name, path) == path
            known = self._known[name, path] = name if first else self.names.fresh(name)
            self._todo.append((name, path))
        return known


def seen_from(do: Do, path: str) -> Do:
    """Return what a node of the root does, with state and modules named as a module at a path names them.

    >>> seen_from(Get("a.weight"), "a")
    Get(slot='weight')
    """
    if type(do) is Get:
        return Get(relative(do.slot, path))
    if type(do) is Call:
        return Call(Frame(relative(do.instance.path, path), do.instance.call, do.instance.part), do.graph)
    return do
