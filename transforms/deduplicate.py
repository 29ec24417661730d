"""``deduplicate``: equal bodies become one.

One idea: from the innermost modules outwards, each body is given its digest, callees written as the class that they
fell into, and bodies are grouped by one dictionary.  State is named relative to the module, so the blocks of a
transformer are equal; which state is read and which body is called is part of the digest.  Nothing is compared
pairwise.
"""

from __future__ import annotations

import math

from attrs import evolve

from ..ir.arguments import Arg, Body, bodies_in, map_refs
from ..ir.digest import graph_digest
from ..ir.graph import Graph
from ..ir.names import Names
from ..ir.node import Call, Node, Op
from ..ir.persistent import pmap
from ..ir.program import Program, callees
from ..ir.verify import check
from .transformation import transformation

__all__ = ["deduplicate"]


@transformation(
    proven=True,
    establishes={"deduplicated"},
    inverse="expand",
    laws=[
        "expanding gives back the program",
        "no two bodies are equal afterwards",
        "the result does not depend on the order of graphs",
    ],
)
def deduplicate(program: Program) -> Program:
    """Let equal bodies be one.

    Before::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    After::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.0 (y)

    Calls of one module that have the same body get one call number, the first.

    Args:
        program: a program at any stage.

    Returns:
        The program with one graph for each distinct body; the first one met in calling order stays.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.deduplicate(program) is program
    True
    """
    if len(program.order) == 1:
        return program
    classes = _Classes(program)
    graphs = classes.graphs()
    if len(graphs) == len(program.order) and all(program.graphs.get(name) is graph for name, graph in graphs.items()):
        return program
    return program.evolve(graphs=pmap(graphs))


Instance = tuple[str, str]
"""A body, and the path of a module that it stands in: a body that is shared already stands in several."""

Label = tuple[int, int]
"""The call number of a call, and the part."""


class _Places:
    """The bodies where they stand in the hierarchy, and which bodies the calls of each module have."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rank = {name: index for index, name in enumerate(program.bottom_up)}
        self.order: list[Instance] = []
        """In calling order."""
        self.calls: dict[str, dict[Label, Instance]] = {}
        seen: set[Instance] = set()
        todo: list[Instance] = [(program.root, "")]
        while todo:
            found = todo.pop()
            if found not in seen:
                seen.add(found)
                self.order.append(found)
                todo.extend(reversed(self._inner(found)))

    def _inner(self, outer: Instance) -> list[Instance]:
        inner: list[Instance] = []
        for node in self.program.graphs[outer[0]].nodes:
            do = node.do
            if type(do) is Call:
                called = (do.graph, below(outer[1], do))
                self.calls.setdefault(called[1], {}).setdefault((do.instance.call, do.instance.part), called)
                inner.append(called)
            elif type(do) is Op and do.effects.through_bodies:
                inner.extend((name, outer[1]) for name in bodies_in(node.args, node.kwargs))
        if any(self.rank.get(name, math.inf) >= self.rank[outer[0]] for name, _ in inner):
            check(self.program)  # a body that reaches itself or is missing stands nowhere: this raises, and says where
        return inner

    def innermost_first(self) -> list[Instance]:
        """Return the instances, those of deeper modules first: every call goes to a deeper module.

        So all bodies of one module come before any caller of it.  Operator bodies stand where their users do, and come
        just before them.
        """
        return sorted(self.order, key=lambda instance: (-_depth(instance[1]), self.rank[instance[0]]))


def below(path: str, call: Call) -> str:
    """Return the path of the module that a body calls, from the path of the module that it stands in."""
    return f"{path}.{call.instance.path}" if path else call.instance.path


def _has_bodies(node: Node) -> bool:
    return type(node.do) is Op and node.do.effects.through_bodies


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


class _Classes:
    """Groups bodies by digest, deepest modules first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = _Places(program)
        self.digests: dict[Instance, str] = {}
        self._labels: dict[tuple[str, str], Label] = {}
        for instance in self.places.innermost_first():
            self.digests[instance] = self._digest(instance)
        self.ids: dict[str, str] = {}
        """The graph that stays for each digest: the first one met in calling order."""
        names = Names(())
        for instance in self.places.order:
            if self.digests[instance] not in self.ids:
                self.ids[self.digests[instance]] = names.fresh(instance[0])

    def _digest(self, instance: Instance) -> str:
        name, path = instance
        if name == self.program.root:
            return "root"

        def called(_: Node, call: Call) -> str:
            return f"{call.instance.path}@{self.label(path, call)} {self.digests[call.graph, below(path, call)]}"

        graph = self.program.graphs[name]
        # A called body stands in a deeper module, and `called` writes it; operator bodies stand where this one does.  A body
        # that is called may stand here as well, for others: that says nothing about this one.
        bodies = {name for node in graph.nodes if _has_bodies(node) for name in bodies_in(node.args, node.kwargs)}
        inner = {inner: self.digests[inner, path] if inner in bodies else "" for inner in callees(graph)}
        return graph_digest(graph, inner, instance=called)

    def label(self, path: str, call: Call) -> Label:
        """Return the first call and part of the called module that has the same body."""
        place = below(path, call)
        digest = self.digests[call.graph, place]
        found = self._labels.get((place, digest))
        if found is None:
            calls = self.places.calls[place]
            found = self._labels[place, digest] = min(label for label, other in calls.items() if self.digests[other] == digest)
        return found

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each digest, its calls rewritten; the same object if nothing is."""
        found: dict[str, Graph] = {}
        for instance in self.places.order:
            name = self.ids[self.digests[instance]]
            if name not in found:
                found[name] = self._rewritten(*instance)
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        graph = self.program.graphs[name]
        nodes = [self._rewritten_node(node, path) for node in graph.nodes]
        if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        return evolve(graph, nodes=tuple(nodes))

    def _rewritten_node(self, node: Node, path: str) -> Node:
        do = node.do
        if type(do) is Call:
            call, part = self.label(path, do)
            new = Call(evolve(do.instance, call=call, part=part), self.ids[self.digests[do.graph, below(path, do)]])
            return node if new == do else evolve(node, do=new)
        if type(do) is Op and do.effects.through_bodies:

            def body(ref: Arg) -> Arg:
                other = self.ids[self.digests[ref.graph, path]] if type(ref) is Body else ""
                return Body(other) if type(ref) is Body and other != ref.graph else ref

            args, kwargs = map_refs(node.args, body), map_refs(node.kwargs, body)
            return node if args is node.args and kwargs is node.kwargs else evolve(node, args=args, kwargs=kwargs)
        return node
