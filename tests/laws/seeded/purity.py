"""Mistakes of transformations that keep the meaning: they are not functions, or do more than they must.

The same program must give the same result, whatever its names, and nothing to do is nothing done.
"""

from __future__ import annotations

import itertools

from attrs import evolve

import purefx as px
from purefx.laws.variants import reordered

from .mistake import mistake, using


@mistake("flat", "equivariant")
def sorts_by_name(program: px.Program) -> px.Program:
    orders = [reordered(program, seed=seed) for seed in range(4)]
    return min(orders, key=lambda other: [node.name for node in other.main.nodes])


@mistake("outlined", "frame")
def makes_everything_anew(program: px.Program) -> px.Program:
    return program.evolve(graphs=px.ir.pmap({name: evolve(program.graphs[name]) for name in program.order}))


NUMBERS = itertools.count()


@mistake("flat", "deterministic")
def counts_on(program: px.Program) -> px.Program:
    if not program.main.nodes or program.main.nodes[0].name.startswith("made"):
        return program
    node = program.main.nodes[0]
    made = evolve(node, name=f"made{next(NUMBERS)}")
    rest = [evolve(other, args=using(other.args, {node.name: made.name})) for other in program.main.nodes[1:]]
    return program.with_main(px.Graph(program.main.inputs, (made, *rest), using(program.main.output, {node.name: made.name})))


@mistake("flat", "idempotent")
def adds_one_each_time(program: px.Program) -> px.Program:
    return program.evolve(facts=program.facts | {f"pass {len(program.facts)}"})


@mistake("flat", "no-op")
def always_makes_a_copy(program: px.Program) -> px.Program:
    return program.evolve()
