"""``Graph``: inputs, an ordered tuple of nodes, an output.

One idea: the order of the nodes is the order of execution is the order of effects; it is the structure and not a
side table.  Who uses what is derived, never stored.  A graph knows no state and no other graph: the program does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from attrs import field, frozen

from .arguments import Arg, bodies_in, refs_in, same_arg, shown, strict_hash
from .meta import EMPTY_META, Meta
from .node import Call, Node, Op
from .printing import text_of

__all__ = ["Graph", "Input"]


@frozen
class Input:
    """A formal parameter of a graph.

    >>> Input("x") == Input("x", meta={"val": 1})
    True
    """

    name: str
    meta: Meta = field(default=EMPTY_META, eq=False, repr=False)


@frozen(eq=False)
class Graph:
    """A body: what it takes, what it does in order, what it gives back.

    >>> from purefx.ir import Graph, Input, Node, Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), Ref("y"))
    >>> graph.users["x"]
    ('y',)
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    output: Arg = field(default=(), repr=shown)

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return MappingProxyType({node.name: node for node in self.nodes})

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """For each value, the names of the nodes that use it, in order; values without a user are left out."""
        users: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            for name in node.refs():
                users.setdefault(name, {})[node.name] = None
        return MappingProxyType({name: tuple(of) for name, of in users.items()})

    @cached_property
    def last_uses(self) -> Mapping[int, tuple[str, ...]]:
        """For the number of a node, the values that nobody needs after it: its own, if nobody uses it."""
        last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            last[node.name] = index
            for name in node.refs():
                last[name] = index
        for name in self.output_refs():
            last.pop(name, None)
        ends: dict[int, list[str]] = {}
        for name, index in last.items():
            ends.setdefault(index, []).append(name)
        return MappingProxyType({index: tuple(names) for index, names in ends.items()})

    @cached_property
    def callers(self) -> tuple[Node, ...]:
        """The nodes that call a graph, or give one to an operator."""
        return tuple(
            [node for node in self.nodes if type(do := node.do) is Call or (type(do) is Op and do.effects.through_bodies)]
        )

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """The ids of the graphs that it calls or gives to operators, in order, repeats kept."""
        found: list[str] = []
        for node in self.callers:
            do = node.do
            if type(do) is Call:
                found.append(do.graph)
            else:
                found.extend(bodies_in(node.args, node.kwargs))
        return tuple(found)

    def output_refs(self) -> list[str]:
        """Return the names of the values that the output uses, in order, repeats kept."""
        return refs_in((self.output,))

    def __str__(self) -> str:
        return text_of(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not Graph:
            return NotImplemented
        return self.inputs == other.inputs and self.nodes == other.nodes and same_arg(self.output, other.output)

    def __hash__(self) -> int:
        return hash((self.inputs, self.nodes, strict_hash(self.output)))
