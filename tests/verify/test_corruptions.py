"""The corruptors of ``tests.laws.corruptions`` are refused by what they name, and valid programs are not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch

import purefx as px
from purefx.ir.verify import DEEP, RULES, verify
from purefx.laws.asking import LawBroken
from purefx.laws.checking import check_transformation
from purefx.laws.law import GENERIC
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from purefx.laws.toy import toy_meaning
from tests.laws.corruptions import CORRUPTORS, MEANING, Corruptor
from tests.models import Aliased, Branches, Counter, Shared, Tower, drawn, exported, parent
from tests.verify.exported import EXPORTS

VALID = share(40)
"""Programs of each stage that must not be refused: more than five hundred in all."""

EACH = share(5)
"""Programs of each stage that each corruptor is tried on; `make deep` takes more of all three."""

DEEP_NAMES = {rule.name for rule in DEEP}

LAWS = [law for law in GENERIC if law.name == MEANING]


class Unlike(parent(count=lambda: torch.zeros(3))):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return y * 2


@cache
def imported() -> tuple[px.Program, ...]:
    """Return real programs, at each stage of the default pipeline."""
    eps = [make() for make in EXPORTS.values()]
    eps += [
        exported(module, torch.ones(3, 4)) for module in (Counter(), Shared(), Tower(), Branches())
    ]
    eps += [
        exported(Aliased(), torch.ones(2, 2)),
        exported(Unlike(), torch.ones(3), torch.ones(2, 4)),
    ]
    found: list[px.Program] = []
    for ep in eps:
        program = px.import_ep(ep)
        found.append(program)
        for step in px.DEFAULT:
            program = step(program)
            found.append(program)
    return tuple(found)


@cache
def generated(each: int = EACH) -> tuple[tuple[px.Program, int], ...]:
    """Return so many valid programs of integers of each stage, with seeds."""
    drawn_of_stages = [drawn(stage, 2 * VALID)[:: 2 * VALID // each] for stage in STAGES]
    return tuple(pair for several in drawn_of_stages for pair in several)


def originals(corruptor: Corruptor) -> tuple[tuple[px.Program, int], ...]:
    """Return valid programs with seeds: generated ones of all stages, and real ones, once where values are inferred."""
    seeds = range(1 if corruptor.rule in DEEP_NAMES else min(share(1), 2))
    return (*generated(), *[(program, seed) for program in imported() for seed in seeds])


def broken(corruptor: Corruptor) -> Iterator[tuple[px.Program, px.Program]]:
    """Yield what a corruptor makes of all originals, with them; where only the meaning changes they are toy programs that run."""
    for program, seed in generated(2 * EACH) if corruptor.rule is None else originals(corruptor):
        found = corruptor.apply(program, seed)
        if found is not None and (
            corruptor.rule is not None or toy_meaning(found) != toy_meaning(program)
        ):
            yield found, program


@pytest.mark.parametrize("stage", STAGES)
def test_hundreds_of_valid_programs_are_not_refused(stage: Stage) -> None:
    for program, _ in drawn(stage, 2 * VALID)[::2]:
        assert verify(program) == ()
        # Their values are integers, and the clones that passes add are of aten.
        assert [
            found for found in verify(program, infer=True) if "aten::clone()" not in found.message
        ] == []


def test_real_programs_are_not_refused() -> None:
    for program in imported():
        assert verify(program, infer=True) == ()


ALONE = {
    "node repeated", "unknown value", "node moved up", "tensor argument", "keyword twice", "absurd value",
    "other effects", "orphan", "argument more", "argument less", "result beyond", "body gives number",
    "scope divided", "unknown slot", "leaf more", "guard of nothing", "fact unnamed", "fact invented",
    "order lost", "value lost", "tie invented", "alias broken", "subgraph missing", "no root",
}  # fmt: skip
"""Corruptors that break one invariant and no other."""


@pytest.mark.parametrize("corruptor", [c for c in CORRUPTORS if c.rule is not None], ids=str)
def test_a_corruption_is_refused_by_its_rule(corruptor: Corruptor) -> None:
    deep = corruptor.rule in DEEP_NAMES
    corrupted = list(broken(corruptor))
    assert len(corrupted) >= 3
    for found, original in corrupted:
        violations = verify(found, infer=deep)
        blamed = {violation.rule for violation in violations}
        assert (
            blamed == {corruptor.rule} if corruptor.name in ALONE else corruptor.rule in blamed
        ), original.text()
        assert all(violation.message and violation.advice for violation in violations)


@pytest.mark.parametrize("corruptor", [c for c in CORRUPTORS if c.rule is None], ids=str)
def test_what_only_the_meaning_tells_is_valid(corruptor: Corruptor) -> None:
    corrupted = list(broken(corruptor))
    assert len(corrupted) >= 3
    for found, _ in corrupted:
        assert list(map(str, verify(found))) == []
    for program in imported():
        result = corruptor.apply(program, 0)
        assert result is None or verify(result) == ()


STAGE_OF: dict[str, Stage] = {"copy dropped": "in place", "other slot read": "sunk"}


@pytest.mark.parametrize("corruptor", [c for c in CORRUPTORS if c.rule is None], ids=str)
def test_what_only_the_meaning_tells_is_found_by_its_law(corruptor: Corruptor) -> None:
    def rewrite(program: px.Program) -> px.Program:
        return corruptor.apply(program, 0) or program

    with pytest.raises(LawBroken, match=f"breaks the law '{MEANING}'"):
        check_transformation(
            rewrite, laws=LAWS, stage=STAGE_OF.get(corruptor.name, "flat"), examples=100
        )


def test_every_rule_has_a_corruptor() -> None:
    assert {corruptor.rule for corruptor in CORRUPTORS} - {None} == {
        rule.name for rule in (*RULES, *DEEP)
    }
    assert any(corruptor.rule is None for corruptor in CORRUPTORS)
    assert len({corruptor.name for corruptor in CORRUPTORS}) == len(CORRUPTORS)
    assert all(len(corruptor.statement.split()) > 3 for corruptor in CORRUPTORS)
    assert {corruptor.name for corruptor in CORRUPTORS} >= ALONE
