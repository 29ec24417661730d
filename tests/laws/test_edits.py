"""Edits of edited programs, some of them invalid: all answers are those about the same program made from nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

import purefx as px
from purefx.ir.verify import types, verifier
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from tests.laws.corruptions import CORRUPTORS
from tests.laws.edits import EDITS, Edited, can_be_edited, differences
from tests.programs import drawn
from tests.verify.test_corruptions import imported


def corrupted(program: px.Program, rand: random.Random) -> px.Program | None:
    """Make some field of a valid program wrong."""
    return None if px.verify(program) else rand.choice(CORRUPTORS).apply(program, rand.randrange(1000))


ALL: Sequence[Edited] = (*EDITS, *[corrupted] * 4)


def faults(program: px.Program, seed: int, length: int = 6) -> list[str]:
    """Return where the law does not hold of a chain of edits of a program, asked of each or not."""
    rand = random.Random(seed)
    versions = [program]
    found = differences(program) if rand.random() < 0.7 else []
    for _ in range(length):
        edit = rand.choice(ALL)
        after = edit(versions[-1] if rand.random() < 0.7 else rand.choice(versions), rand)
        if after is None:
            continue
        if rand.random() < 0.7:
            found += [f"after {getattr(edit, '__name__', edit)}: {line}" for line in differences(after)]
        if can_be_edited(after):
            versions.append(after)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_edited_programs_are_as_made_from_nothing(stage: Stage) -> None:
    for program, seed in drawn(stage, share(20)):
        assert faults(program, seed) == []


def test_edited_real_programs_are_as_made_from_nothing() -> None:
    for seed, program in enumerate(imported()):
        assert faults(program, seed, length=4) == []


def found() -> bool:
    """Return whether the law finds something wrong, or an answer fails."""
    try:
        return any(faults(program, seed) for program, seed in (*drawn("deduplicated", 40), *drawn("tree", 40)))
    except (KeyError, IndexError, ValueError):
        return True


def test_an_order_that_is_carried_over_an_edit_is_found() -> None:
    def evolved(program: px.Program, **changes: Any) -> px.Program:
        made = evolve(program, **changes)
        object.__setattr__(made, "bottom_up", program.bottom_up)
        return made

    with patch.object(px.Program, "evolve", evolved):
        assert found()


def test_what_was_right_of_other_modules_is_found() -> None:
    def is_known(program: px.Program) -> bool:
        return types.frame_of in program.state.derived

    with patch.object(verifier, "is_known_frame", is_known), patch.object(types, "is_known_frame", is_known):
        assert found()
