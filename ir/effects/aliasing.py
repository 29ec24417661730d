"""Which values of one graph may overlap, as far as its nodes tell.

One idea: each result of a call is a value by itself, as long as every use of the call takes one of them; a use that takes all
at once may keep them together.  What the slots of state are called is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..arguments import Ref
from ..graph import Graph
from ..node import Node, Op
from .unions import Unions

if TYPE_CHECKING:
    from .resolved import Happening

__all__ = ["item_of", "join_aliases", "taken_apart"]


def join_aliases(found: Unions, graph: Graph, done: Sequence[Happening], slot_key: Callable[[str], object]) -> None:
    """Join the values of a graph that may share memory with one another and with state.

    Args:
        found: what is joined already; values go by their names.
        graph: the graph.
        done: what its nodes do.
        slot_key: the key of a slot that a node names.
    """
    apart = taken_apart(graph, done)
    for node, happening in zip(graph.nodes, done, strict=True):
        if node.name in apart:
            for number, shared in enumerate(happening.results):
                found.join((node.name, number), (node.name, shared.first))
                _join_all(found, (node.name, number), (*shared.values, *map(slot_key, shared.slots)))
        elif apart and (item := item_of(node)) is not None and item[0] in apart:
            found.join(node.name, item)
        elif happening.aliases or happening.aliases_slots:
            _join_all(found, node.name, (*happening.aliases, *map(slot_key, happening.aliases_slots)))


def _join_all(found: Unions, key: object, others: Sequence[object]) -> None:
    for other in others:
        found.join(key, other)


def taken_apart(graph: Graph, done: Sequence[Happening]) -> set[str]:
    """Return the names of the calls with several results of which each use takes one."""
    apart = {node.name for node, happening in zip(graph.nodes, done, strict=True) if happening.results}
    if apart:
        apart.difference_update(graph.output_refs())
        for node in graph.nodes:
            if item_of(node) is None:
                apart.difference_update(node.refs())
    return apart


def item_of(node: Node) -> tuple[str, int] | None:
    """Return which result of which node a node takes; None where it does something else.

    >>> item_of(Node("y", Op("operator.getitem"), (Ref("x"), 1)))
    ('x', 1)
    """
    if type(node.do) is not Op or node.do.name != "operator.getitem" or len(node.args) != 2:
        return None
    whole, index = node.args
    return (whole.name, index) if type(whole) is Ref and type(index) is int and index >= 0 else None
