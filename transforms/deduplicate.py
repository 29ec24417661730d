"""``deduplicate``: merge equal bodies.

Bodies are processed from the innermost calls outwards.  Each body is written as a list of tokens, with callees as the numbers
of their classes; a dictionary maps equal lists to one number, so no bodies are compared pairwise.  State is named relative to
the module, so the blocks of a transformer are equal.  The tokens include which state is read and which body is called.  A merged
body is named for all of its users (``shared_bodies.py``).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ..ir.analysis.digest import own_identity
from ..ir.calls.call_graph import Instance, called_at, heights, instances
from ..ir.calls.parts import part_names
from ..ir.graph import Call, Frame, Graph, Node
from ..ir.names import join
from ..ir.program import Program
from .shared_bodies import bodies_before_callers, ids_of, shared_body
from .transformation import UNLIMITED, Fuel, transformation


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
    """Merge equal bodies.

    Before::

        y = call layers.0 -> layers.0 (x);  z = call layers.1 -> layers.1 (y)

    After::

        y = call layers.0 -> Layer (x);  z = call layers.1 -> Layer (y)

    Calls of one module that have the same body get one call number, the first.  Metadata of one call (fake values, data-dependent
    sizes, user notes) is kept if it holds for all calls of the body; ``expand`` and ``inline`` recompute the values of each call.
    A read in a body is named after its state, relative to the module (``weight``, not ``p_layers_0_weight``), a shared body after
    the class of its modules, and a value after the name common to the merged bodies (``shared_bodies.py``).  Inside parts all
    names stay.

    Args:
        program: a program at any stage.
        fuel: everything is one rewrite.

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
    changed = made is not program and fuel.burn(
        "merge equal bodies,", len(program.order), "->", len(made.order)
    )
    return made if changed else program


class _Classes:
    """Groups equal bodies, innermost bodies first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.is_split = bool(part_names(program))
        rank, depth = bodies_before_callers(program), heights(program)
        self.instances = list(instances(program))
        self.calls: dict[Instance, list[int]] = {}
        """The calls of a module that run a body."""
        for name, path in self.instances:
            for node in program.graphs[name].callers:
                if type(do := node.do) is Call:
                    self.calls.setdefault((do.graph, join(path, do.instance.path)), []).append(
                        do.instance.call
                    )
        self.classes: dict[Instance, int] = {}
        self.first: dict[tuple[str, int], int] = {}
        """The first call that runs a class, by module path and class."""
        numbers: dict[Hashable, int] = {}
        # Equal bodies nest equally deep: all bodies that may equal a callee are numbered before the caller.
        for instance in sorted(
            self.instances, key=lambda instance: (depth[instance[0]], rank[instance[0]])
        ):
            number = self.classes[instance] = numbers.setdefault(
                self._identity(instance), len(numbers)
            )
            for call in self.calls.get(instance, ()):
                called = instance[1], number
                self.first[called] = min(call, self.first.get(called, call))
        self.members: dict[Hashable, dict[str, list[str]]] = {}
        """For each class its equal bodies, with the paths of the modules that run them."""
        for name, path in self.instances:
            self.members.setdefault(self.classes[name, path], {}).setdefault(name, []).append(path)
        self.ids = ids_of(self.members, program.types, {name for name, _ in self.calls})
        """The id of the body kept for each class: the first one in calling order."""

    def _identity(self, instance: Instance) -> Hashable:
        name, path = instance
        if name == self.program.root:
            return "root"
        graph = self.program.graphs[name]
        called: list[Hashable] = []
        for node in graph.callers:
            for inner in called_at(node, path):
                called.append(
                    (
                        self.first[inner[1], self.classes[inner]]
                        if type(node.do) is Call
                        else None,
                        self.classes[inner],
                    )
                )
        # Bodies with distinct preserved call signatures are called in distinct ways, so they are not equal.
        calls = self.calls.get(instance)
        signature = self.program.call_signatures.get(Frame(path, calls[0])) if calls else None
        convention = (
            ""
            if signature is None
            else f" {signature.in_spec} {signature.out_spec} {signature.arg_names}"
        )
        return own_identity(graph)[0], *called, convention

    def graphs(self) -> dict[str, Graph]:
        """Return one graph for each class, with its calls rewritten; the same objects if nothing changes."""
        found: dict[str, Graph] = {}
        for key, members in self.members.items():
            first, paths = next(iter(members.items()))
            graph = self._rewritten(first, paths[0])
            others = [self.program.graphs[member] for member in members if member != first]
            keeps = first == self.program.root and not others
            found[self.ids[key]] = (
                graph if keeps else shared_body(graph, others, renamed=not self.is_split)
            )
        return found

    def _rewritten(self, name: str, path: str) -> Graph:
        return self.program.graphs[name].with_callers(partial(self._rewritten_node, path=path))

    def _rewritten_node(self, node: Node, path: str) -> Node:
        do = node.do
        if type(do) is not Call:
            return node.calling(lambda graph: self.ids[self.classes[graph, path]])
        inner = do.graph, join(path, do.instance.path)
        new = Call(
            Frame(do.instance.path, self.first[inner[1], self.classes[inner]]),
            self.ids[self.classes[inner]],
        )
        return node if new == do else node.evolve(do=new)
