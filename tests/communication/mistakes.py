"""Mistakes that one makes who moves or joins collectives; each works, and some law finds it."""

from __future__ import annotations

from collections.abc import Callable

import purefx as px

__all__ = ["MISTAKES", "Mistake", "by_data_alone"]

Mistake = Callable[[px.Program], px.Program]


def by_data_alone(program: px.Program) -> px.Program:
    """Starts come first, as far as operands allow."""
    nodes, done, order = list(program.main.nodes), {one.name for one in program.main.inputs}, list[px.Node]()
    while nodes:
        ready = [node for node in nodes if done.issuperset(node.refs())]
        first = next((node for node in ready if "all_gather" in str(node.do)), ready[-1])
        nodes.remove(first)
        order.append(first)
        done.add(first.name)
    return program.with_main(program.main.with_nodes(order))


def waits_go_last(program: px.Program) -> px.Program:
    """Waits whose result nobody uses come at the end: somebody reads the buffer."""
    graph = program.main
    late = [node for node in graph.nodes if "wait" in str(node.do) and node.name not in {*graph.users, *graph.output_refs()}]
    return program.with_main(graph.with_nodes([node for node in graph.nodes if node not in late] + late))


def waits_once(program: px.Program) -> px.Program:
    """Only the first wait of each pair stays; what others wait for is taken as it is."""
    graph = program.main
    waits = [node for node in graph.nodes if "wait" in str(node.do)]
    gone = waits[1::2]
    edit = px.ir.Rewriter(graph)
    for node in gone:
        edit.drop(node.name, node.args[0])
    return program.with_main(edit.graph())


def joins_across(program: px.Program) -> px.Program:
    """The first two reductions of a group become one, whatever the group says in between."""
    graph = program.main
    reductions = [node for node in graph.nodes if "all_reduce.default" in str(node.do) and node.args[1] == "sum"]
    pairs = [(a, b) for a in reductions for b in reductions if a is not b and a.args[2] == b.args[2]]
    for first, second in pairs:
        position = {node.name: number for number, node in enumerate(graph.nodes)}
        given = {node.name for node in graph.nodes[: position[first.name]]} | {one.name for one in graph.inputs}
        if position[first.name] < position[second.name] and given.issuperset(second.refs()):
            nodes = [node for node in graph.nodes if node is not second]
            nodes.insert(nodes.index(first) + 1, second)
            return program.with_main(graph.with_nodes(nodes))
    return program


MISTAKES: tuple[Mistake, ...] = (by_data_alone, waits_go_last, waits_once, joins_across)
