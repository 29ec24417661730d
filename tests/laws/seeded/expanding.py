"""Mistakes of transformations that put bodies in the places of calls, or give each call one.

A body is written in names that mean something only where it stands: its own values, its state, its instance.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

import purefx as px
from purefx.laws import toy

from .mistake import Nodes, mistake, using


@mistake("tree", "meaning")
def reads_the_state_of_the_first_instance(program: px.Program) -> px.Program:
    # A body is inlined once and remembered, with the absolute names that its reads had then.
    first: dict[str, str] = {}

    def absolute(slot: str) -> str:
        path, _, marked = slot.rpartition("|")[0].rpartition(".")
        return f"{first.setdefault(marked, path)}.{slot.rpartition('|')[2]}".removeprefix(".")

    graphs = {name: program.graphs[name] for name in program.order}
    marked = {name: with_reads(graph, lambda slot, name=name: f"g{name}|{slot}") for name, graph in graphs.items()}
    result = px.inline(program.evolve(graphs=px.ir.pmap(marked)))
    main = with_reads(result.main, absolute)
    return program if main == program.main else result.with_main(main)


def with_reads(graph: px.Graph, slot: Callable[[str], str]) -> px.Graph:
    """Return a graph that reads other slots."""
    nodes = [evolve(node, do=px.Get(slot(node.do.slot))) if type(node.do) is px.Get else node for node in graph.nodes]
    return evolve(graph, nodes=tuple(nodes))


@mistake("tree", "meaning")
def renames_one_name_after_the_other(program: px.Program) -> px.Program:
    # A body's names are replaced in turn and not at once, so that a name which was just put in is replaced again.
    nodes: Nodes = []
    instead: dict[str, str] = {}
    for node in program.main.nodes:
        node = evolve(node, args=using(node.args, instead))
        if type(node.do) is not px.Call or any(type(inner.do) is not px.Op for inner in program.graphs[node.do.graph].nodes):
            nodes.append(node)
            continue
        body = program.graphs[node.do.graph]
        known = {body.inputs[0].name: node.args[0].name}
        for inner in body.nodes:
            known[inner.name] = f"{node.name}_{inner.name}"
        for inner in body.nodes:
            stack = (*node.stack, node.do.instance)
            nodes.append(evolve(inner, name=known[inner.name], args=in_turn(inner.args, known), stack=stack))
        instead[node.name] = in_turn((body.output,), known)[0].name
    output = using(program.main.output, instead)
    whole = program.with_main(px.Graph(program.main.inputs, tuple(nodes), output))
    return program if not instead else whole.evolve(graphs=px.ir.pmap({name: whole.graphs[name] for name in whole.order}))


def in_turn(args: tuple[px.ir.Arg, ...], known: dict[str, str]) -> tuple[px.ir.Arg, ...]:
    """Return arguments with one name replaced after the other."""
    for old, new in known.items():
        args = using(args, {old: new})
    return args


@mistake("tree", "valid")
def keeps_the_names_of_bodies(program: px.Program) -> px.Program:
    # A value of the body and one of its caller may bear one name.
    result = px.inline(program)
    nodes = [evolve(node, name=node.name.partition("_")[0]) for node in result.main.nodes]
    return result if nodes == list(result.main.nodes) else result.with_main(evolve(result.main, nodes=tuple(nodes)))


@mistake("tree", "effects")
def runs_a_shared_body_once(program: px.Program) -> px.Program:
    # Equal bodies with equal arguments give equal results, as long as nothing is drawn, seen or written.
    graphs = {name: with_calls_once(program.graphs[name]) for name in program.order}
    whole = program.evolve(graphs=px.ir.pmap(graphs))
    return program if all(graphs[name] is program.graphs[name] for name in graphs) else whole


def with_calls_once(graph: px.Graph) -> px.Graph:
    """Return a graph in which the second call of a body with the same arguments is the first."""
    first: dict[object, str] = {}
    instead: dict[str, str] = {}
    nodes: Nodes = []
    for node in graph.nodes:
        node = evolve(node, args=using(node.args, instead))
        key = (node.do.graph, node.args) if type(node.do) is px.Call else node.name
        if key in first:
            instead[node.name] = first[key]
        else:
            first[key] = node.name
            nodes.append(node)
    return px.Graph(graph.inputs, tuple(nodes), using(graph.output, instead)) if instead else graph


@mistake("flat", "effects")
def computes_again_for_each_user(program: px.Program) -> px.Program:
    # Cheap operators are computed where they are needed instead of being kept; drawing is cheap.
    nodes: Nodes = []
    drawn: dict[str, px.Node] = {}
    for node in program.main.nodes:
        again = {name: f"{name}_for_{node.name}" for name in node.refs() if name in drawn and drawn[name] not in nodes[-1:]}
        nodes += [evolve(drawn[old], name=new) for old, new in again.items()]
        nodes.append(evolve(node, args=using(node.args, again)))
        if node.do == toy.RAND:
            drawn[node.name] = nodes[-1]
    return with_new_nodes(program, nodes)


def with_new_nodes(program: px.Program, nodes: Nodes) -> px.Program:
    """Return the program with nodes added; itself if none were."""
    return program if len(nodes) == len(program.main.nodes) else program.with_main(evolve(program.main, nodes=tuple(nodes)))
