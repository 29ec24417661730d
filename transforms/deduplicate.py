"""``deduplicate``: equal bodies become one.

One idea: from the innermost calls outwards, each body is given its digest, callees written as the class that they
fell into, and bodies are grouped by one dictionary.  State is named relative to the module, so the blocks of a
transformer are equal; which state is read and which body is called is part of the digest.  Nothing is compared
pairwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import evolve

from ..ir.arguments import Arg, Body, bodies_in, map_refs
from ..ir.digest import graph_digest
from ..ir.graph import Graph
from ..ir.names import Names
from ..ir.node import Call, Frame, Node, Op
from ..ir.paths import join
from ..ir.persistent import pmap
from ..ir.program import Program, callees
from ..ir.verify import check
from .fuel import UNLIMITED, Fuel
from .transformation import transformation

__all__ = ["Places", "below", "deduplicate"]


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
def deduplicate(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Let equal bodies be one.

    Before::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    After::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.0 (y)

    Calls of one module that have the same body get one call number, the first.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one body that is merged into an equal one, or whose calls get the numbers of equal ones; bodies
            come after those that they call, equal ones in calling order.

    Returns:
        The program with one graph for each distinct body; the first one met in calling order stays.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.deduplicate(program) is program
    True
    """
    if len(program.order) == 1:
        return program
    classes = _Classes(program, fuel)
    graphs = classes.graphs()
    if len(graphs) == len(program.order) and all(program.graphs.get(name) is graph for name, graph in graphs.items()):
        return program
    return program.evolve(graphs=pmap(graphs))


Instance = tuple[str, str]
"""A body, and the path of a module that it stands in: a body that is shared already stands in several."""

Label = tuple[int, int]
"""The call number of a call, and the part."""


class Places:
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
                todo.extend(reversed(self.inner(found)))

    def inner(self, outer: Instance) -> list[Instance]:
        """Return the bodies that a body calls or gives to operators, where they stand, in order."""
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
        """Return the instances, each after those that it calls and after all that nest no deeper than those.

        Equal bodies nest equally deep: when a caller comes, every body that may be equal to one that it calls was there.
        """
        heights: dict[str, int] = {}
        for name in self.rank:
            heights[name] = 1 + max([heights[inner] for inner in callees(self.program.graphs[name])], default=-1)
        return sorted(self.order, key=lambda instance: (heights[instance[0]], self.rank[instance[0]]))


def below(path: str, call: Call) -> str:
    """Return the path of the module that a body calls, from the path of the module that it stands in."""
    return join(path, call.instance.path)


def _has_bodies(node: Node) -> bool:
    return type(node.do) is Op and node.do.effects.through_bodies


class _Classes:
    """Groups bodies by digest, innermost bodies first."""

    def __init__(self, program: Program, fuel: Fuel) -> None:
        self.program = program
        self.places = Places(program)
        self.digests: dict[Instance, str] = {}
        self._labels: dict[tuple[str, str, int], Label] = {}
        for instance in self.places.innermost_first():
            self.digests[instance] = self._digest(instance)
        self.settled: set[Instance] | None = None
        """The instances that fuel was enough for; None where it was enough for all."""
        self.keys = self.digests if not fuel.limited else self._keys(fuel)
        """Instances with one key become one graph."""
        self.ids: dict[str, str] = {}
        """The graph that stays for each key: the first one met in calling order."""
        names = Names(())
        for instance in self.places.order:
            if self.keys[instance] not in self.ids:
                self.ids[self.keys[instance]] = names.fresh(instance[0])

    def _digest(self, instance: Instance) -> str:
        name, path = instance
        if name == self.program.root:
            return "root"

        def called(_: Node, call: Call) -> str:
            return f"{call.instance.path}@{self.label(path, call)} {self.digests[call.graph, below(path, call)]}"

        graph = self.program.graphs[name]
        # `called` writes a called body; operator bodies stand where this one does.  A body that is called may stand here as
        # well, for others: that says nothing about this one.
        bodies = {name for node in graph.nodes if _has_bodies(node) for name in bodies_in(node.args, node.kwargs)}
        inner = {inner: self.digests[inner, path] if inner in bodies else "" for inner in callees(graph)}
        return graph_digest(graph, inner, instance=called) + self._convention(instance)

    def _keys(self, fuel: Fuel) -> dict[Instance, str]:
        classes: dict[str, list[Instance]] = {digest: [] for digest in self.digests.values()}  # callees come first
        for instance in self.places.order:
            classes[self.digests[instance]].append(instance)
        changed: set[Instance] = set()
        for members in classes.values():
            changed.update(self._changed(members, fuel))
        if not fuel.refused:
            return self.digests
        self.settled = changed
        # What stays as it is, is told apart by the graph that it is and by what its callees are now.
        numbers: dict[tuple[str, ...], str] = {}
        keys: dict[Instance, str] = {}
        for digest, members in classes.items():
            first = members[0]
            for instance in members:
                own = (instance[0], *(keys[inner] for inner in self.places.inner(instance)))
                becomes = digest if first in changed else keys.get(first, "")
                keys[instance] = becomes if instance in changed else numbers.setdefault(own, f"own {len(numbers)}")
        return keys

    def _changed(self, members: list[Instance], fuel: Fuel) -> Iterator[Instance]:
        # The instances of one class that become the first one, as far as the fuel goes.
        into = members[0][0]
        paid: set[str] = set()
        for name, path in members:
            if name == into and not self._renumbers(name, path):
                continue
            if name not in paid:
                paid.add(name)
                what = ("merge body", repr(name), "into", repr(into)) if name != into else ("number the calls in", repr(name))
                if not fuel.burn(*what):
                    return
            yield name, path

    def _renumbers(self, name: str, path: str) -> bool:
        calls = [node.do for node in self.program.graphs[name].nodes if type(node.do) is Call]
        return any(self.label(path, call) != (call.instance.call, call.instance.part) for call in calls)

    def _convention(self, instance: Instance) -> str:
        # Bodies with a preserved call signature are called as it says, so it is a part of what they are.
        signatures = self.program.call_signatures
        if not len(signatures):
            return ""
        labels = [label for label, other in self.places.calls.get(instance[1], {}).items() if other == instance]
        found = [signatures.get(Frame(instance[1], call)) for call, _ in labels]
        return "".join([f" {known.in_spec} {known.out_spec} {known.arg_names}" for known in found[:1] if known is not None])

    def label(self, path: str, call: Call) -> Label:
        """Return the first call of the called module that has the same body; a piece of a call is the same piece of it."""
        place = below(path, call)
        digest = self.digests[call.graph, place]
        found = self._labels.get((place, digest, call.instance.part))
        if found is None:
            calls = self.places.calls[place]
            # A body that calls itself again, through others, differs from what it calls: its digest is not needed here.
            equal = [label for label, other in calls.items() if self.digests.get(other) == digest]
            # Were a whole call named after a later piece of another, inlining would take it for a piece of that.
            found = min(label for label in equal if label[1] == call.instance.part)
            self._labels[place, digest, call.instance.part] = found
        return found

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each digest, its calls rewritten; the same object if nothing is."""
        found: dict[str, Graph] = {}
        for instance in self.places.order:
            name = self.ids[self.keys[instance]]
            if name not in found:
                found[name] = self._rewritten(*instance)
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        graph = self.program.graphs[name]
        anew = self.settled is None or (name, path) in self.settled
        nodes = [self._rewritten_node(node, path, anew=anew) for node in graph.nodes]
        if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        return evolve(graph, nodes=tuple(nodes))

    def _rewritten_node(self, node: Node, path: str, *, anew: bool) -> Node:
        do = node.do
        if type(do) is Call:
            call, part = self.label(path, do) if anew else (do.instance.call, do.instance.part)
            new = Call(evolve(do.instance, call=call, part=part), self.ids[self.keys[do.graph, below(path, do)]])
            return node if new == do else evolve(node, do=new)
        if type(do) is Op and do.effects.through_bodies:

            def body(ref: Arg) -> Arg:
                other = self.ids[self.keys[ref.graph, path]] if type(ref) is Body else ""
                return Body(other) if type(ref) is Body and other != ref.graph else ref

            args, kwargs = map_refs(node.args, body), map_refs(node.kwargs, body)
            return node if args is node.args and kwargs is node.kwargs else evolve(node, args=args, kwargs=kwargs)
        return node
