"""``deduplicate``: equal bodies become one.

One idea: from the innermost modules outwards, each body is given its digest, callees written as the class that they
fell into, and bodies are grouped by one dictionary.  State is named relative to the module, so the blocks of a
transformer are equal; which state is read and which body is called is part of the digest.  Nothing is compared
pairwise.
"""

from __future__ import annotations

from attrs import evolve

from ..ir.arguments import Arg, Body, bodies_in, map_refs
from ..ir.digest import graph_digest
from ..ir.graph import Graph
from ..ir.node import Call, Node, Op
from ..ir.persistent import pmap
from ..ir.program import Program
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
    kept = [name for name in program.order if classes.representative[name] == name]
    graphs = {name: classes.rewritten(name) for name in kept}
    if len(kept) == len(program.order) and all(graphs[name] is program.graphs[name] for name in kept):
        return program
    return program.evolve(graphs=pmap(graphs))


class _Places:
    """Where each body stands in the hierarchy, and which bodies the calls of each module have."""

    def __init__(self, program: Program) -> None:
        self.path: dict[str, str] = {program.root: ""}
        self.rank: dict[str, float] = {program.root: 0.0}
        self.calls: dict[str, dict[tuple[int, int], str]] = {}
        for name in program.order:  # callers come before callees
            self._note(name, program.graphs[name])

    def _note(self, name: str, graph: Graph) -> None:
        path, rank = self.path[name], self.rank[name]
        for node in graph.nodes:
            do = node.do
            if type(do) is Call:
                place = f"{path}.{do.instance.path}" if path else do.instance.path
                self.calls.setdefault(place, {}).setdefault((do.instance.call, do.instance.part), do.graph)
                self._put(do.graph, place, 1.0 + place.count("."))
            elif type(do) is Op and do.effects.through_bodies:
                for inner in bodies_in(node.args, node.kwargs):
                    self._put(inner, path, rank + 1 / 1024)

    def _put(self, name: str, path: str, rank: float) -> None:
        if name not in self.rank:
            self.path[name], self.rank[name] = path, rank


class _Classes:
    """Groups bodies by digest, deepest modules first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = _Places(program)
        self.digests: dict[str, str] = {}
        self.representative: dict[str, str] = {}
        self._labels: dict[tuple[str, str], tuple[int, int]] = {}
        position = {name: index for index, name in enumerate(program.order)}
        ranks = self.places.rank
        # Every call of a module is in a deeper module than its caller, so all bodies of one module are known before
        # any caller of it is looked at; operator bodies come just before the body that holds them.
        for name in sorted(program.order, key=lambda name: (-ranks[name], position[name])):
            self._classify(name)
        first: dict[str, str] = {}
        for name in program.order:
            first.setdefault(self.digests[name], name)
        self.representative = {name: first[self.digests[name]] for name in program.order}

    def _classify(self, name: str) -> None:
        place = self.places.path[name]

        def instance(_: Node, call: Call) -> str:
            return f"{call.instance.path}@{self.label(place, call)}"

        digest = graph_digest(self.program.graphs[name], self.digests, instance=instance)
        self.digests[name] = "root" if name == self.program.root else digest

    def label(self, place: str, call: Call) -> tuple[int, int]:
        """Return the first call and part of the called module that has the same body."""
        path = f"{place}.{call.instance.path}" if place else call.instance.path
        digest = self.digests[call.graph]
        found = self._labels.get((path, digest))
        if found is None:
            calls = self.places.calls[path]
            found = min(label for label, graph in calls.items() if self.digests[graph] == digest)
            self._labels[path, digest] = found
        return found

    def rewritten(self, name: str) -> Graph:
        """Return a body whose calls name representatives and first calls; the same object if they did."""
        graph = self.program.graphs[name]
        place = self.places.path[name]
        nodes = [self._rewritten_node(node, place) for node in graph.nodes]
        if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        return evolve(graph, nodes=tuple(nodes))

    def _rewritten_node(self, node: Node, place: str) -> Node:
        do = node.do
        if type(do) is Call:
            call, part = self.label(place, do)
            new = Call(evolve(do.instance, call=call, part=part), self.representative[do.graph])
            return node if new == do else evolve(node, do=new)
        if type(do) is Op and do.effects.through_bodies:
            args, kwargs = map_refs(node.args, self._body), map_refs(node.kwargs, self._body)
            return node if args is node.args and kwargs is node.kwargs else evolve(node, args=args, kwargs=kwargs)
        return node

    def _body(self, ref: Arg) -> Arg:
        if type(ref) is not Body:
            return ref
        other = self.representative.get(ref.graph, ref.graph)
        return ref if other == ref.graph else Body(other)
