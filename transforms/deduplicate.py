"""``deduplicate``: equal bodies become one.

From the innermost calls outwards, each body is written as a list of tokens, callees as the number of the class
that they fell into, and one dictionary gives equal lists one number.  State is named relative to the module, so the blocks
of a transformer are equal; which state is read and which body is called is part of the list.  Nothing is compared pairwise.
A body that several become is nobody's own, and is named for all of its users (``shared_bodies.py``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

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
        fuel: a rewrite is one body into which all equal ones are merged, or whose reads are named and whose calls get the numbers
            of equal ones; bodies come after those that they call.

    Returns:
        The program with one graph for each distinct body.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.deduplicate(program) is program
    True
    """
    return program if len(program.order) == 1 else program.with_graphs(_Classes(program, fuel).graphs(), only=True)


class _Classes:
    """Groups equal bodies, innermost bodies first."""

    def __init__(self, program: Program, fuel: Fuel) -> None:
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
        self.settled = self._settled(fuel) if fuel.limited else None
        """The classes that fuel was enough for; None if it was enough for all."""
        self.keys: Mapping[Instance, Hashable] = self.classes if self.settled is None else self._keys(self.settled)
        """Instances with one key become one graph."""
        self.members: dict[Hashable, dict[str, list[str]]] = {}
        """For each key the bodies that become one, and the paths of the modules that each stands in."""
        for instance in self.inner:
            self.members.setdefault(self.keys[instance], {}).setdefault(instance[0], []).append(instance[1])
        called = {name for name, path in self.inner if (name, path) in self.calls}
        self.ids = ids_of(self.members, {module.path: module.type_name for module in program.modules}, called)
        """The graph that stays for each key: the first one met in calling order."""

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

    def _settled(self, fuel: Fuel) -> set[int]:
        # The classes whose bodies become one and get the numbers of equal calls, as far as the fuel goes; callees come first.
        classes: dict[int, list[Instance]] = {number: [] for number in self.classes.values()}
        for instance in self.inner:
            classes[self.classes[instance]].append(instance)
        settled: set[int] = set()
        for number, members in classes.items():
            into, *others = dict.fromkeys(name for name, _ in members)
            merged = f"body {others[0]!r}" if len(others) == 1 else f"{len(others)} bodies"
            own = self.program.graphs[into]
            named = into == self.program.root or self.is_split or with_named_reads(own) is own
            changed = bool(others) or not named or any(self._renumbers(*instance) for instance in members)
            label = f"merge {merged} into" if others else "name the reads and number the calls in"
            if not changed or fuel.burn(label, repr(into)):
                settled.add(number)
        return settled

    def _keys(self, settled: set[int]) -> Mapping[Instance, Hashable]:
        # What stays as it is, is distinguished by the graph that it is and by what its callees are now.
        keys: dict[Instance, Hashable] = {}
        for instance, number in self.classes.items():
            own = (instance[0], *[keys[inner] for inner in self.inner[instance]])
            keys[instance] = number if number in settled else own
        return keys

    def _renumbers(self, name: str, path: str) -> bool:
        calls = [node.do for node in self.program.graphs[name].callers if type(node.do) is Call]
        return any(self._call(call.graph, join(path, call.instance.path)) != call.instance.call for call in calls)

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each class, its calls rewritten; the same object if nothing is."""
        found: dict[str, Graph] = {}
        for instance in self.inner:
            name = self.ids[self.keys[instance]]
            if name not in found:
                found[name] = self._rewritten(*instance)
        for key, members in self.members.items():
            name = self.ids[key]
            if len(members) > 1:
                users = [(self.program.graphs[member], paths) for member, paths in members.items()]
                found[name] = for_all(found[name], users, is_split=self.is_split)
            elif not self.is_split and name != self.program.root and (self.settled is None or key in self.settled):
                found[name] = with_named_reads(found[name])
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        graph = self.program.graphs[name]
        anew = self.settled is None or self.classes[name, path] in self.settled
        changed = {node.name: new for node in graph.callers if (new := self._rewritten_node(node, path, anew=anew)) is not node}
        return graph.with_nodes([changed.get(node.name, node) for node in graph.nodes]) if changed else graph

    def _rewritten_node(self, node: Node, path: str, *, anew: bool) -> Node:
        do = node.do
        if type(do) is not Call:
            return node.calling(lambda graph: self.ids[self.keys[graph, path]])
        inner = do.graph, join(path, do.instance.path)
        new = Call(Frame(do.instance.path, self._call(*inner) if anew else do.instance.call), self.ids[self.keys[inner]])
        return node if new == do else node.evolve(do=new)
