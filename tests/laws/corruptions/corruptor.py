"""``Corruptor``: the places where one invariant of a program can be broken, how, and which rule must notice.

``corrupts`` makes one of a function that changes one place and leaves all else; which place is chosen with a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve, field, frozen

from purefx.ir.graph import Call, Graph, Node, Op
from purefx.ir.own_operators import is_boundary
from purefx.ir.program import Program

__all__ = [
    "MEANING",
    "Corruption",
    "Corruptor",
    "Place",
    "changed",
    "corrupts",
    "fresh_name",
    "geometry",
    "graphs",
    "is_call",
    "is_op",
    "nodes",
    "once",
    "places",
    "replaced",
    "swapped",
    "with_graph",
    "with_item",
    "with_slot",
    "with_specs",
]

MEANING = "meaning"
"""The law that must refuse what no rule does: the program is valid, and computes something else."""

Choice = TypeVar("Choice")


@frozen
class Corruptor:
    """A way to break a program."""

    name: str
    rule: str | None
    """The name of the rule that must reject the result; None if only the semantic laws detect it."""
    statement: str
    """What is done to the program, in one sentence."""
    at: Callable[[Program], Sequence[Any]] = field(repr=False)
    """The places of a valid program that can be broken."""
    change: Callable[[Program, Any], Program] = field(repr=False)
    """Breaks one of them."""

    def apply(self, program: Program, seed: int) -> Program | None:
        """Return the program with one place broken, the same for equal seeds; None where it has no such place."""
        options = self.at(program)
        return self.change(program, random.Random(seed).choice(options)) if options else None

    def __str__(self) -> str:
        return self.name


def corrupts(
    rule: str | None, statement: str, *, at: Callable[[Program], Sequence[Choice]]
) -> Callable[[Callable[[Program, Choice], Program]], Corruptor]:
    """Return a decorator: a function that breaks a place of a program becomes a corruptor with its name."""
    return lambda change: Corruptor(change.__name__.replace("_", " "), rule, statement, at, change)


@frozen
class Corruption:
    """A corrupted program, what was done to it, and what it was."""

    corruptor: Corruptor
    program: Program
    original: Program


@frozen
class Place:
    """A node and where it stands."""

    graph: str
    index: int
    node: Node

    @property
    def do(self) -> Any:
        """What the node does; which kind of thing that is, those who chose the place know."""
        return self.node.do


def once(_program: Program) -> tuple[None]:
    """Return one place in any program: that of what is a matter of the whole, or is added to it."""
    return (None,)


def graphs(program: Program) -> tuple[str, ...]:
    """Return the names of all graphs, the root first."""
    return program.order


def places(program: Program, wanted: Callable[[Node], bool] | None = None, *, graph: str | None = None) -> list[Place]:
    """Return all nodes of a kind, in program order."""
    names = program.order if graph is None else (graph,)
    found = [Place(name, index, node) for name in names for index, node in enumerate(program.graphs[name].nodes)]
    return [place for place in found if wanted is None or wanted(place.node)]


def nodes(wanted: Callable[[Node], bool] | None = None, *, in_root: bool = False) -> Callable[[Program], list[Place]]:
    """Return a function that finds the nodes of a kind."""
    return lambda program: places(program, wanted, graph=program.root if in_root else None)


def with_graph(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one graph replaced."""
    return program.evolve(graphs=program.graphs.set(name, evolve(program.graphs[name], **changes)))


def replaced(program: Program, place: Place, *new: Node) -> Program:
    """Return a program with other nodes in one place."""
    old = program.graphs[place.graph].nodes
    return with_graph(program, place.graph, nodes=(*old[: place.index], *new, *old[place.index + 1 :]))


def changed(program: Program, place: Place, **changes: Any) -> Program:
    """Return a program with some fields of one node replaced."""
    return replaced(program, place, evolve(place.node, **changes))


def with_specs(program: Program, **changes: Any) -> Program:
    """Return a program with some fields of the signature replaced."""
    return program.evolve(signature=evolve(program.signature, **changes))


def with_slot(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one slot replaced."""
    state = program.state
    return program.evolve(state=evolve(state, slots=state.slots.set(name, evolve(state[name], **changes))))


def with_item(values: Sequence[Any], index: int, *new: Any) -> tuple[Any, ...]:
    """Return values with others in the place of one."""
    return (*values[:index], *new, *values[index + 1 :])


def swapped(values: Sequence[Any], left: int, right: int) -> tuple[Any, ...]:
    """Return values with two of them in each other's place."""
    return with_item(with_item(values, left, values[right]), right, values[left])


def fresh_name(graph: Graph) -> str:
    """Return a name that no value of a graph has."""
    return graph.names().fresh("corrupted")


def is_call(node: Node) -> bool:
    """Return whether a node calls a module."""
    return type(node.do) is Call


def is_op(node: Node) -> bool:
    """Return whether a node calls an operator; the boundaries of preserved calls have a rule of their own, and do not count."""
    return type(node.do) is Op and not is_boundary(node)


def geometry(value: Any) -> tuple[object, ...] | None:
    """Return dtype and sizes of a tensor, symbols left open; None for what is not a tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    # A symbolic size is never compared: that would install a guard.
    return (value.dtype, *(size if type(size) is int else None for size in value.shape))
