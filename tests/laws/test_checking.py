"""What ``check_transformation`` says: about a mistake in a function, and about a mistake in how it was asked.

One idea: each message is read as a user would read it: it names what is wrong and what to write instead.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import settings

import purefx as px
from purefx.laws import profiles, toy
from purefx.laws.checking import LawBroken, WrongQuestion, check_transformation
from purefx.laws.law import GENERIC
from purefx.laws.tiers import TIERS, Tier, drawn_cases

MEANING = [law for law in GENERIC if law.name == "meaning"]


def drops_prints_and_writes(program: px.Program) -> px.Program:
    """Drop the last node if nobody uses it, whatever it does."""
    nodes = program.main.nodes
    if not nodes or nodes[-1].name in program.main.output_refs() or type(nodes[-1].do) is not px.Op:
        return program
    if nodes[-1].do.name not in {toy.ADD_.name, "aten.mul_.Tensor", "aten.add_.Tensor"}:
        return program
    return program.with_main(evolve(program.main, nodes=nodes[:-1]))


def test_the_smallest_program_and_what_was_done_to_it() -> None:
    with pytest.raises(LawBroken) as caught:
        check_transformation(drops_prints_and_writes, laws=MEANING)
    text = str(caught.value)
    assert text.startswith("drops_prints_and_writes breaks the law 'meaning': the meaning is kept\n")
    assert "- add_" in text.partition("what it does to it:")[2].partition("on the program")[0]
    program = px.parse(text.partition("on the program\n")[2])
    assert len(program.main.nodes) == 1
    assert px.verify(program) == ()
    assert caught.value.law is MEANING[0]
    assert caught.value.case is not None
    assert str(caught.value.case.program) == str(program)
    assert caught.value.__notes__ == ["The programs: tier='toy', stage='flat', examples=200, seed=0."]


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_shows_a_small_program_that_parses_back(tier: Tier) -> None:
    def swaps_outputs(program: px.Program) -> px.Program:
        return program.with_main(evolve(program.main, output=tuple(None for _ in program.main.output)))

    with pytest.raises(LawBroken) as caught:
        check_transformation(swaps_outputs, laws=MEANING, tier=tier, examples=4)
    program = px.parse(str(caught.value).partition("on the program\n")[2])
    assert len(program.main.nodes) <= 2
    assert px.verify(program) == ()


def test_no_program() -> None:
    with pytest.raises(LawBroken, match=r"it gave None; give back a program, and the same object when there is nothing to do"):
        check_transformation(lambda program: None)
    with pytest.raises(LawBroken, match=r"it gave a Graph; give back a program"):
        check_transformation(lambda program: program.main)


def writes_into_state(program: px.Program) -> px.Program:
    """Write into every tensor."""
    for _, slot in program.state.pairs:
        with torch.no_grad():
            slot.value.add_(1)
    return program


def assigns_to_nodes(program: px.Program) -> px.Program:
    """Assign to a node."""
    for node in program.main.nodes:
        node.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    return program


def puts_into_graphs(program: px.Program) -> px.Program:
    """Assign to the table of graphs."""
    program.graphs[""] = program.main
    return program


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (writes_into_state, "clone a tensor before you write"),
        (assigns_to_nodes, "make a changed copy, with attrs.evolve"),
        (puts_into_graphs, "make a changed copy, with attrs.evolve"),
    ],
)
def test_a_changed_input(transform: Any, told: str) -> None:
    values = [slot.value.clone() for case in drawn_cases("toy", "flat", 50) for _, slot in case.program.state.pairs]
    with pytest.raises(LawBroken, match=told) as caught:
        check_transformation(transform, examples=50)
    assert caught.value.law is not None
    assert caught.value.law.name == "pure"
    now = [slot.value for case in drawn_cases("toy", "flat", 50) for _, slot in case.program.state.pairs]
    assert all(torch.equal(before, after) for before, after in zip(values, now, strict=True)), "later tests would see it"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"transform": "outline"}, "a function from programs to programs, not the str 'outline'"),
        ({"transform": px.Transformation}, "Transformation is a class"),
        ({"tier": "tot"}, r"'tot' is no tier; there are 'toy', 'aten', 'modules'; did you mean 'toy'\?"),
        ({"stage": "sunken"}, r"'sunken' is no stage of the tier 'toy'; .*did you mean 'sunk'\?"),
        ({"stage": "tree", "tier": "aten"}, "'tree' is no stage of the tier 'aten'"),
        ({"laws": "meaning"}, r"laws is the str 'meaning'; laws are values .*law\.name == 'meaning'"),
        ({"laws": ["meaning"]}, "laws has the str 'meaning' in it; laws are values"),
        ({"laws": GENERIC[0]}, r"laws is one law and should be several; write laws=\[\.\.\.\]"),
        ({"laws": []}, "laws is empty, so nothing would be checked"),
        ({"laws": None}, "laws is the NoneType None; laws are values"),
        ({"examples": 0}, "a whole number above 0, not 0"),
    ],
)
def test_a_wrong_question(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(WrongQuestion, match=told) as caught:
        check_transformation(**{"transform": px.outline, **arguments})
    assert isinstance(caught.value, px.PurefxError | TypeError | ValueError)


def test_a_stage_that_a_transformation_does_not_take() -> None:
    told = r"functionalize requires .*\. Programs of stage='sunk' .* it takes stage='tokens' or 'flat' or 'in place'$"
    with pytest.raises(px.PipelineError, match=told):
        check_transformation(px.functionalize, stage="sunk")


def test_a_transformation_that_refuses() -> None:
    def refuses_long_ones(program: px.Program) -> px.Program:
        if len(program.main.nodes) > longest:
            raise px.UnsupportedProgram("too long")
        return program

    longest = 60
    check_transformation(refuses_long_ones, examples=50)
    longest = 0
    with pytest.raises(WrongQuestion, match=r"refuses_long_ones refuses \d+ of 50 programs as unsupported"):
        check_transformation(refuses_long_ones, examples=50)


def test_an_error_is_told_with_the_program() -> None:
    def fails(program: px.Program) -> px.Program:
        raise RuntimeError("no idea")

    with pytest.raises(LawBroken, match=r"RuntimeError: no idea\non the program\nprogram \{") as caught:
        check_transformation(fails)
    assert isinstance(caught.value.__cause__ or caught.value.__context__, Exception | None)


def test_seeds() -> None:
    seen: list[px.Program] = []

    def looks(program: px.Program) -> px.Program:
        seen.append(program)
        return program

    def drawn(**options: Any) -> set[str]:
        seen.clear()
        check_transformation(looks, laws=MEANING, examples=20, **options)
        return {px.digest(program) for program in seen}

    assert drawn() == drawn() == drawn(seed=0)
    assert drawn(seed=1) != drawn()


def test_profiles() -> None:
    before = settings.get_current_profile_name()
    profiles.register()
    try:
        settings.load_profile("purefx-deep")
        assert profiles.share(50) == 1000
        assert not profiles.active().always_the_same
        settings.load_profile("purefx-dev")
        assert profiles.share(50) == 10
        settings.load_profile("default")
        assert profiles.share(50) == 50
    finally:
        settings.load_profile(before)
