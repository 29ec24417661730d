"""``make vacuity`` counts a case where the premise of a law holds and the transformation does something."""

from __future__ import annotations

import purefx as px
from purefx.laws.law import Case, Transform, law
from purefx.laws.tiers import drawn_cases
from tests.laws.vacuity import ENOUGH, RARE, Share, scarce, shares


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


def test_what_is_counted() -> None:
    found = shares(1, tiers=["toy"], names=["eliminate_dead_code"], laws=["meaning", "no fuel", "all needed"])
    assert found["meaning", "toy"].asked > 20
    assert 0 < found["meaning", "toy"].share <= 1
    assert found["no fuel", "toy"].held == 0, "without fuel it does nothing"
    assert found["all needed", "toy"].share > ENOUGH


def test_what_tells_too_little() -> None:
    found = {("often", "toy"): Share(10, 4), ("seldom", "toy"): Share(10, 1), ("seldom", "aten"): Share(10, 2)}
    assert scarce(found) == {"seldom": 0.2}  # type: ignore[arg-type]
    assert all(len(reason.split()) > 3 for reason in RARE.values())
