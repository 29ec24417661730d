"""The laws of our transformations on few programs of integers: what kills a mutant that no small test does."""

from __future__ import annotations

import pytest

import purefx as px
from purefx.laws.asking import assert_law
from purefx.laws.law import GENERIC
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import drawn_cases
from tests.laws.deep import Question, questions

PROGRAMS = 60

for drawn_before in STAGES:
    drawn_cases("toy", drawn_before, PROGRAMS, 1)


@pytest.mark.parametrize("question", tuple(questions(["toy"])), ids=str)
def test_law(question: Question) -> None:
    for case in drawn_cases("toy", question.stage, PROGRAMS, 1):
        assert_law(question.transform, question.law, case)


@pytest.mark.parametrize("law", GENERIC[:3], ids=lambda law: law.name)
def test_default_pipeline(law: object) -> None:
    stage: Stage = "tokens"
    for case in drawn_cases("toy", stage, PROGRAMS, 1):
        assert_law(px.transform, law, case)
