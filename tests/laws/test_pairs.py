"""Every law of pairs holds on generated programs, and says something there: a product of the table and its stages."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import purefx as px
import purefx.transforms
from purefx.laws.law import Case
from purefx.laws.strategies import Stage, programs
from purefx.laws.tiers import share
from tests.laws.modes import markers_come_back
from tests.laws.pairs import INVERSES, PAIRS, PairLaw
from tests.laws.registry import REGISTRY
from tests.models import drawn

EXAMPLES = share(30)

CASES = [(law, stage) for law in PAIRS for stage in law.stages]


@pytest.mark.parametrize(
    ("law", "stage"), CASES, ids=[f"{law.name}-{stage}" for law, stage in CASES]
)
def test_law(law: PairLaw, stage: Stage) -> None:
    """It holds, and there are programs that meet its condition, and on which the transformations have something to do."""
    first = {entry.transformation.name: entry.transformation for entry in REGISTRY}.get(
        law.transformations[0]
    )
    spoken = 0
    for program, seed in drawn(stage, examples_of(law)):
        if not law.condition(program):
            continue
        if law.check(Case(program, seed)):
            show_the_smallest(law, stage, Case(program, seed))
        spoken += first is None or changes(first, program)
    assert spoken >= 5


def examples_of(law: PairLaw) -> int:
    """Return how many programs a law is asked of: more, where few meet its condition."""
    return share(250) if "functionalize" in law.transformations else EXAMPLES


def show_the_smallest(law: PairLaw, stage: Stage, case: Case) -> None:
    """Fail with the smallest program that hypothesis finds; drawing programs anew for every law would take long."""

    @settings(
        max_examples=10 * EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(stage), st.integers(0, 1 << 16))
    def holds(program: px.Program, seed: int) -> None:
        wrong = law.check(Case(program, seed))
        assert not wrong, "\n".join([*wrong, "on the program", program.text()])

    holds()
    wrong = "\n".join(law.check(case))
    pytest.fail(f"{law.name!r} does not hold at stage {stage!r}\n{wrong}\n{case.program.text()}")


def changes(step: px.Transformation, program: px.Program) -> bool:
    """Say whether a transformation does something to a program, and does not refuse it."""
    try:
        return step(program) is not program
    except px.errors.UnsupportedProgram:
        return False


IN_THE_REGISTRY = {
    ("regions_to_bodies", "bodies_to_regions"),
    ("bodies_to_regions", "regions_to_bodies"),
}
"""Programs of integers have no modes, so a law of a pair would say nothing: ``markers_come_back`` is asked where they have."""

SPLITS_FIRST = {("join", "split_by_tags")}
"""Its law splits a program, joins it and splits it again."""


def test_inverses_have_their_law() -> None:
    known = {law.transformations for law in INVERSES} | IN_THE_REGISTRY | SPLITS_FIRST
    assert any(law.name == "split_by_tags after join" for law in INVERSES)
    assert any(
        markers_come_back in entry.specific
        for entry in REGISTRY
        if entry.transformation.name == "regions_to_bodies"
    )
    values = [getattr(purefx.transforms, name) for name in purefx.transforms.__all__]
    named = {
        (value.name, value.inverse)
        for value in values
        if isinstance(value, px.Transformation) and value.inverse
    }
    assert named <= known
    assert {pair for pair in known if hasattr(purefx.transforms, pair[0])} <= named


def test_laws_have_names_and_sentences() -> None:
    assert len({law.name for law in PAIRS}) == len(PAIRS)
    assert all(
        law.statement[0].islower() and not law.statement.endswith(".") and law.stages
        for law in PAIRS
    )
