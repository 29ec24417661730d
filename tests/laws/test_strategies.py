"""The strategies make valid programs, reach what is hard, and shrink to what is small.

One idea: what is hard is named, and counted in 500 programs.  What laws find on them is in ``test_seeded.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import purefx as px
from purefx.laws import toy
from purefx.laws.asking import LawBroken
from purefx.laws.checking import check_transformation, drawn
from purefx.laws.law import GENERIC
from purefx.laws.strategies import STAGES, Stage
from tests.laws.seeded.writing import forgets_a_mutation


@pytest.mark.parametrize("stage", STAGES)
def test_generated_programs_are_valid(stage: Stage) -> None:
    for program, _ in drawn(stage, 500):
        assert px.verify(program) == ()


def test_a_broken_law_shows_the_smallest_program() -> None:
    with pytest.raises(LawBroken) as caught:
        check_transformation(forgets_a_mutation.transform, laws=[law for law in GENERIC if law.name == "meaning"], examples=500)
    text = str(caught.value)
    assert "the meaning is kept" in text
    program = px.parse(text[text.index("program {") :])
    assert len(program.state) <= 1
    assert len(program.main.nodes) <= 1
    assert px.verify(program) == ()


def ops(program: px.Program) -> set[str]:
    """Return the operators of a program."""
    return {node.do.name for _, node in program.nodes() if isinstance(node.do, px.Op)}


def calls(program: px.Program) -> set[px.Frame]:
    """Return the module calls on the stacks of the root."""
    return {frame for node in program.main.nodes for frame in node.stack}


REACHED: dict[str, tuple[Stage, Callable[[px.Program], bool]]] = {
    "every operator": ("flat", lambda program: len(ops(program)) > 8),
    "a module called twice": ("flat", lambda program: len({frame.path for frame in calls(program)}) < len(calls(program))),
    "three levels": ("flat", lambda program: any(len(node.stack) == 3 for node in program.main.nodes)),
    "a skipped module": ("flat", lambda program: any(str(node.stack[0]) == "a.c" for node in program.main.nodes if node.stack)),
    "a cut call": ("outlined", lambda program: any(isinstance(n.do, px.Call) and n.do.instance.part for _, n in program.nodes())),
    "tied state": ("flat", lambda program: any(len(names) > 1 for names in program.state.by_cell.values())),
    "shared memory": ("flat", lambda program: len({s.storage for _, s in program.state.pairs}) < len(program.state.by_cell)),
    "unused state": (
        "flat",
        lambda program: len(program.state) > sum(type(s) is px.StateInput for s in program.signature.inputs),
    ),
    "two mutations": ("flat", lambda program: sum(type(spec) is px.StateMutation for spec in program.signature.outputs) > 1),
    "an input mutation": ("flat", lambda program: any(type(spec) is px.InputMutation for spec in program.signature.outputs)),
    "a saved value": ("in place", lambda program: any(node.name.startswith("clone") for node in program.main.nodes)),
    "a constant output": ("flat", lambda program: any(type(arg) is not px.Ref for arg in program.main.output)),
    "a body shared": ("deduplicated", lambda program: 0 < len(program.order) - 1 < call_nodes(program)),
    "a region": ("flat", lambda program: {toy.ENTER.name, toy.LEAVE.name} <= ops(program)),
    "tokens": ("tokens", lambda program: toy.THREAD.name in ops(program)),
}


def call_nodes(program: px.Program) -> int:
    """Return how many nodes call a body."""
    return sum(isinstance(node.do, px.Call) for _, node in program.nodes())


@pytest.mark.parametrize("what", REACHED)
def test_what_is_hard_is_reached(what: str) -> None:
    stage, reached = REACHED[what]
    found = sum(reached(program) for program, _ in drawn(stage, 500))
    assert found >= 5, f"{what}: {found} in 500 programs"
