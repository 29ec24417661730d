"""The law "incremental is from nothing", on edits and corruptions of generated programs of all stages, and what it finds.

Three ways to forget a condition are mistakes that it has to find.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from purefx.ir.analysis import digest as digests
from purefx.ir.facts import Edit, Fact
from purefx.ir.verify import edited, verifier
from purefx.laws.checking import drawn
from purefx.laws.corruptions import CORRUPTORS
from purefx.laws.edits import EDITS, Edited, edits_of, incremental_faults
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from tests.verify.test_corruptions import imported

ALL = (*EDITS * 4, *edits_of([(corruptor.name, corruptor.apply) for corruptor in CORRUPTORS]))


@pytest.mark.parametrize("stage", STAGES)
def test_incremental_is_from_nothing(stage: Stage) -> None:
    for program, seed in drawn(stage, share(20)):
        assert incremental_faults(program, seed, ALL) == []


def test_incremental_is_from_nothing_for_real_programs() -> None:
    for seed, program in enumerate(imported()):
        assert incremental_faults(program, seed, ALL, length=4) == []


def found(edits: Sequence[Edited] = EDITS, count: int = 60) -> bool:
    """Return whether the law finds something wrong."""
    stages: tuple[Stage, ...] = ("outlined", "deduplicated", "tree")
    cases = [case for cases in zip(*[drawn(stage, count) for stage in stages], strict=True) for case in cases]
    return any(incremental_faults(program, seed, edits) for program, seed in cases)


@contextmanager
def put(owner: Any, name: str, value: Any) -> Generator[None]:
    """Put something in the place of a part of the library."""
    was = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, was)


@pytest.mark.parametrize("forgotten", ["_faces", "_reads_less", "_calls_the_same", "_stands_in_less", "stays"])
def test_a_condition_that_is_forgotten_is_found(forgotten: str) -> None:
    with put(edited, forgotten, lambda *_: True):
        assert found(ALL if forgotten == "stays" else EDITS), f"nothing is wrong without {forgotten}"


def test_an_edit_of_what_is_looked_at_by_itself_is_found() -> None:
    with put(edited, "WITHIN", ()):
        assert found(ALL)


def test_a_digest_that_does_not_reach_the_callers_is_found() -> None:
    def only_there(known: Any, edit: Edit) -> Any:
        changed = {name: (digests.own_identity(edit.after.graphs[name])[0], None) for name in edit.changed}
        return digests.Digests(known.ranks, known.users, known.known.update(changed))

    with put(digests, "DIGESTS", Fact("wrong", digests.DIGESTS.derive, only_there)):
        assert found()


def test_the_law_is_asked_of_edits_that_are_followed() -> None:
    followed = 0
    follow = verifier.still_sound

    def counted(known: Any, edit: Any) -> Any:
        nonlocal followed
        result = follow(known, edit)
        followed += result is not None
        return result

    with put(verifier, "still_sound", counted):
        for stage in ("deduplicated", "tree"):
            for program, seed in drawn(stage, 20):
                incremental_faults(program, seed, EDITS)
    assert followed >= 30
