"""Fuel: every transformation can be stopped after any rewrite; bisect names the first one that makes a program bad."""

from __future__ import annotations

import itertools

import attrs
import pytest
import torch

import purefx as px
from tests.models import NEG, Shared, exported, flat

TANH = px.Op("aten.tanh.default", target=torch.ops.aten.tanh.default)


@px.transformation(establishes={"soft"}, laws=["every neg is a tanh"])
def soften(program: px.Program, *, fuel: px.Fuel) -> px.Program:
    """A user's own transformation that knows fuel."""
    nodes = [
        attrs.evolve(node, do=TANH) if node.do == NEG and fuel.burn("soften", node.name) else node
        for node in program.main.nodes
    ]
    if nodes == list(program.main.nodes):
        return program
    return program.with_main(attrs.evolve(program.main, nodes=tuple(nodes)))


def chain(length: int) -> px.Program:
    """Return a program of negations in a row: y1, y2, ..."""
    names = ["x", *(f"y{number}" for number in range(1, length + 1))]
    nodes = [px.Node(name, NEG, (px.Ref(before),)) for before, name in itertools.pairwise(names)]
    return flat(nodes, px.Ref(names[-1]), "x")


def softened(program: px.Program) -> list[str]:
    """Return the nodes that were softened."""
    return [node.name for node in program.main.nodes if node.do == TANH]


def test_a_users_transformation_stops_in_its_order() -> None:
    """The first rewrites are done, the trail says how many, and a fact is claimed by the whole only."""
    program = chain(5)
    part = soften(program, fuel=2)
    assert softened(part) == ["y1", "y2"]
    assert [str(step) for step in part.trail] == ["soften(fuel=2)"]
    assert "soft" not in part.facts
    assert soften(program, fuel=5) == soften(program)
    assert "soft" in soften(program, fuel=5).facts
    assert soften(program, fuel=0) is program
    assert soften.bind(fuel=1)(program) == soften(program, fuel=1)
    assert softened(soften.bind(fuel=1)(program, fuel=3)) == ["y1", "y2", "y3"]


@pytest.mark.parametrize("first", range(1, 14))
def test_the_first_bad_rewrite_is_found_wherever_it_is(first: int) -> None:
    """For every place, with no more runs than halving needs, and with the programs around it."""
    asked: list[int] = []

    def is_bad(result: px.Program) -> bool:
        asked.append(len(softened(result)))
        return f"y{first}" in softened(result)

    found = px.bisect(chain(13), soften, is_bad)
    assert found is not None
    assert str(found) == f"rewrite {first} (soften): soften y{first}"
    assert (len(softened(found.before)), len(softened(found.after))) == (first - 1, first)
    assert len(asked) <= 2 + 4
    assert asked[:2] == [0, 13]


def test_a_real_model_is_searched_through_the_whole_pipeline() -> None:
    """Rewrites of all steps are counted through; the result names step and rewrite, and it can be run at any number."""
    model, x = Shared().eval(), torch.randn(3, 4)
    program = px.import_ep(exported(model, x))
    expected = px.lower(program)(x)

    def is_wrong(result: px.Program) -> bool:
        given = px.lower(result)(x)
        return not all(
            torch.equal(mine, theirs) for mine, theirs in zip(given, expected, strict=True)
        )

    assert px.bisect(program, px.DEFAULT, is_wrong) is None
    merged = px.bisect(
        program, px.DEFAULT, lambda result: any(step.name == "deduplicate" for step in result.trail)
    )
    assert merged is not None and merged.transformation == "deduplicate"
    assert merged.label.startswith("merge equal bodies, ")
    outlined = px.bisect(program, px.DEFAULT, lambda result: len(result.graphs) > 1)
    assert outlined is not None and str(outlined).startswith(
        f"rewrite {outlined.number} (outline): cut out "
    )
    assert not px.verify(outlined.before) and not px.verify(outlined.after)


def test_a_step_without_fuel_is_one_rewrite_of_a_pipeline() -> None:
    """A user's function among others is found as a whole."""

    def hardens(program: px.Program) -> px.Program:
        nodes = tuple(attrs.evolve(node, do=NEG) for node in program.main.nodes)
        return (
            program
            if nodes == program.main.nodes
            else program.with_main(attrs.evolve(program.main, nodes=nodes))
        )

    found = px.bisect(
        chain(4), (soften, hardens), lambda result: len(result.trail) == 1 and not softened(result)
    )
    assert found is not None
    assert str(found) == "rewrite 5 (hardens): all that it does"
    transformation = px.transformation()(hardens)
    found = px.bisect(
        chain(4),
        (soften, transformation),
        lambda result: len(result.trail) == 2 and not softened(result),
    )
    assert found is not None
    assert str(found) == "rewrite 5 (hardens): all that it does"
