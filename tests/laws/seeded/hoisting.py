"""Mistakes of moving what calls compute alike to their callers, and back.

What is the same value in two calls is a question of operands, of writes in between, and of who sees the result.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

import purefx as px
from purefx.ir.arguments import bodies_in
from purefx.ir.effects.declared import PURE

from .mistake import mistake

First = Callable[[px.Graph, px.Node], bool]


def hoisted(program: px.Program, takes: First, *, share: bool = True) -> px.Program:
    """Return the program in which the first node of a body that is taken moves to before the first call of that, in the root."""
    handed = {body for _, node in program.nodes() for body in bodies_in(node.args, node.kwargs)}
    elsewhere = {callee for name in program.order if name != program.root for callee in program.graphs[name].callees}
    for body in program.order[1:]:
        graph = program.graphs[body]
        moved = next((node for node in graph.nodes if takes(graph, node)), None)
        if moved is None or body in handed | elsewhere or not {one.name for one in graph.inputs}.issuperset(moved.refs()):
            continue
        kept = tuple(node for node in graph.nodes if node is not moved)
        graphs = program.graphs.set(body, px.Graph((*graph.inputs, px.Input(moved.name)), kept, graph.output))
        return program.evolve(graphs=graphs.set(program.root, calling(program.main, body, graph, moved, share=share)))
    return program


def calling(root: px.Graph, body: str, graph: px.Graph, moved: px.Node, *, share: bool) -> px.Graph:
    """Return the root with a node of a body before its calls, or before the first of them."""
    names, nodes, made = root.names(), list[px.Node](), ""
    for node in root.nodes:
        called = node
        if type(node.do) is px.Call and node.do.graph == body:
            if not (made and share):
                known = dict(zip([one.name for one in graph.inputs], node.args, strict=True))
                made = names.fresh(moved.name)
                nodes.append(evolve(moved.using(known), name=made, stack=node.stack))
            called = evolve(node, args=(*node.args, px.Ref(made)))
        nodes.append(called)
    return px.Graph(root.inputs, tuple(nodes), root.output)


def is_pure(graph: px.Graph, node: px.Node) -> bool:
    """Say whether a node computes something from inputs, and is used."""
    return type(node.do) is px.Op and node.do.effects == PURE and node.name in graph.users


@mistake("tree", "meaning")
def hoists_whatever_calls_are_given(program: px.Program) -> px.Program:
    # What the first call computed is passed to all of them.
    return hoisted(program, is_pure)


@mistake("tree", "effects")
def hoists_draws(program: px.Program) -> px.Program:
    # A body that is called twice with the same operands draws once.
    return hoisted(program, lambda _, node: type(node.do) is px.Op and node.do.effects.random)


@mistake("tree", "runs less")
def hoists_without_sharing(program: px.Program) -> px.Program:
    return hoisted(program, is_pure, share=False)


@mistake("outlined", "meaning")
def replicates_whatever_was_written(program: px.Program) -> px.Program:
    # What the caller computed before a write to the operand is computed after it.
    for number, call in enumerate(program.main.nodes):
        if type(call.do) is not px.Call or sum(one.do == call.do for one in program.main.nodes) > 1:
            continue
        body = program.graphs[call.do.graph]
        passed = dict(zip([one.name for one in body.inputs], call.args, strict=True))
        for formal, arg in passed.items():
            node = program.main.by_name.get(arg.name) if type(arg) is px.Ref else None
            back = {ref.name: px.Ref(one) for one, ref in passed.items() if type(ref) is px.Ref}
            if node is None or not is_pure(program.main, node) or not back.keys() >= set(node.refs()):
                continue
            made = evolve(node.using(back), name=formal, stack=())
            inside = px.Graph(tuple(one for one in body.inputs if one.name != formal), (made, *body.nodes), body.output)
            fewer = evolve(call, args=tuple(other for one, other in passed.items() if one != formal))
            nodes = (*program.main.nodes[:number], fewer, *program.main.nodes[number + 1 :])
            return program.with_main(evolve(program.main, nodes=nodes)).with_graphs({call.do.graph: inside})
    return program
