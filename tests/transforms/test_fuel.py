"""Fuel: every transformation can be stopped after any rewrite; bisect names the first one that makes a program bad."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import pytest
import torch

import purefx as px
from purefx.laws.checking import check_transformation
from tests.programs import NEG, Shared, Tower, exported, flat

TANH = px.Op("aten.tanh.default", target=torch.ops.aten.tanh.default)


@px.transformation(establishes={"soft"}, laws=["every neg is a tanh"])
def soften(program: px.Program, *, fuel: px.Fuel) -> px.Program:
    """A user's own transformation that knows fuel."""
    nodes = [
        attrs.evolve(node, do=TANH) if node.do == NEG and fuel.burn("soften", node.name) else node for node in program.main.nodes
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


def test_rules_and_sets_of_them_are_transformations() -> None:
    relu = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x.clamp_min(0))
    sine = px.rule(lambda x: torch.sin(x)).becomes(lambda m, x: x.cos())

    def wave(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.sin(torch.relu(x)))

    program = px.import_ep(torch.export.export(Applied(wave), (torch.ones(2),)))

    def is_bad(result: px.Program) -> bool:
        return any(node.do.name == "aten.cos.default" for _, node in result.nodes() if type(node.do) is px.Op)

    for given in (relu + sine, (relu, sine), [px.inplace_mutations, relu, sine], (relu + sine,)):
        found = px.bisect(program, given, is_bad)
        assert found is not None and found.label == "apply <lambda> at sin"
    assert px.bisect(program, relu, is_bad) is px.bisect(program, (relu,), is_bad) is None
    result = px.transform(program, *px.DEFAULT, relu, sine)
    assert [step.name for step in result.trail[-2:]] == ["<lambda>", "<lambda>"]
    assert check_transformation(relu, programs=[(Applied(wave), (torch.ones(2),))], examples=0).given_changed == 1


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def test_a_real_model_is_searched_through_the_whole_pipeline() -> None:
    """Rewrites of all steps are counted through; the result names step and rewrite, and it can be run at any number."""
    model, x = Shared().eval(), torch.randn(3, 4)
    program = px.import_ep(exported(model, x))
    expected = px.lower(program)(x)

    def is_wrong(result: px.Program) -> bool:
        given = px.lower(result)(x)
        return not all(torch.equal(mine, theirs) for mine, theirs in zip(given, expected, strict=True))

    assert px.bisect(program, px.DEFAULT, is_wrong) is None
    merged = px.bisect(program, px.DEFAULT, lambda result: any(step.name == "deduplicate" for step in result.trail))
    assert merged is not None and merged.transformation == "deduplicate"
    assert merged.label == "merge 3 bodies into 'a.linear'"
    outlined = px.bisect(program, px.DEFAULT, lambda result: len(result.graphs) > 1)
    assert outlined is not None and str(outlined).startswith(f"rewrite {outlined.number} (outline): cut out ")
    assert not px.verify(outlined.before) and not px.verify(outlined.after)


def test_a_seeded_mistake_is_named() -> None:
    """An outline that loses the values of one body: bisect says which call it was."""

    @px.transformation(forgets={"flat"})
    def careless(program: px.Program, *, fuel: px.Fuel) -> px.Program:
        spent = px.Fuel(fuel.limit)
        result = px.outline.spend(program, spent)
        for label in spent.labels:
            assert fuel.burn(label)
        if spent.refused:
            fuel.burn("more")
        body = result.graphs.get("layers.1.up")
        if body is None:
            return result
        nodes = tuple(attrs.evolve(node, args=(*node.args[:2],)) if isinstance(node.do, px.Op) else node for node in body.nodes)
        return result.evolve(graphs=result.graphs.set("layers.1.up", attrs.evolve(body, nodes=nodes)))

    model, x = Tower(3).eval(), torch.randn(2, 4)
    program = px.sink_state(px.import_ep(exported(model, x)))
    found = px.bisect(program, careless, lambda result: not torch.equal(px.lower(result)(x), model(x)))
    assert found is not None
    assert found.label == "cut out layers.1.up (3 nodes)"


def test_wrong_use_teaches() -> None:
    """Everything that cannot be searched is said, as an error that is also the builtin."""
    program = chain(2)

    @px.transformation()
    def plain(program: px.Program) -> px.Program:
        return program

    @px.transformation()
    def greedy(program: px.Program, *, fuel: px.Fuel) -> px.Program:
        return soften(program)

    with pytest.raises(TypeError, match=r"plain takes no fuel.*\n.*fuel: Fuel.*\n.*fuel.burn"):
        px.bisect(program, plain, lambda result: True)
    with pytest.raises(px.errors.FuelError, match="<lambda> takes no fuel"):
        px.bisect(program, lambda program: program, lambda result: True)
    with pytest.raises(px.errors.FuelError, match="plain takes no fuel"):
        plain(program, fuel=1)
    with pytest.raises(px.errors.FuelError, match="plain takes no fuel"):
        plain.bind(fuel=1)
    with pytest.raises(px.errors.FuelError, match="soften has fuel bound to it"):
        px.bisect(program, soften.bind(fuel=1), lambda result: False)
    with pytest.raises(ValueError, match=r"^the program is bad already, before any rewrite"):
        px.bisect(program, soften, lambda result: True)
    with pytest.raises(px.errors.FuelError, match="greedy changes the program without fuel"):
        px.bisect(program, greedy, lambda result: bool(softened(result)))
    for limit in (-1, True, 1.5, "1"):
        with pytest.raises(px.errors.FuelError, match="an int of at least 0"):
            soften(program, fuel=limit)  # type: ignore[arg-type]


def test_a_step_without_fuel_is_one_rewrite_of_a_pipeline() -> None:
    """A user's function among others is found as a whole."""

    def hardens(program: px.Program) -> px.Program:
        nodes = tuple(attrs.evolve(node, do=NEG) for node in program.main.nodes)
        return program if nodes == program.main.nodes else program.with_main(attrs.evolve(program.main, nodes=nodes))

    found = px.bisect(chain(4), (soften, hardens), lambda result: len(result.trail) == 1 and not softened(result))
    assert found is not None
    assert str(found) == "rewrite 5 (hardens): all that it does"
    transformation = px.transformation()(hardens)
    found = px.bisect(chain(4), (soften, transformation), lambda result: len(result.trail) == 2 and not softened(result))
    assert found is not None
    assert str(found) == "rewrite 5 (hardens): all that it does"
