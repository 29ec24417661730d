"""Random walks through all transformations keep what must be kept, and find those that do not keep it.

One idea: the machine is judged like a law, by what it finds: mistakes that need two steps to show.
"""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import purefx as px
from purefx.laws.registry import REGISTRY
from purefx.laws.stateful import STEPS, Walk, allowed, rule_machine
from purefx.laws.strategies import Stage

ALL = tuple(entry.transformation for entry in REGISTRY)


def run(machine: object, examples: int) -> None:
    """Run a machine on the same walks every time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck), phases=(Phase.generate,), report_multiple_bugs=False,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("stage", "examples"), [("tokens", 30), ("flat", 30), ("sunk", 15), ("tree", 15)])
def test_all_transformations_in_any_order(stage: Stage, examples: int) -> None:
    run(rule_machine(*ALL, stage=stage), examples)


def forgets_after_inline(program: px.Program) -> px.Program:
    """Give a constant back, in programs that went through inline."""
    if "inline" not in [step.name for step in program.trail] or program.main.output[:1] == (1,):
        return program
    return program.with_main(evolve(program.main, output=(1, *program.main.output[1:])))


def copies_graphs(program: px.Program) -> px.Program:
    """Make every graph anew."""
    return program.evolve(graphs=px.pmap({name: evolve(program.graphs[name]) for name in program.order}))


@pytest.mark.parametrize(
    ("step", "says"),
    [(forgets_after_inline, "outputs: got"), (copies_graphs, "is equal, but another object")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistakes_that_need_several_steps_are_found(step: object, says: str) -> None:
    with pytest.raises(AssertionError, match=says) as caught:
        run(rule_machine(px.inline, step, stage="tree"), 60)
    assert "from the program\nprogram {" in str(caught.value)


def test_a_trail_that_does_not_grow_is_found() -> None:
    lost = px.Transformation("lost", lambda program: program.evolve(trail=()))
    program = px.parse('program {\n graph @""() {\n return ()\n }\n }')
    walk = Walk(program)
    walk.transform(px.Transformation("idle", lambda program: program))
    walk.transform(lost)  # the trail is written by the transformation itself, whatever the function does to it
    assert walk.steps == ["idle", "lost"]
    assert [step.name for step in walk.program.trail] == ["lost"]


def test_requirements_are_kept() -> None:
    program = px.parse('program {\n graph @""() {\n y = get w\n return (y,)\n }\n }')
    names = [getattr(step, "name", "") for step in allowed(program, ALL)]
    assert "functionalize" not in names
    assert "lift_state" in names


@pytest.mark.parametrize("given", [(), (1,)])
def test_wrong_use(given: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="functions from programs to programs"):
        rule_machine(*given)
