"""The laws of moving and joining collectives, on generated programs that talk, in one process.

All generic laws, those of fuel and those of their own; and mistakes, each of which some law finds.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.laws.asking import LawBroken, assert_law
from purefx.laws.draws import examples_of
from purefx.laws.fuel import FUEL
from purefx.laws.law import GENERIC, Case, Law, Transform
from purefx.laws.tiers import share
from tests.communication.mistakes import MISTAKES, Mistake, by_data_alone
from tests.laws.communication import BUCKETED, OVERLAPPED, groups_in_order
from tests.laws.strategies.talking import talking_programs
from tests.laws.talk import talk_case

OVERLAP, BUCKET = px.training.overlap_communication, px.training.bucket_collectives

STEPS = {
    "overlap": (OVERLAP, OVERLAPPED),
    "two in flight": (OVERLAP.bind(in_flight=2), OVERLAPPED[:2]),
    "bucket": (BUCKET, BUCKETED),
    "small buckets": (BUCKET.bind(bytes=40), BUCKETED),
}  # fmt: skip


@cache
def drawn(count: int) -> tuple[Case, ...]:
    """Return cases, the same ones each time."""
    return tuple(talk_case(program, seed + 1) for seed, program in enumerate(examples_of(talking_programs(rank=0), count, 0)))


@pytest.mark.parametrize("name", STEPS)
def test_laws(name: str) -> None:
    transform, own = STEPS[name]
    changed = 0
    for case in drawn(share(30)):
        changed += transform(case.program) is not case.program
        for law in (*GENERIC, *own, *FUEL):
            assert_law(transform, law, case)
    assert changed > share(30) // 4, "laws that are asked where nothing is done say nothing"


def in_turn(one: Transform, other: Transform, program: px.Program) -> px.Program:
    """Do one thing and then another."""
    return other(one(program))


def test_a_bucket_and_then_overlap() -> None:
    """Both laws hold of both, in either order; the second one has nothing to do twice."""
    for case in drawn(share(20)):
        for one, other in ((BUCKET, OVERLAP), (OVERLAP, BUCKET)):
            for law in (GENERIC[0], GENERIC[1], GENERIC[2], groups_in_order):
                assert_law(partial(in_turn, one, other), law, case)


@pytest.mark.parametrize("wrong", MISTAKES)
def test_mistakes_are_found(wrong: Mistake) -> None:
    found = set[str]()
    laws: tuple[Law, ...] = (GENERIC[1], GENERIC[2], groups_in_order)
    for case in drawn(40):
        for law in laws:
            try:
                assert_law(wrong, law, case)
            except LawBroken:
                found.add(law.name)
    assert found, "nobody noticed"


def test_the_relation_is_what_keeps_them_apart() -> None:
    """What is put first by operands alone is not allowed by the relation."""
    broken = 0
    for case in drawn(20):
        moved = by_data_alone(case.program)
        place = {node.name: number for number, node in enumerate(moved.main.nodes)}
        nodes = case.program.main.nodes
        for number, of in enumerate(dependencies(case.program, case.program.main)):
            broken += any(place[nodes[earlier].name] > place[nodes[number].name] for earlier in of)
    assert broken


def test_laws_are_stated() -> None:
    page = (Path(__file__).parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")
    for law in {*OVERLAPPED, *BUCKETED}:
        assert f"| `{law.name}` | {law.statement} |" in page
