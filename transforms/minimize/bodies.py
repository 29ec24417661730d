"""Less structure: calls become what they call, operators one of their bodies, and what only describes a program goes.

Each function takes the search and proposes candidates.  A body that operators run is reduced where it stands, by letting its
users use an operand of a node in place of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir.arguments import Body, Items, Ref, bodies_in
from ...ir.graph import Call, Frame, Graph, Node, Op
from ...ir.own_operators import is_boundary
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import Token
from ...ir.torch_private import device_of
from ..effect_tokens import remove_effect_tokens
from ..inline import inline, inlined
from ..partition import join
from ..simplify import eliminate_dead_code
from .cutting import claiming_less, with_interface, without_unused
from .dropping import drop
from .search import Search

__all__ = ["bypass_nodes", "describe_less", "open_bodies"]


def describe_less(search: Search) -> None:
    """Take away what describes a program and is seldom part of a fault: pytrees, guards, modules, module calls, tokens.

    Args:
        search: what is reduced.
    """
    for told, change in DESCRIPTIONS.items():
        search.offer(told, change)


def _without_tokens(program: Program) -> Program:
    specs = (*program.signature.inputs, *program.signature.outputs)
    return claiming_less(remove_effect_tokens(program)) if any(type(spec) is Token for spec in specs) else program


def _flat_interface(program: Program) -> Program:
    return with_interface(program, program.main, program.signature.inputs, program.signature.outputs)


def _without_modules(program: Program) -> Program:
    graphs = {
        name: graph.with_nodes([node.evolve(stack=()) for node in graph.nodes if not is_boundary(node)])
        for name, graph in ((name, program.graphs[name]) for name in program.order)
    }
    return claiming_less(program.evolve(graphs=pmap(graphs), modules=(), call_signatures=pmap()))


def _without_unused_modules(program: Program) -> Program:
    return claiming_less(eliminate_dead_code(program, state=True))


DESCRIPTIONS = {
    "order effects without tokens": _without_tokens,
    "take arguments and give results one by one": _flat_interface,
    "forget the modules": _without_modules,
    "drop dead code and state": _without_unused_modules,
    "drop unused inputs and state": without_unused,
}


def open_bodies(search: Search) -> None:
    """Put bodies in the place of what runs them: those of module calls, then one of an operator's.

    Args:
        search: what is reduced.
    """
    if "split" in search.program.facts:
        search.offer("put the parts together", lambda program: claiming_less(join(program)), larger=True)
    if any(type(node.do) is Call for _, node in search.program.nodes()):
        search.offer("put the bodies of all calls in their places", lambda program: claiming_less(inline(program)), larger=True)
    for node in search.program.main.callers:
        for body in dict.fromkeys(bodies_in(node.args, node.kwargs)):
            told = f"put {body} in the place of {node.name}"
            search.offer(told, lambda program, at=node, body=body: _opened_operator(program, at, body), larger=True)


def _opened_operator(program: Program, node: Node, body: str) -> Program | None:
    operands = _operands(node, len(program.graphs[body].inputs)) if program.main.by_name.get(node.name) is node else None
    if operands is None:
        return None
    edit = Rewriter(program.main)
    edit.put(edit.position[node.name], node.evolve(do=Call(Frame("body"), body), args=operands, kwargs=(), stack=()))
    called = program.with_main(edit.graph())
    main = inlined(called, called.main, into=frozenset([body]).__contains__)
    nodes = [each.evolve(stack=tuple([frame for frame in each.stack if frame.path != "body"])) for each in main.nodes]
    return claiming_less(program.with_main(main.with_nodes(nodes)).pruned())


def _operands(node: Node, count: int) -> tuple[Any, ...] | None:
    # What an operator hands to a body: a list of as many operands at the end, or as many arguments at the end.
    args = [arg for arg in node.args if not isinstance(arg, Body)]
    if args and type(args[-1]) in (tuple, Items) and len(args[-1]) == count:
        return tuple(args[-1])
    return tuple(args[len(args) - count :]) if len(args) >= count else None


def bypass_nodes(search: Search) -> None:
    """Let the users of nodes use an operand in the place of the result, or another value of the same type, in all bodies.

    Args:
        search: what is reduced.
    """
    for name in search.program.order:

        def items(program: Program, name: str = name) -> Sequence[str]:
            graph = program.graphs.get(name)
            return [node.name for node in graph.nodes if type(node.do) is Op] if graph is not None else []

        def change(program: Program, gone: Sequence[str], name: str = name) -> Program | None:
            graph = _bypassed(program.graphs[name], frozenset(gone))
            return claiming_less(without_unused(program.with_graphs({name: graph}))) if graph is not None else None

        drop(search, items, change, "bypass")


def _bypassed(graph: Graph, gone: frozenset[str]) -> Graph | None:
    edit, used = Rewriter(graph), {*graph.users, *graph.output_refs()}
    known: dict[str, str] = {formal.name: formal.name for formal in graph.inputs}
    for node in graph.nodes:
        known[node.name] = node.name
        if node.name not in gone:
            continue
        mine = _facts(graph, node.name)
        there = [known[name] for name in (*node.refs(), *reversed(known)) if name != node.name]
        other = next((name for name in there if name not in gone and _facts(graph, name) == mine), None)
        if other is not None:
            known[node.name] = other
            edit.drop(node.name, Ref(other))
        elif node.name in used:
            return None
        else:
            edit.erase(node.name)
    return edit.graph()


def _facts(graph: Graph, name: str) -> object:
    value = graph.metas[name].get("val")
    if isinstance(value, torch.Tensor):
        return (value.dtype, str(tuple(value.shape)), str(device_of(value)))
    return None if value is None else (type(value), str(value))
