"""Each seeded mistake is found in 500 programs by the law that it is said to break.

Laws and strategies are judged together by what they find.  A mistake must be a transformation that works: one
that only raises would be found by any test.
"""

from __future__ import annotations

import pytest

import purefx as px
from purefx.laws.asking import LawBroken, assert_law
from purefx.laws.law import GENERIC, Case, Law
from purefx.laws.provenance import provenance
from purefx.laws.tiers import drawn_cases
from purefx.laws.values import said_values
from tests.laws.registry import REGISTRY
from tests.laws.seeded import MISTAKES, Mistake

EXAMPLES = {"toy": 500, "aten": 60, "modules": 12}
"""Programs that a mistake is looked for in."""

LAWS = {law.name: law for law in (*GENERIC, provenance, said_values, *(law for entry in REGISTRY for law in entry.specific))}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(mistake: Mistake) -> None:
    law = LAWS[mistake.law]
    assert any(is_broken(mistake, law, case) for case in drawn_cases(mistake.tier, mistake.stage, EXAMPLES[mistake.tier]))


def is_broken(mistake: Mistake, law: Law, case: Case) -> bool:
    """Say whether a law finds a mistake in a case."""
    try:
        mistake(case.program)  # it must not raise by itself, but may refuse a program as any transformation may
    except px.errors.UnsupportedProgram:
        return False
    try:
        assert_law(mistake.transform, law, case)
    except LawBroken:
        return True
    return False


def test_there_are_enough_of_each_kind() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 30
    assert {mistake.stage for mistake in MISTAKES} >= {"tokens", "flat", "in place", "sunk", "outlined", "tree"}
