"""Names of state in the bodies of module calls: counted from the module, as the reads are.

One idea: the flat program calls the parameter of one module ``p_layers_0_lin_weight``; a body may become that of many modules,
so what it reads, takes or is given of the state is named after the slot as the module knows it: ``weight``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.arguments import Arg, Body, Ref, instead_by, map_refs
from ...ir.graph import Graph, Input
from ...ir.names import Names, word_of
from ...ir.node import Get, Node
from ...ir.paths import FROM_ROOT, relative

__all__ = ["with_names_of_state"]


def with_names_of_state(graph: Graph, slots: Mapping[str, str], path: str) -> Graph:
    """Return a body in which values that are state are named after it; the same object where there are none.

    Args:
        graph: the body of a module.
        slots: for each value that is state the slot, from the root; other values may be in it.
        path: of the module.

    >>> from purefx.ir import Op
    >>> nodes = (Node("p_a_w", Get("w")), Node("y", Op("toy.neg"), (Ref("p_a_w"),)))
    >>> with_names_of_state(Graph((), nodes, Ref("y")), {"p_a_w": "a.w"}, "a").nodes[1].args
    (Ref(name='w'),)
    """
    nodes = [node for node in graph.nodes if node.name in slots]
    inputs = [formal.name for formal in graph.inputs if formal.name in slots]
    if not nodes and not inputs:
        return graph
    words = {name: word_of(_below(slots[name], path)) for name in inputs}
    for node in nodes:
        words[node.name] = word_of(node.do.slot if type(node.do) is Get else _below(slots[node.name], path))
    known = {name: Ref(word) for name, word in _apart(words, graph).items()}
    use = instead_by(known)
    formals = graph.inputs
    if inputs:
        formals = tuple([Input(known[one.name].name, one.meta) if one.name in known else one for one in formals])
    return Graph(formals, tuple([_renamed(node, known, use) for node in graph.nodes]), map_refs(graph.output, use))


def _apart(words: dict[str, str], graph: Graph) -> dict[str, str]:
    # The same where no two values of the body would have one name; that is quick to see, and nearly always so.
    others = {value.name for values in (graph.inputs, graph.nodes) for value in values if value.name not in words}
    if len({*words.values(), *others}) == len(words) + len(others):
        return words
    names = Names(others)
    return {name: names.fresh(word) for name, word in words.items()}


def _below(slot: str, path: str) -> str:
    # What was handed in from elsewhere is somewhere else for the next module that has this body.
    inner = relative(slot, path)
    return slot.rpartition(".")[2] if inner.startswith(FROM_ROOT) else inner


def _renamed(node: Node, known: Mapping[str, Ref], use: Callable[[Ref | Body], Arg]) -> Node:
    new = known.get(node.name)
    args = map_refs(node.args, use) if node.args else ()
    kwargs = map_refs(node.kwargs, use) if node.kwargs else ()
    if new is None and args is node.args and kwargs is node.kwargs:
        return node
    return Node(node.name if new is None else new.name, node.do, args, kwargs, node.stack, node.meta)
