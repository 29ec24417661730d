"""All laws on programs whose dynamic size may be 0 or 1: ``exported_programs`` draws few of these.

The calls have the sizes 0 or 1 to 3 and that of the export.  torch records the values of such a program as if the size were at
least 2, so laws about recorded values run on the larger sizes only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from attrs import evolve

import purefx as px
from purefx.ir.importing import import_ep
from purefx.ir.inference import ASSUMED
from purefx.laws.law import Case
from purefx.laws.strategies.exported import build
from purefx.laws.strategies.recipes import Recipe, recipes
from purefx.laws.tiers import at_stage, examples_of, share
from purefx.transforms.simplify import noops
from tests.laws.deep import Question, questions
from tests.laws.test_laws import is_broken

DRAWN = 36
"""The number of drawn recipes; half of them accept small sizes."""

AT_ONCE = share(1)
"""How many programs test one law at one stage."""

OF_VALUES = ("valid", "meaning", "written results", "order", "gradients", "any fuel", "views go")
"""Laws that wrong facts about small sizes break: ``make test`` asks all of these, and every third of the others."""

# Sizes do not matter to what a transformation keeps between its runs, and the law of threads takes eight of them.
QUESTIONS = tuple([one for one in questions(["aten"]) if one.law.name != "threads"])


def small(recipe: Recipe) -> bool:
    return recipe.smallest < ASSUMED


@cache
def drawn() -> tuple[tuple[px.Program, Any], ...]:
    """Return the programs before any pass, each with its calls."""
    found = [evolve(one, is_dynamic=True) for one in examples_of(recipes(), DRAWN, 5)]
    made = [(*build(recipe), recipe.sizes) for recipe in filter(small, found)]
    return tuple([(import_ep(ep), users.calls(sizes)) for ep, users, sizes in made])


@cache
def cases(stage: Any) -> tuple[Case, ...]:
    found: list[Case] = []
    for number, (program, calls) in enumerate(drawn()):
        try:
            found.append(Case(at_stage(program, "aten", stage), number + 1, calls))
        except px.errors.UnsupportedProgram:
            continue
    return tuple(found)


def is_squeezing(program: px.Program) -> bool:
    names = [node.do.name for _, node in program.nodes() if isinstance(node.do, px.Op)]
    return any(name.startswith("aten.squeeze.") for name in names)


def test_most_programs_squeeze_a_size_that_may_be_one() -> None:
    programs = [program for program, _ in drawn()]
    lows = [program.constraints.ranges[0].low for program in programs]
    assert min(lows.count(0), lows.count(1)) > 5
    assert sum(map(is_squeezing, programs)) > len(programs) / 2


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=str(question),
            marks=[] if question.law.name in OF_VALUES or number % 3 == 0 else [pytest.mark.deep],
        )
        for number, question in enumerate(QUESTIONS)
    ],
)
def test_law(number: int) -> None:
    question = QUESTIONS[number]
    among = cases(question.stage)
    for step in range(min(AT_ONCE, len(among))):
        case = among[(number + step) % len(among)]
        assert not is_broken(question.transform, question.law, case), case.program.text()


def test_a_meaning_that_changes_at_size_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noops, "borders_of", lambda program: ())
    found = [broken for question in QUESTIONS if (broken := _broken(question))]
    assert found


def _broken(question: Question) -> bool:
    is_about = question.transform is px.remove_noops and question.law.name == "meaning"
    return is_about and any(
        is_broken(question.transform, question.law, case) for case in cases(question.stage)
    )
