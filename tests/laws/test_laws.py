"""Every transformation keeps its laws, on generated programs of all three tiers.

One test, a product of the tiers with the registry's transformations, stages and laws.  They take turns in
asking of as many programs as a tier can afford.  A failure shows the smallest program as text, ready to be pasted into a
regression test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import mean

import pytest

import purefx as px
import purefx.transforms
from purefx.ir.analysis.digest import digest
from purefx.laws.asking import is_changed, watched
from purefx.laws.checking import FEW, ask
from purefx.laws.law import GENERIC, Case, Law, Transform
from purefx.laws.strategies import Stage
from purefx.laws.tiers import TIERS, Tier, drawn_cases, share
from tests.laws.aimed import aimed_case
from tests.laws.deep import Question, ask_laws, questions
from tests.laws.reached import LEAST, OF_STAGES, OPERATORS, REACHED
from tests.laws.registry import OF_ALL, REGISTRY, Entry

DRAWN: dict[Tier, int] = {"toy": 12, "aten": 7, "modules": 4}
"""How many programs are drawn at once; the first is empty."""

AT_ONCE: dict[Tier, int] = {"toy": share(2), "aten": share(1), "modules": share(1)}
"""How many of them test one law at one stage, and the empty one beside.  Laws take turns, so each program tests several."""

FOR_THREADS = share(1)
"""The same for the law of threads, which runs a transformation eighteen times and not once or twice: it breaks where one keeps
something between its runs, whatever the program is."""

DRAWS: dict[Tier, Sequence[int]] = {
    "toy": range(40), "aten": range(48), "modules": (7, 8, 10, 11, 12, 14, 16, 17, 18, 19, 20, 21, 23),
}  # fmt: skip
"""The numbers of the draws; laws take turns.  Few draws of modules have whatever is hard, and these do."""

PROMISED: dict[Tier, int] = {"toy": 400, "aten": 280, "modules": 40}
"""Different programs that the whole file asks of, at least."""

QUESTIONS = tuple(questions())


def has_threads_elsewhere(one: Question) -> bool:
    """Return whether the law of threads is asked at this stage on programs of aten too, which have all stages but one."""
    return one.law.name == "threads" and one.tier != "aten" and one.stage != "tree"


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=f"{one.tier}, {one}",
            marks=[pytest.mark.deep] if has_threads_elsewhere(one) else [],
        )
        for number, one in enumerate(QUESTIONS)
    ],
)
def test_law(number: int) -> None:
    one = QUESTIONS[number]
    draw = DRAWS[one.tier][number % len(DRAWS[one.tier])]
    for case in asked(number):
        if is_broken(one.transform, one.law, case):
            show(one, case, draw)


def asked(number: int) -> list[Case]:
    """Return the cases of a question; the questions of one draw begin at different programs."""
    one, draws = QUESTIONS[number], DRAWS[QUESTIONS[number].tier]
    cases = drawn_cases(one.tier, one.stage, DRAWN[one.tier], draws[number % len(draws)])
    count = FOR_THREADS if one.law.name == "threads" else AT_ONCE[one.tier]
    first = number // len(draws) % max(len(cases), 1)
    turned = [*cases[first:], *cases[:first]]
    # No question is asked of the empty program alone.
    empty = [case for case in turned[:1] if not case.program.main.nodes]
    return empty + [case for case in turned if case.program.main.nodes][:count]


def is_broken(transform: Transform, law: Law, case: Case) -> bool:
    """Return whether a law does not hold on a case.  A case that the transformation refuses breaks none."""
    try:
        return bool(law.check(watched(transform), case))
    except Exception:
        return is_changed(transform, case) is not None


def show(one: Question, case: Case, draw: int) -> None:
    """Fail with the smallest program that breaks a law."""
    examples = DRAWN[one.tier]
    ask_laws(
        one.transform, laws=[one.law], stage=one.stage, tier=one.tier, examples=examples, seed=draw
    )
    pytest.fail(f"{one} is broken on {case.program.text()}, but not when it is asked again")


@pytest.mark.parametrize("tier", TIERS)
def test_default_pipeline(tier: Tier) -> None:
    # Calls of one module are one call to `deduplicate` if their bodies are equal, nodes in order; so a reordering of the flat
    # program may change which numbers are left.  Each step by itself keeps the law.
    laws = [law for law in GENERIC if law.name != "order"]
    ask_laws(
        px.transform, laws=laws, stage="tokens", tier=tier, examples=share(DRAWN[tier] // 2), seed=0
    )


@pytest.mark.parametrize("tier", TIERS)
def test_as_many_programs_as_promised(tier: Tier) -> None:
    assert len({digest(program) for program, _ in programs(tier, "flat")}) >= PROMISED[tier]
    numbers = [number for number, one in enumerate(QUESTIONS) if one.tier == tier]
    assert len(numbers) >= len(DRAWS[tier]) * DRAWN[tier], "some programs are never asked of"


@cache
def programs(tier: Tier, stage: Stage) -> list[tuple[px.Program, set[str]]]:
    """Return the programs of a stage on which laws are tested, each with its operators."""
    drawn = [
        case.program for draw in DRAWS[tier] for case in drawn_cases(tier, stage, DRAWN[tier], draw)
    ]
    return [
        (each, {node.do.name for _, node in each.nodes() if isinstance(node.do, px.Op)})
        for each in drawn
    ]


def as_drawn(tier: Tier) -> list[tuple[px.Program, set[str]]]:
    """Return the programs before any pass."""
    return programs(tier, "flat" if tier == "toy" else "tokens")


@pytest.mark.parametrize(
    ("what", "tier"),
    [(what, tier) for what, (tiers, _) in REACHED.items() for tier in tiers.split()],
)
def test_what_is_hard_is_reached(what: str, tier: Tier) -> None:
    found = sum(REACHED[what][1](program) for program, _ in as_drawn(tier))
    assert found >= LEAST[tier], f"{what}: {found} in {len(as_drawn(tier))} programs"


@pytest.mark.parametrize("tier", OPERATORS)
def test_operators_are_reached(tier: Tier) -> None:
    counts = {
        name: sum(any(name in op for op in ops) for _, ops in as_drawn(tier))
        for name in OPERATORS[tier]
    }
    assert min(counts.values()) >= LEAST[tier], counts


@pytest.mark.parametrize("stage", OF_STAGES)
def test_stages_have_what_they_are_named_after(stage: Stage) -> None:
    assert sum(OF_STAGES[stage](program) for program, _ in programs("toy", stage)) >= LEAST["toy"]


SELDOM = {
    "restore_names", "remove_noops", "to_device", "to_dtype",
    "regions_to_bodies",
}  # fmt: skip
"""What these rewrite (views to the same sizes, other dtypes and devices) programs of integers have
not: their own laws make it first, and the other tiers draw it.  ``regions_to_bodies`` undoes what is done
before it."""


@pytest.mark.parametrize("name", [entry.transformation.name for entry in REGISTRY])
def test_laws_are_asked_on_programs_that_are_changed(name: str) -> None:
    """A law that is asked only where there is nothing to do would hold of anything."""
    entry = next(entry for entry in REGISTRY if entry.transformation.name == name)
    shares: dict[Stage, float] = {}
    for stage in entry.stages:
        shares[stage] = mean(share_of(entry, stage, draw) for draw in range(5))
        if shares[stage] >= FEW:
            break
    assert (max(shares.values()) >= FEW) is (name not in SELDOM), shares


def share_of(entry: Entry, stage: Stage, draw: int) -> float:
    """Return the share of programs that a transformation changes, among those that laws are asked of."""
    cases = [aimed_case(case, entry.aim) for case in drawn_cases("toy", stage, DRAWN["toy"], draw)]
    found = ask(entry.transformation, (), cases)
    return found.changed / max(found.right, 1)


def test_every_transformation_is_registered() -> None:
    values = [getattr(purefx.transforms, name) for name in purefx.transforms.__all__]
    known = {value.name for value in values if isinstance(value, px.Transformation)}
    assert {entry.transformation.name for entry in REGISTRY} == known
    places = [(entry.transformation.name, stage) for entry in REGISTRY for stage in entry.stages]
    assert len(set(places)) == len(places)


def test_generic_laws_are_kept_or_exempt_for_a_reason() -> None:
    names = {law.name for law in OF_ALL}
    for entry in REGISTRY:
        assert set(entry.exempt) <= names
        assert names <= {law.name for law in entry.laws} | set(entry.exempt)
        assert all(len(reason.split()) > 3 for reason in entry.exempt.values())
        assert entry.specific, (
            "a transformation that promises nothing of its own is not worth having"
        )


def test_laws_have_names_and_sentences() -> None:
    laws = {
        (law.name, law.statement): law for entry in REGISTRY for law in entry.laws
    }.values()  # generic ones with several aims
    assert len({law.name for law in laws}) == len(laws)
    assert all(law.statement[0].islower() and not law.statement.endswith(".") for law in laws)
