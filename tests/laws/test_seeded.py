"""Seeded mistakes are found by the law that each breaks, on generated programs.

A mistake must be a transformation that works: one that only raises would be found by any test.  Mistakes of single passes are
left to the mutants (``make mutants``), other meanings to ``tests/verify/test_corruptions.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from attrs import evolve

import purefx as px
from purefx.ir.arguments import Arg, map_refs
from purefx.laws import toy
from purefx.laws.asking import LawBroken, assert_law
from purefx.laws.law import GENERIC
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases
from purefx.laws.variants import reordered

EXAMPLES = 500
"""Programs that a mistake is looked for in."""

Mistake = tuple[Callable[[px.Program], px.Program], Stage, str]

MISTAKES: list[Mistake] = []


def mistake(
    stage: Stage, law: str
) -> Callable[[Callable[[px.Program], px.Program]], Callable[[px.Program], px.Program]]:
    """Register a function as a mistake, with the stage of the programs and the law that finds it."""

    def kept(function: Callable[[px.Program], px.Program]) -> Callable[[px.Program], px.Program]:
        MISTAKES.append((function, stage, law))
        return function

    return kept


def with_nodes(program: px.Program, nodes: list[px.Node]) -> px.Program:
    """Return the program with other nodes in its root; the same object where they are equal."""
    same = nodes == list(program.main.nodes)
    return program if same else program.with_main(evolve(program.main, nodes=tuple(nodes)))


def renamed(arg: Arg, instead: dict[str, str]) -> Arg:
    """Return an argument with other names."""
    return map_refs(
        arg,
        lambda ref: (
            px.Ref(instead[ref.name]) if type(ref) is px.Ref and ref.name in instead else ref
        ),
    )


def used(program: px.Program) -> set[str]:
    """Return the values that nodes of the root or its output use."""
    return {name for node in program.main.nodes for name in node.refs()} | set(
        program.main.output_refs()
    )


def without_unused(program: px.Program, op: px.Op) -> px.Program:
    """Return the program without the nodes of an operator that nothing uses."""
    known = used(program)
    return with_nodes(
        program, [node for node in program.main.nodes if node.name in known or node.do != op]
    )


def exchanged(program: px.Program, op: px.Op) -> px.Program:
    """Return the program with two nodes of an operator exchanged that no value holds in order."""
    nodes = list(program.main.nodes)
    places = [index for index, node in enumerate(nodes) if node.do == op]
    for one, other in itertools.pairwise(places):
        swapped = [*nodes]
        swapped[one], swapped[other] = nodes[other], nodes[one]
        result = with_nodes(program, swapped)
        if not px.verify(result):
            return result
    return program


mistake("flat", "effects")(lambda program: exchanged(program, toy.PRINT))
mistake("flat", "effects")(lambda program: exchanged(program, toy.COND))
mistake("flat", "effects")(lambda program: without_unused(program, toy.EMIT))
mistake("sunk", "effects")(lambda program: exchanged(program, toy.RAND))
mistake("sunk", "effects")(lambda program: without_unused(program, toy.RAND))
mistake("flat", "no-op")(lambda program: program.evolve())
mistake("flat", "idempotent")(
    lambda program: program.evolve(facts=program.facts | {f"pass {len(program.facts)}"})
)


@mistake("sunk", "valid")
def lifts_without_counting_anew(program: px.Program) -> px.Program:
    result = px.lift_state(program)
    return (
        result
        if result is program
        else result.evolve(signature=evolve(result.signature, inputs=program.signature.inputs))
    )


@mistake("flat", "equivariant")
def sorts_by_name(program: px.Program) -> px.Program:
    return min(
        (reordered(program, seed=seed) for seed in range(4)),
        key=lambda other: [node.name for node in other.main.nodes],
    )


@mistake("outlined", "frame")
def makes_everything_anew(program: px.Program) -> px.Program:
    return program.evolve(
        graphs=px.ir.pmap({name: evolve(program.graphs[name]) for name in program.order})
    )


NUMBERS = itertools.count()


@mistake("flat", "deterministic")
def counts_on(program: px.Program) -> px.Program:
    if not program.main.nodes or program.main.nodes[0].name.startswith("made"):
        return program
    node = program.main.nodes[0]
    made = evolve(node, name=f"made{next(NUMBERS)}")
    new = {node.name: made.name}
    rest = [evolve(other, args=renamed(other.args, new)) for other in program.main.nodes[1:]]
    return program.with_main(
        px.Graph(program.main.inputs, (made, *rest), renamed(program.main.output, new))
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    "number", range(len(MISTAKES)), ids=lambda number: MISTAKES[number][0].__name__
)
def test_mistake_is_found(number: int) -> None:
    transform, stage, name = MISTAKES[number]
    law = next(law for law in GENERIC if law.name == name)
    for case in drawn_cases("toy", stage, EXAMPLES):
        transform(case.program)  # it must not raise by itself
        try:
            assert_law(transform, law, case)
        except LawBroken:
            return
    pytest.fail("not found")
