"""The fast screen doubts wherever a slow rule would find something: with and without it, the same violations."""

from __future__ import annotations

import pytest

from purefx.ir.verify.survey import Survey
from purefx.ir.verify.verifier import judge
from tests.verify.changes import Corruptor
from tests.verify.corruptors import CORRUPTORS
from tests.verify.programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_programs_are_not_doubted(name: str) -> None:
    survey = Survey(PROGRAMS[name]())
    assert survey.suspects == []
    assert judge(Survey(PROGRAMS[name](), thorough=True)) == ()


@pytest.mark.parametrize("corruptor", CORRUPTORS, ids=str)
def test_the_screen_hides_nothing(corruptor: Corruptor) -> None:
    program = corruptor.apply(PROGRAMS[corruptor.start]())
    assert judge(Survey(program)) == judge(Survey(program, thorough=True))
