"""``questions``: all that our own transformations can be asked: tier, transformation, stage, law.

One idea: the registry says which laws a transformation has and at which stages, the tiers say which stages they have; this
is their product, in one place for the tests and for the search that goes on all night.  It asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from ..ir.program import Program
from .asking import name_of
from .law import GRADIENTS, Case, Law, Transform
from .pairs import PAIRS, PairLaw
from .registry import REGISTRY, Entry
from .said import SAID
from .strategies import Stage
from .tiers import TIERS, Tier, stages_of

__all__ = ["Question", "pair_questions", "questions"]


@frozen
class Question:
    """A law of a transformation, at one stage of one tier.

    >>> str(next(questions()))
    'remove_effect_tokens, tokens, valid'
    """

    tier: Tier
    transform: Transform
    stage: Stage
    law: Law

    def __str__(self) -> str:
        return f"{name_of(self.transform)}, {self.stage}, {self.law.name}"


def questions(tiers: Sequence[Tier] = TIERS, names: Sequence[str] = (), laws: Sequence[str] = ()) -> Iterator[Question]:
    """Iterate over all that can be asked.

    Args:
        tiers: where the programs come from.
        names: of transformations; empty for all.
        laws: names of laws; empty for all.

    >>> {question.law.name for question in questions(["toy"], ["outline"], ["meaning"])}
    {'meaning'}
    """
    for tier in tiers:
        for entry in REGISTRY:
            if names and entry.transformation.name not in names:
                continue
            stages: list[Stage] = [stage for stage in stages_of(tier) if stage in entry.stages]
            asked = [law for law in _laws(entry, tier) if not laws or law.name in laws]
            yield from (Question(tier, entry.transformation, stage, law) for stage in stages for law in asked)


def pair_questions(names: Sequence[str] = (), laws: Sequence[str] = ()) -> Iterator[Question]:
    """Iterate over what can be asked of pairs of transformations, on programs of integers.

    A law of a pair names its transformations itself, so what it is asked of leaves the program as it is.

    Args:
        names: of transformations that a pair is about; empty for all.
        laws: names of laws; empty for all.

    >>> {question.tier for question in pair_questions(["outline"])}
    {'toy'}
    """
    for pair in PAIRS:
        if (not names or set(names) & set(pair.transformations)) and (not laws or pair.name in laws):
            yield from (Question("toy", both, stage, Law(pair.name, pair.statement, _asked(pair))) for stage in pair.stages)


def both(program: Program) -> Program:
    """Return the program: both sides of a law of pairs are made of it by the law.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> both(program) is program
    True
    """
    return program


def _asked(pair: PairLaw) -> Callable[[Transform, Case], list[str]]:
    return lambda _, case: pair.check(case)


def _laws(entry: Entry, tier: Tier) -> tuple[Law, ...]:
    # Integers have no gradients, and no fake values.
    return entry.laws if tier == "toy" else (*entry.laws, GRADIENTS, SAID)
