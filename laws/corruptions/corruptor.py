"""``Corruptor``: a way to break one invariant of a program, who must notice, and the places where it can be broken.

A place is changed by itself; all else stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve, field, frozen

from ...ir.graph import Call, Graph, Node, Op
from ...ir.own_operators import is_boundary
from ...ir.program import Program

__all__ = [
    "MEANING",
    "Corruption",
    "Corruptor",
    "Place",
    "changed",
    "choose",
    "fresh_name",
    "geometry",
    "is_call",
    "is_op",
    "places",
    "replaced",
    "with_graph",
    "with_specs",
]

MEANING = "meaning"
"""Refused by nothing but the oracle: the program is valid, and computes something else."""

VERIFY = "verify:"


@frozen
class Corruptor:
    """A way to break a program.

    >>> Corruptor("no root", "verify:root", "the root names no graph", lambda program, seed: program.evolve(root="?")).rule
    'root'
    """

    name: str
    refused_by: str
    """``"verify:<rule>"``, or ``"meaning"``."""
    statement: str
    """What is done to the program, in one sentence."""
    apply: Callable[[Program, int], Program | None] = field(repr=False)
    """Gives the corrupted program, or None where this program has nothing of the kind; equal seeds give equal programs."""

    @property
    def rule(self) -> str | None:
        """The name of the rule that must reject the result; None if only the semantic laws detect it."""
        return self.refused_by.removeprefix(VERIFY) if self.refused_by.startswith(VERIFY) else None

    def __str__(self) -> str:
        return self.name


@frozen
class Corruption:
    """A corrupted program, what was done to it, and what it was.

    >>> program = Program.of({})
    >>> idle = Corruptor("nothing", MEANING, "nothing is done", lambda program, seed: program)
    >>> Corruption(idle, program, program).program is program
    True
    """

    corruptor: Corruptor
    program: Program
    original: Program


Value = TypeVar("Value")


@frozen
class Place:
    """A node and where it stands.

    >>> Place("", 0, Node("y", Op("toy.neg"))).node.name
    'y'
    """

    graph: str
    index: int
    node: Node


def places(program: Program, wanted: Callable[[Node], bool] | None = None, *, graph: str | None = None) -> list[Place]:
    """Return all nodes of a kind, in program order.

    Args:
        program: a valid program.
        wanted: says whether a node is of the kind; None takes every node.
        graph: only those of one graph.
    """
    names = program.order if graph is None else (graph,)
    found = [Place(name, index, node) for name in names for index, node in enumerate(program.graphs[name].nodes)]
    return [place for place in found if wanted is None or wanted(place.node)]


def choose(options: Sequence[Value], seed: int) -> Value | None:
    """Return one of some values; None of none.

    >>> choose([1, 2, 3], 0) == choose([1, 2, 3], 0), choose([], 0)
    (True, None)
    """
    return random.Random(seed).choice(options) if options else None  # noqa: S311  no secret


def with_graph(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one graph replaced."""
    return program.evolve(graphs=program.graphs.set(name, evolve(program.graphs[name], **changes)))


def replaced(program: Program, place: Place | None, *nodes: Node) -> Program | None:
    """Return a program with other nodes in one place; None for no place."""
    if place is None:
        return None
    old = program.graphs[place.graph].nodes
    return with_graph(program, place.graph, nodes=(*old[: place.index], *nodes, *old[place.index + 1 :]))


def changed(program: Program, place: Place | None, **changes: Any) -> Program | None:
    """Return a program with some fields of one node replaced; None for no place."""
    return replaced(program, place, evolve(place.node, **changes)) if place is not None else None


def with_specs(program: Program, **changes: Any) -> Program:
    """Return a program with some fields of the signature replaced."""
    return program.evolve(signature=evolve(program.signature, **changes))


def fresh_name(graph: Graph) -> str:
    """Return a name that no value of a graph has."""
    return graph.names().fresh("corrupted")


def is_call(node: Node) -> bool:
    """Return whether a node calls a module.

    >>> is_call(Node("y", Op("toy.neg")))
    False
    """
    return type(node.do) is Call


def is_op(node: Node) -> bool:
    """Return whether a node calls an operator; the boundaries of preserved calls have a rule of their own, and do not count.

    >>> is_op(Node("y", Op("toy.neg")))
    True
    """
    return type(node.do) is Op and not is_boundary(node)


def geometry(value: Any) -> tuple[object, ...] | None:
    """Return dtype and sizes of a tensor, symbols left open; None for what is not a tensor.

    >>> geometry(torch.ones(2, 3)), geometry(3)
    ((torch.float32, 2, 3), None)
    """
    if not isinstance(value, torch.Tensor):
        return None
    # A symbolic size is never compared: that would install a guard.
    return (value.dtype, *(size if type(size) is int else None for size in value.shape))
