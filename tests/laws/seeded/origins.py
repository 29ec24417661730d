"""Mistakes of provenance: a rewrite that is right, and says nothing, or something else, of where its nodes come from.

All of them compute what they should, so no other law can see them.
"""

from __future__ import annotations

from types import MappingProxyType

from attrs import evolve

import purefx as px
from purefx.ir.meta import EMPTY_META, ORIGIN

from .mistake import mistake, with_nodes


def with_origin(node: px.Node, origin: object) -> px.Node:
    """Return a node that says it comes from somewhere else."""
    return evolve(node, meta=MappingProxyType({**node.meta, ORIGIN: origin}))


def changed(program: px.Program, nodes: list[px.Node]) -> px.Program:
    """Return the program with other nodes in its root, meta included."""
    return program.with_main(evolve(program.main, nodes=tuple(nodes)))


@mistake("flat", "provenance")
def makes_nodes_anew_without_meta(program: px.Program) -> px.Program:
    return changed(program, [evolve(node, meta=EMPTY_META) for node in program.main.nodes])


@mistake("flat", "provenance")
def says_that_all_come_from_the_first(program: px.Program) -> px.Program:
    nodes = program.main.nodes
    origin = nodes[0].meta.get(ORIGIN) if nodes else None
    return changed(program, [with_origin(node, origin) for node in nodes]) if origin is not None else program


@mistake("flat", "provenance")
def mixes_up_nodes_of_one_operator(program: px.Program) -> px.Program:
    last: dict[object, object] = {}
    nodes: list[px.Node] = []
    for node in program.main.nodes:
        mine = node.meta.get(ORIGIN)
        nodes.append(with_origin(node, last.get(node.do, mine)) if mine is not None else node)
        last[node.do] = mine
    return changed(program, nodes)


@mistake("flat", "provenance")
def computes_once_and_does_not_say_for_whom(program: px.Program) -> px.Program:
    # Equal values are computed once, without the instrument that notes which one stands for the others.
    nodes = list(program.main.nodes)
    written = {name for node in nodes if isinstance(node.do, px.Op) and node.do.effects.writes for name in node.refs()} | set(
        program.main.output_refs()
    )
    first: dict[object, str] = {}
    gone: dict[str, px.Ref] = {}
    for node in nodes:
        if getattr(node.do, "name", "") in ("toy.neg", "toy.add", "toy.mul") and node.name not in written:
            kept = first.setdefault((node.do, node.using(gone).args, node.stack), node.name)
            gone.update({node.name: px.Ref(kept)} if kept != node.name else {})
    return with_nodes(program, [node.using(gone) for node in nodes if node.name not in gone])
