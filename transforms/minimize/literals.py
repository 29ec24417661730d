"""Simpler operators: arguments that have defaults are left out, numbers get small.

It proposes candidates, one argument at a time; types of values are inferred again from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from attrs import evolve

from ...ir.arguments import Arg
from ...ir.graph import Graph, Node, Op
from ...ir.inference.walk import without_value
from ...ir.program import Program
from .retyping import mapped
from .search import Search
from .weight import literals_in

__all__ = ["simplify_literals"]


def simplify_literals(search: Search) -> None:
    """Leave out arguments that have defaults, and make numbers small, one by one.

    Args:
        search: what is reduced.
    """
    for name in search.program.order:
        for node in search.program.graphs[name].nodes:
            if type(node.do) is Op:
                for told, change in _simpler(node):
                    search.offer(f"{told} of {node.name}", partial(_with_other, name=name, at=node.name, change=change))


def _with_other(program: Program, *, name: str, at: str, change: Callable[[Node], Node | None]) -> Program | None:
    graph = program.graphs[name]
    other = change(graph.by_name[at]) if at in graph.by_name else None
    if other is None:
        return None
    other = other.evolve(meta=without_value(other.meta))
    return program.with_graphs({name: graph.with_nodes([other if node.name == at else node for node in graph.nodes])})


def _simpler(node: Node) -> Iterator[tuple[str, Callable[[Node], Node | None]]]:
    for number in range(len(node.kwargs)):
        yield f"leave out {node.kwargs[number][0]}", partial(_without_keyword, key=node.kwargs[number][0])
    for count in range(len(node.args) - 1, -1, -1):
        if Graph((), (evolve(node, args=node.args[count:], kwargs=()),)).users:
            break
        yield f"leave out argument {count}", partial(_without_last, count=count)
    for place, literal in enumerate(literals_in(node)):
        for simple in SIMPLE.get(type(literal), ()):
            if simple != literal:
                yield f"{simple} in the place of {literal}", partial(_with_literal, place=place, simple=simple)


SIMPLE: Mapping[type, tuple[Any, ...]] = {bool: (False,), int: (0, 1, 2), float: (1.0, 2.0, 0.5)}


def _without_keyword(node: Node, *, key: str) -> Node:
    return evolve(node, kwargs=tuple([pair for pair in node.kwargs if pair[0] != key]))


def _without_last(node: Node, *, count: int) -> Node | None:
    return evolve(node, args=node.args[:count]) if len(node.args) == count + 1 else None


def _with_literal(node: Node, *, place: int, simple: Any) -> Node:
    left = iter(range(place + 1))

    def leaf(literal: Arg) -> Arg:
        return simple if next(left, -1) == place else literal

    args = mapped(node.args, leaf)
    return evolve(node, args=args, kwargs=tuple([(key, mapped(arg, leaf)) for key, arg in node.kwargs]))
