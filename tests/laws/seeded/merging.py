"""Mistakes of transformations that merge: bodies, values, literals.

What a merge compares is what it gets wrong; each of these leaves one thing out.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

import purefx as px
from purefx.ir.analysis.digest import graph_digest
from purefx.ir.arguments import bodies_in
from purefx.laws import toy

from .mistake import Nodes, mistake, using, with_nodes


def merged(program: px.Program, key: Callable[[str], str]) -> px.Program:
    """Return the program with called bodies of one key made one; bodies of operators stay."""
    called = [node.do.graph for _, node in program.nodes() if type(node.do) is px.Call]
    first: dict[str, str] = {}
    ids = {name: first.setdefault(key(name), name) for name in program.order if name in called}
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        nodes = [
            evolve(node, do=px.Call(node.do.instance, ids[node.do.graph])) if type(node.do) is px.Call else node
            for node in program.graphs[name].nodes
        ]
        graphs[name] = evolve(program.graphs[name], nodes=tuple(nodes))
    whole = program.evolve(graphs=px.ir.pmap(graphs))
    return whole.evolve(graphs=px.ir.pmap({name: graphs[name] for name in whole.order}))


@mistake("tree", "meaning")
def merges_whatever_the_callees(program: px.Program) -> px.Program:
    heights: dict[str, int] = {}
    for name in program.bottom_up:
        heights[name] = 1 + max((heights[inner] for inner in program.graphs[name].callees), default=0)
    unknown = dict.fromkeys(program.order, "")
    return merged(program, lambda name: f"{heights[name]} {graph_digest(program.graphs[name], unknown)}")


@mistake("tree", "meaning")
def merges_whatever_the_state(program: px.Program) -> px.Program:
    def key(name: str) -> str:
        graph = program.graphs[name]
        nodes = [evolve(node, do=px.Get("")) if type(node.do) is px.Get else node for node in graph.nodes]
        return graph_digest(evolve(graph, nodes=tuple(nodes)), {})

    return merged(program, key)


@mistake("tree", "meaning")
def merges_whatever_the_literals(program: px.Program) -> px.Program:
    # A cache whose key has the operators and how they are connected, and not their attributes.
    def key(name: str) -> str:
        graph = program.graphs[name]
        nodes = [evolve(node, args=tuple(arg for arg in node.args if type(arg) is px.Ref)) for node in graph.nodes]
        return graph_digest(evolve(graph, nodes=tuple(nodes)), {})

    return merged(program, key)


@mistake("tree", "expands")
def merges_literals_that_are_equal(program: px.Program) -> px.Program:
    # 1 == True, and they hash alike: a dictionary holds whichever came first.
    def key(name: str) -> str:
        graph = program.graphs[name]
        nodes = [evolve(node, args=tuple(1 if arg is True else arg for arg in node.args)) for node in graph.nodes]
        return graph_digest(evolve(graph, nodes=tuple(nodes)), {})

    return merged(program, key)


@mistake("outlined", "meaning")
def merges_whatever_they_give_back(program: px.Program) -> px.Program:
    # Equal nodes, but callers of the one need another of their values than callers of the other.
    def key(name: str) -> str:
        graph = program.graphs[name]
        return f"{len(graph.output_refs())} {graph_digest(evolve(graph, output=()), {})}"

    return merged(program, key)


@mistake("in place", "meaning")
def computes_equal_things_once(program: px.Program) -> px.Program:
    # Equal operands do not give equal results when something writes to them in between.
    first: dict[object, str] = {}
    other: dict[str, str] = {}
    nodes: Nodes = []
    for node in program.main.nodes:
        node = evolve(node, args=using(node.args, other))
        if node.do == toy.NEG and node.args in first:
            other[node.name] = first[node.args]
            continue
        first.setdefault(node.args if node.do == toy.NEG else node.name, node.name)
        nodes.append(node)
    if not other:
        return program
    return program.with_main(px.Graph(program.main.inputs, tuple(nodes), using(program.main.output, other)))


@mistake("tree", "meaning")
def reads_slots_of_one_last_name_once(program: px.Program) -> px.Program:
    # Keyed by what modules call it, and not by where the module is.
    result = px.inline(program)
    first: dict[str, str] = {}
    slots = {name: first.setdefault(name.rpartition(".")[2], name) for name in result.state}
    nodes = [evolve(node, do=px.Get(slots[node.do.slot])) if type(node.do) is px.Get else node for node in result.main.nodes]
    return with_nodes(result, nodes)


@mistake("outlined", "said values", tier="aten")
def keeps_what_the_first_call_said(program: px.Program) -> px.Program:
    # Bodies are equal where they do the same; that calls of other sizes share one is forgotten.
    result = px.deduplicate(program)
    graphs = {name: with_meta_of(result.graphs[name], first) for name, first in firsts(program, result).items()}
    return program if result is program else result.evolve(graphs=px.ir.pmap(graphs))


def with_meta_of(graph: px.Graph, first: px.Graph) -> px.Graph:
    """Return a graph with the meta of an equal one."""
    inputs = [evolve(mine, meta=theirs.meta) for mine, theirs in zip(graph.inputs, first.inputs, strict=True)]
    nodes = [evolve(mine, meta=theirs.meta) for mine, theirs in zip(graph.nodes, first.nodes, strict=True)]
    return px.Graph(tuple(inputs), tuple(nodes), graph.output)


@mistake("tree", "reads named")
def keeps_what_the_first_module_calls_its_reads(program: px.Program) -> px.Program:
    # Bodies are equal whatever reads are called, and the one that stays is taken as it is.
    result = px.deduplicate(program)
    graphs = {name: with_names_of(result.graphs[name], first) for name, first in firsts(program, result).items()}
    return program if result is program else result.evolve(graphs=px.ir.pmap(graphs))


@mistake("outlined", "named for all")
def numbers_values_as_in_the_first_module(program: px.Program) -> px.Program:
    # Whose numbers a body has does not matter, as long as its reads are called right.
    result = px.deduplicate(program)
    if result is program:
        return program
    graphs: dict[str, px.Graph] = {}
    for name, first in firsts(program, result).items():
        graph = result.graphs[name]
        own = {node.name for node in graph.nodes if type(node.do) is px.Get}
        pairs = zip(graph.nodes, first.nodes, strict=True)
        kept = [evolve(theirs, name=mine.name) if mine.name in own else theirs for mine, theirs in pairs]
        is_free = len({node.name for node in kept}) == len(kept)
        graphs[name] = with_names_of(graph, evolve(first, nodes=tuple(kept))) if is_free else graph
    return result.evolve(graphs=px.ir.pmap(graphs))


def firsts(program: px.Program, result: px.Program) -> dict[str, px.Graph]:
    """Return for each body of a deduplicated program the first one that became it."""
    found: dict[str, px.Graph] = {}
    todo = [(program.root, result.root)]
    while todo:
        before, after = todo.pop()
        if after in found:
            continue
        found[after] = program.graphs[before]
        pairs = zip(found[after].nodes, result.graphs[after].nodes, strict=True)
        todo += reversed([pair for old, new in pairs for pair in zip(bodies_of(old), bodies_of(new), strict=True)])
    return found


def bodies_of(node: px.Node) -> list[str]:
    """Return the bodies that a node calls or gives to its operator."""
    return [node.do.graph] if type(node.do) is px.Call else list(bodies_in(node.args, node.kwargs))


def with_names_of(graph: px.Graph, first: px.Graph) -> px.Graph:
    """Return a graph with the names of an equal one."""
    names = {mine.name: theirs.name for mine, theirs in zip(graph.nodes, first.nodes, strict=True)}
    nodes = [evolve(node, name=names[node.name], args=using(node.args, names)) for node in graph.nodes]
    return px.Graph(graph.inputs, tuple(nodes), using(graph.output, names))
