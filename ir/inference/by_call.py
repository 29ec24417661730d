"""``CallValues``: the bodies of a program with the fake values of each call, for analyses that go from call to call.

The meta of a shared body holds in every call; what differs between its calls follows from their operands and is inferred on
demand.  A program whose shared bodies have complete meta is not walked.
"""

from __future__ import annotations

from functools import cached_property

from ..calls.call_graph import bodies_of
from ..graph import Call, Graph, Node
from ..names import join
from ..program import Program
from .propagation import Propagation, shared_bodies
from .walk import Called


class CallValues:
    """What the bodies of one program say of their calls.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> CallValues(program).body("", CallValues(program).root) is program.main
    True
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def shared(self) -> frozenset[str]:
        """The graphs that more than one call runs."""
        return shared_bodies(self.program)

    @cached_property
    def root(self) -> Called | None:
        """How the root runs; None where meta says all that it says of every call, or nothing."""
        program = self.program
        if not self.shared or not any("val" in part.meta for part in (*program.main.inputs, *program.main.nodes)):
            return None  # nothing is shared, or the program came without values
        work = Propagation(program, lenient=True)
        return None if self.shared.isdisjoint(work.open) else work.walked()

    def body(self, name: str, call: Called | None) -> Graph:
        """Return a graph with the values of a call.

        Args:
            name: the graph.
            call: how it runs there; None if its meta says that.
        """
        return self.program.graphs[name] if call is None else call.body

    def inner(self, call: Called | None, node: Node, name: str) -> Called | None:
        """Return how a body runs that a node calls or passes to an operator; None if its meta says so, or it is unknown.

        Args:
            call: how the caller runs.
            node: the node of the caller.
            name: the body.
        """
        found = [] if call is None else call.inner.get((node.name, name), [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _standing(self) -> dict[tuple[str, str], list[Called | None]]:
        found: dict[tuple[str, str], list[Called | None]] = {}
        todo: list[tuple[str, str, Called | None]] = [(self.program.root, "", self.root)]
        while todo:
            name, path, call = todo.pop()
            known = found.setdefault((name, path), [])
            if any(call is other for other in known):
                continue
            known.append(call)
            for node in self.program.graphs[name].callers:
                below = join(path, node.do.instance.path) if type(node.do) is Call else path
                todo.extend((body, below, self.inner(call, node, body)) for body in bodies_of(node))
        return found

    def at(self, name: str, path: str) -> list[Graph]:
        """Return a graph with the values of each call that gives it others, where it stands.

        Args:
            name: the graph.
            path: the module that it stands in.
        """
        if self.root is None:
            return [self.program.graphs[name]]
        return [self.body(name, call) for call in self._standing.get((name, path), [None])]
