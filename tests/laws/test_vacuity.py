"""``make vacuity`` counts a case where the premise of a law holds and the transformation does something."""

from __future__ import annotations

import pytest
from attrs import evolve

import purefx as px
from purefx.ir.effects.resolved import program_effects
from purefx.ir.errors import UnsupportedProgram
from purefx.laws.law import Case, Transform
from purefx.laws.strategies import Stage
from purefx.laws.tiers import Tier, drawn_cases, stages_of
from purefx.laws.variants import differentiable
from tests.laws.aimed import law
from tests.laws.aims import (
    crossing,
    split_across_sizes,
    with_markers,
    with_wrappers,
    without_writes,
)
from tests.laws.registry import REGISTRY
from tests.laws.telling import Listening
from tests.laws.untidy import copied, repeated_for_nobody, viewed
from tests.laws.vacuity import ENOUGH, Share, scarce, shares


def test_a_law_is_asked_where_its_premise_holds() -> None:
    asked: list[px.Program] = []

    @law("small programs are looked at", where=lambda transform, case: len(transform(case.program).main.nodes) < 3)
    def small(transform: Transform, case: Case) -> list[str]:
        asked.append(transform(case.program))
        return ["looked at"]

    cases = drawn_cases("toy", "flat", 12)
    found = [small.check(px.eliminate_dead_code, case) for case in cases]
    assert len(asked) == found.count(["looked at"]) == sum(small.premise(px.eliminate_dead_code, case) for case in cases)
    assert 0 < len(asked) < len(cases)


def test_a_law_with_an_aim_is_asked_of_what_is_made_of_two_programs_of_three() -> None:
    made: list[px.Program] = []

    def without(program: px.Program) -> px.Program:
        made.append(without_writes(program))
        return made[-1]

    @law("there is no call", aim=without)
    def no_call(transform: Transform, case: Case) -> list[str]:
        return [node.name for node in case.program.main.nodes if type(node.do) is px.Call]

    cases = drawn_cases("toy", "tree", 12)
    for seed in range(3):
        case = evolve(cases[0], seed=seed)
        wrong = no_call.check(px.inline, case)
        assert len(made) == seed
        assert wrong[-1].startswith("(of this program") == (seed > 0)
        assert seed == 0 or made[-1].text() in wrong[-1]


@pytest.mark.parametrize("tier", ["toy", "aten"])
@pytest.mark.parametrize("stage", ["flat", "sunk", "deduplicated", "split", "outlined"])
def test_aims_keep_programs_valid_and_do_what_they_are_for(tier: Tier, stage: Stage) -> None:
    writes, crossings = 0, 0
    for case in drawn_cases(tier, stage, 12, 1):
        plain = without_writes(case.program)
        assert px.verify(plain) == ()
        writes += any(does.writes or does.completes for of in program_effects(plain).values() for does in of)
        if stage == "split":
            split = split_across_sizes(case.program)
            assert px.verify(split) == ()
            crossings += px.move_non_tensor_nodes(split) is not split
    assert writes <= 4, "some operators write in ways of their own"
    assert crossings > 4 or stage != "split"


def test_a_cut_at_sizes_goes_through_no_preserved_call() -> None:
    for case in drawn_cases("toy", "split", 8, 70):
        assert px.verify(split_across_sizes(case.program)) == ()


@pytest.mark.parametrize("tier", ["toy", "aten"])
def test_programs_that_cross_boundaries_or_have_regions_are_valid(tier: Tier) -> None:
    crossed = wrapped = 0
    for case in drawn_cases(tier, "sunk", 12):
        aimed, marked, inside = (aim(case.program) for aim in (crossing, with_markers, with_wrappers))
        assert px.verify(aimed, infer=tier == "aten") == px.verify(marked) == px.verify(inside) == ()
        crossed += px.insert_ivals(aimed) is not aimed
        wrapped += px.bodies_to_regions(inside) is not inside
    assert crossed > 8
    assert wrapped > (8 if tier == "aten" else 0), "regions of the toy operators overlap and nest as they like"


@pytest.mark.parametrize("stage", ["flat", "sunk", "split", "outlined", "deduplicated", "tree"])
def test_autograd_takes_what_is_made_differentiable(stage: Stage) -> None:
    refused = {"as they are": 0, "after the aim": 0}
    for case in drawn_cases("aten", stage, 12, 4):
        aimed = differentiable(case.program)
        assert px.verify(aimed, infer=True) == ()
        assert case.gradients is not None
        for how, program in (("as they are", case.program), ("after the aim", aimed)):
            try:
                case.gradients(program)
            except RuntimeError:
                refused[how] += 1
    assert refused["after the aim"] <= min(3, refused["as they are"]), refused


@pytest.mark.parametrize("tier", ["toy", "aten"])
def test_programs_to_clean_up_are_valid_and_cleaned_up(tier: Tier) -> None:
    folded = merged = tidied = 0
    for case in drawn_cases(tier, "sunk", 12, 1):
        aimed = copied(case.program), repeated_for_nobody(case.program), viewed(case.program)
        assert all(px.verify(program, infer=tier == "aten") == () for program in aimed)
        folded += px.fold_constants(aimed[0]) is not aimed[0]
        merged += px.eliminate_common_subexpressions(aimed[1]) is not aimed[1]
        tidied += px.remove_noops(aimed[2]) is not aimed[2]
    assert min(folded, merged) > 1
    assert tidied > 6 or tier == "toy", "integers have no views to sizes"


@pytest.mark.parametrize("tier", ["toy", "aten"])
def test_what_programs_become_after_an_aim_can_be_run(tier: Tier) -> None:
    for entry in REGISTRY:
        for stage in entry.stages if entry.aim is not None else ():
            if stage not in stages_of(tier):
                continue
            for case in drawn_cases(tier, stage, 4, 2):
                assert entry.aim is not None
                aimed = entry.aim(case.program)
                assert px.verify(aimed) == ()
                assert len(case.meaning(aimed).outputs) > 0


def test_what_is_counted() -> None:
    found = shares(1, tiers=["toy"], names=["eliminate_dead_code"], laws=["meaning", "no fuel", "all needed"])
    assert found["meaning", "toy"].asked > 20
    assert 0 < found["meaning", "toy"].share <= 1
    assert found["no fuel", "toy"].held == found["meaning", "toy"].held, "it tells of what more fuel would do"
    assert found["all needed", "toy"].share > ENOUGH


def test_what_tells_too_little() -> None:
    found = {("often", "toy"): Share(10, 4), ("seldom", "toy"): Share(10, 1), ("seldom", "aten"): Share(10, 2)}
    assert scarce(found) == {"seldom": 0.2}  # type: ignore[arg-type]


def test_what_a_transformation_refuses_is_not_told_of() -> None:
    def refuses(transform: Transform, case: Case) -> bool:
        raise UnsupportedProgram("not this one")

    (case,) = drawn_cases("toy", "flat", 1)
    refused = law("nothing is wrong", acts=refuses)(lambda transform, case: [])
    assert not Listening(px.eliminate_dead_code).told(refused, case)
