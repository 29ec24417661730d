"""Pipelines: order is checked before anything runs, results of strangers are verified, nothing to do is nothing done."""

from __future__ import annotations

import functools

import attrs
import pytest
import torch

import purefx as px
from purefx.laws.checking import drawn
from purefx.laws.registry import REGISTRY
from purefx.laws.strategies import Stage
from tests.programs import NEG, Shared, Tower, exported, flat


@pytest.mark.parametrize("decomposed", [False, True])
def test_twice_is_once(decomposed: bool) -> None:
    """The default pipeline on its own result gives the same object."""
    program = px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4), decomposed=decomposed)))
    assert px.transform(program) is program
    for step in px.DEFAULT:
        assert step(program) is program


def test_the_trail_tells_every_step() -> None:
    """Each step that changed something is there, with the program before it."""
    start = px.import_ep(exported(Tower(1), torch.ones(1, 4)))
    result = px.transform(start)
    assert [str(step) for step in result.trail] == ["sink_state()", "outline()", "deduplicate()"]
    assert result.trail[0].before is start
    assert result.trail[1].before.trail == result.trail[:1]


def test_a_strangers_result_is_verified() -> None:
    """A function that breaks the program is caught at its own step, with all that it broke."""
    program = flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x")

    def breaks(program: px.Program) -> px.Program:
        return program.with_main(attrs.evolve(program.main, nodes=()))

    with pytest.raises(px.InvalidProgram) as caught:
        px.transform(program, breaks, px.deduplicate)
    assert [violation.rule for violation in caught.value.violations] == ["defined-values"]
    assert caught.value.__notes__ == ["in step 1 of 2, breaks"]
    nameless = functools.partial(breaks)
    with pytest.raises(px.InvalidProgram) as caught:
        px.transform(program, px.deduplicate, nameless)
    assert caught.value.__notes__ == [f"in step 2 of 2, {nameless!r}"]


def test_the_order_is_checked_behind_a_strangers_step_too() -> None:
    """What a function of the user's does is not known, so it changes nothing of what is known."""
    program = px.import_ep(exported(Tower(1), torch.ones(1, 4)))
    with pytest.raises(px.PipelineError, match="step 3, sink_state, requires a program that is 'flat', but outline before it"):
        px.transform(program, px.outline, lambda program: program, px.sink_state)


WRAPPED = [(entry.transformation, stage) for entry in REGISTRY for stage in entry.stages]


@pytest.mark.parametrize(("inner", "stage"), WRAPPED, ids=[f"{inner.name}, {stage}" for inner, stage in WRAPPED])
def test_a_transformation_that_calls_another_claims_what_that_one_leaves(inner: px.Transformation, stage: Stage) -> None:
    """Facts come from the program that the function returns, and not from the one that it was given."""

    @px.transformation(establishes=["mine"])
    def outer(program: px.Program) -> px.Program:
        return inner(program)

    for program, _ in drawn(stage, 12):
        try:
            expected = inner(program)
        except px.UnsupportedProgram:
            continue
        result = outer(program)
        assert result.facts == expected.facts | ({"mine"} if result is not program else set())
        assert px.verify(result) == ()


def test_inline_inside_a_transformation_needs_no_facts_of_its_own() -> None:
    """Nothing that inline takes away is claimed, however deep it is called."""

    @px.transformation(forgets=["state sunk"])
    def flattens(program: px.Program) -> px.Program:
        return px.inline(program)

    @px.transformation()
    def tidies(program: px.Program) -> px.Program:
        return flattens(program)

    tree = px.transform(px.import_ep(exported(Tower(3), torch.ones(1, 4))))
    result = tidies(tree)
    assert {"outlined", "deduplicated"} <= tree.facts and result.facts == {"flat"}
    assert px.verify(result) == ()
    assert px.transform(tree, tidies, px.sink_state, px.outline).facts >= {"outlined"}


def test_a_corrupt_program_is_refused_everywhere() -> None:
    """transform and lower list every violation before they do anything; the program is as before."""
    nodes = [px.Node("y", NEG, (px.Ref("late"),)), px.Node("late", NEG, (px.Ref("nowhere"),)), px.Node("y", NEG, (px.Ref("x"),))]
    program = flat(nodes, px.Ref("y"), "x")
    before = hash(program)
    for door in (px.transform, px.lower):
        with pytest.raises(ValueError, match="breaks 3 invariants") as caught:
            door(program)  # type: ignore[operator]
        assert isinstance(caught.value, px.InvalidProgram)
        assert {violation.rule for violation in caught.value.violations} == {"earlier-values", "defined-values", "unique-names"}
    assert hash(program) == before


def test_an_exported_program_that_was_broken_is_refused_at_the_door() -> None:
    """A user's pass left a node that uses a later one: import says which, with the user's source line."""
    ep = exported(Tower(1), torch.ones(1, 4))
    nodes = [node for node in ep.graph.nodes if node.op == "call_function"]
    nodes[0].append(nodes[-1])
    with pytest.raises(px.InvalidProgram, match="earlier-values") as caught:
        px.import_ep(ep)
    assert "programs.py" in str(caught.value)


def test_options_are_bound_into_a_new_value() -> None:
    """bind gives another transformation; the first is as before, and an unknown option is a TypeError."""

    @px.transformation()
    def rename(program: px.Program, *, to: str = "z") -> px.Program:
        node = attrs.evolve(program.main.nodes[0], name=to)
        return program.with_main(attrs.evolve(program.main, nodes=(node,), output=(px.Ref(to),)))

    program = flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x")
    bound = rename.bind(to="w")
    assert (bound(program).main.nodes[0].name, rename(program).main.nodes[0].name) == ("w", "z")
    assert str(bound(program).trail[-1]) == "rename(to='w')"
    with pytest.raises(TypeError):
        rename(program, too="v")


def test_only_programs_are_transformed() -> None:
    """An exported program is not one; the message says how to get one."""
    with pytest.raises(TypeError, match="import_ep"):
        px.outline(exported(Tower(1), torch.ones(1, 4)))  # type: ignore[arg-type]
