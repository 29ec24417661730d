"""The graph of a module with the meta that it had before equal bodies became one, for a reader.

One idea: modules that share a body run the same operators, but on other shapes, called from other lines.  What runs is the
shared body; what is shown has fake values and stack traces of the module that is looked at, node by node.
"""

from __future__ import annotations

from ..ir.graph import Graph, Input
from ..ir.meta import Meta
from ..ir.node import Call, Node, Op

__all__ = ["as_it_was"]


def as_it_was(graph: Graph, was: Graph | None) -> Graph:
    """Return a graph with the meta of an equal one; the graph itself where they are not equal after all.

    Args:
        graph: what runs.
        was: the body of the module before bodies were merged; None where that is not known.

    >>> from purefx.ir import Ref
    >>> neg = Op("toy.neg")
    >>> graph, was = (Graph((), (Node("b", neg, (1,), meta={"val": value}),), Ref("b")) for value in (1, 2))
    >>> dict(as_it_was(graph, was).nodes[0].meta)
    {'val': 2}
    """
    if was is None or was is graph or not _agree(graph, was):
        return graph
    inputs = tuple([Input(mine.name, theirs.meta) for mine, theirs in zip(graph.inputs, was.inputs, strict=True)])
    nodes = tuple([_with_meta(mine, theirs.meta) for mine, theirs in zip(graph.nodes, was.nodes, strict=True)])
    return Graph(inputs, nodes, graph.output)


def _with_meta(node: Node, meta: Meta) -> Node:
    return Node(node.name, node.do, node.args, node.kwargs, node.stack, meta)


def _agree(graph: Graph, was: Graph) -> bool:
    # A transformation that ran after the merge may have changed what runs.
    return (
        len(graph.inputs) == len(was.inputs)
        and len(graph.nodes) == len(was.nodes)
        and all(_alike(mine, theirs) for mine, theirs in zip(graph.nodes, was.nodes, strict=True))
    )


def _alike(mine: Node, theirs: Node) -> bool:
    if type(mine.do) is Call and type(theirs.do) is Call:
        return mine.do.instance.path == theirs.do.instance.path
    if type(mine.do) is Op and type(theirs.do) is Op:
        return mine.do.name == theirs.do.name
    return mine.do == theirs.do
