"""``deduplicate``: equal bodies become one.

From the innermost calls outwards, each body is written as a list of tokens, callees as the number of the class
that they fell into, and one dictionary gives equal lists one number.  State is named relative to the module, so the blocks
of a transformer are equal; which state is read and which body is called is part of the list.  Nothing is compared pairwise.
A body that several become is nobody's own, and is named for all of its users (``shared_bodies.py``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from ..ir.analysis.digest import own_identity
from ..ir.calls.call_graph import Instance, heights, with_inner_instances
from ..ir.calls.parts import part_names
from ..ir.graph import Call, Frame, Graph, Node
from ..ir.names import join
from ..ir.program import Program
from ..ir.verify import check
from .shared_bodies import for_all, ids_of, with_named_reads
from .transformation import UNLIMITED, Fuel, transformation

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
def deduplicate(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Let equal bodies be one.

    Before::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    After::

        y = call layers.0 -> Layer (x);  z = call layers.1 -> Layer (y)

    Calls of one module that have the same body get one call number, the first.  What meta says of one call (the fake value,
    sizes that only a run knows, the user's notes) stays where it holds for all calls of the body; ``expand`` and ``inline`` work
    out the values of each call again.  A read in a body is called as its module names the state (``weight`` and not
    ``p_layers_0_weight``), a body that several modules share after their class, and a value in it after what all of its users
    call it (``shared_bodies.py``); inside of parts all names stay the original ones.

    Args:
        program: a program at any stage.
        fuel: all of it is one rewrite.

    Returns:
        The program with one graph for each distinct body.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.deduplicate(program) is program
    True
    """
    if len(program.order) == 1:
        return program
    made = program.with_graphs(_Classes(program).graphs(), only=True)
    changed = made is not program and fuel.burn("merge equal bodies,", len(program.order), "->", len(made.order))
    return made if changed else program


class _Classes:
    """Groups equal bodies, innermost bodies first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.is_split = bool(part_names(program))
        self.inner: dict[Instance, list[Instance]] = {}
        """For each body, in calling order, those that it calls or gives to operators, in order."""
        self.calls: dict[Instance, list[int]] = {}
        """The calls of its module that run a body."""
        rank = self._walk()
        self.classes: dict[Instance, int] = {}
        self.first: dict[tuple[str, int], int] = {}
        """For the path of a module and a class the first call that runs it."""
        numbers: dict[Hashable, int] = {}
        depth = heights(program)
        # Equal bodies nest equally deep: when a caller comes, every body that may be equal to one that it calls was there.
        for instance in sorted(self.inner, key=lambda instance: (depth[instance[0]], rank[instance[0]])):
            number = self.classes[instance] = numbers.setdefault(self._identity(instance), len(numbers))
            for call in self.calls.get(instance, ()):
                called = instance[1], number
                self.first[called] = min(call, self.first.get(called, call))
        self.members: dict[Hashable, dict[str, list[str]]] = {}
        """For each class the bodies that become one, and the paths of the modules that each stands in."""
        for instance in self.inner:
            self.members.setdefault(self.classes[instance], {}).setdefault(instance[0], []).append(instance[1])
        called = {name for name, path in self.inner if (name, path) in self.calls}
        self.ids = ids_of(self.members, {module.path: module.type_name for module in program.modules}, called)
        """The graph that stays for each class: the first one met in calling order."""

    def _walk(self) -> dict[str, int]:
        # The instances with what they call; returns the graphs with their places from the innermost outwards.
        rank = {name: index for index, name in enumerate(self.program.bottom_up)}
        for outer, inner in with_inner_instances(self.program):
            self.inner[outer] = inner
            for node in self.program.graphs[outer[0]].callers:
                if type(do := node.do) is Call:
                    self.calls.setdefault((do.graph, join(outer[1], do.instance.path)), []).append(do.instance.call)
            if any(rank.get(name, math.inf) >= rank[outer[0]] for name, _ in inner):
                check(self.program)  # a body that reaches itself or is missing stands nowhere: this raises, and says where
        return rank

    def _identity(self, instance: Instance) -> Hashable:
        name, path = instance
        if name == self.program.root:
            return "root"

        graph = self.program.graphs[name]
        called: list[Hashable] = []
        for node in graph.callers:
            if type(do := node.do) is Call:
                inner = do.graph, join(path, do.instance.path)
                called.append((self._call(*inner), self.classes[inner]))
            else:
                called += [self.classes[body, path] for body in node.callees]
        return own_identity(graph)[0], *called, self._convention(instance)

    def _call(self, graph: str, path: str) -> int:
        # The first call of the module that runs the same body.
        return self.first[path, self.classes[graph, path]]

    def _convention(self, instance: Instance) -> str:
        # Bodies with a preserved call signature are called as it says, so it is a part of what they are.
        signatures = self.program.call_signatures
        calls = self.calls.get(instance)
        known = signatures.get(Frame(instance[1], calls[0])) if calls and len(signatures) else None
        return "" if known is None else f" {known.in_spec} {known.out_spec} {known.arg_names}"

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each class, its calls rewritten; the same object if nothing is."""
        found: dict[str, Graph] = {}
        for instance in self.inner:
            name = self.ids[self.classes[instance]]
            if name not in found:
                found[name] = self._rewritten(*instance)
        for key, members in self.members.items():
            name = self.ids[key]
            if len(members) > 1:
                users = [(self.program.graphs[member], paths) for member, paths in members.items()]
                found[name] = for_all(found[name], users, is_split=self.is_split)
            elif not self.is_split and name != self.program.root:
                found[name] = with_named_reads(found[name])
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        graph = self.program.graphs[name]
        changed = {node.name: new for node in graph.callers if (new := self._rewritten_node(node, path)) is not node}
        return graph.with_nodes([changed.get(node.name, node) for node in graph.nodes]) if changed else graph

    def _rewritten_node(self, node: Node, path: str) -> Node:
        do = node.do
        if type(do) is not Call:
            return node.calling(lambda graph: self.ids[self.classes[graph, path]])
        inner = do.graph, join(path, do.instance.path)
        new = Call(Frame(do.instance.path, self._call(*inner)), self.ids[self.classes[inner]])
        return node if new == do else node.evolve(do=new)
