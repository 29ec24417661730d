"""``python -m tests.laws.deep``: ask all laws of ever new programs, for as long as told.

``questions`` lists what our own transformations can be asked.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO, cast

from attrs import frozen

from purefx.laws.asking import LawBroken, name_of
from purefx.laws.checking import (
    FewChanges,
    NothingChecked,
    Report,
    WrongQuestion,
    check_transformation,
)
from purefx.laws.law import GRADIENTS, Law, Transform
from purefx.laws.strategies import Stage
from purefx.laws.tiers import TIERS, Tier, forget, stages_of
from purefx.laws.values import recorded_values
from tests.laws.registry import REGISTRY, Entry


@frozen
class Question:
    """A law of a transformation, at one stage of one tier."""

    tier: Tier
    transform: Transform
    stage: Stage
    law: Law

    def __str__(self) -> str:
        return f"{name_of(self.transform)}, {self.stage}, {self.law.name}"


def questions(
    tiers: Sequence[Tier] = TIERS, names: Sequence[str] = (), laws: Sequence[str] = ()
) -> Iterator[Question]:
    """Iterate over all that can be asked."""
    for tier in tiers:
        for entry in REGISTRY:
            if names and entry.transformation.name not in names:
                continue
            stages: list[Stage] = [stage for stage in stages_of(tier) if stage in entry.stages]
            asked = [law for law in _laws(entry, tier) if not laws or law.name in laws]
            yield from (
                Question(tier, entry.transformation, stage, law)
                for stage in stages
                for law in asked
            )


def ask_laws(transform: Transform, **options: Any) -> Report:
    """Do the same as ``check_transformation``, also where little or nothing is changed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewChanges)
        try:
            return check_transformation(transform, **options)
        except NothingChecked as unchanged:
            return cast("Report", unchanged.report)


def _laws(entry: Entry, tier: Tier) -> tuple[Law, ...]:
    # Integers have no gradients, and no fake values.
    return (
        entry.laws if tier == "toy" else (*entry.laws, *entry.aimed((GRADIENTS, recorded_values)))
    )


AT_ONCE: dict[Tier, int] = {"toy": 25, "aten": 10, "modules": 3}
"""Programs of a tier in a round: about ten seconds of each."""


def search(
    asked: Sequence[Question],
    stream: TextIO,
    *,
    seed: int,
    seconds: float,
    rounds: int | None = None,
) -> int:
    """Ask all questions of ever new programs until the time or the rounds are over; return how many laws are broken."""
    until, known, cases, number = time.monotonic() + seconds, set[Question](), 0, seed
    while time.monotonic() < until and (rounds is None or number < seed + rounds):
        for question in asked:
            if question in known or time.monotonic() > until:
                continue
            options = {"laws": [question.law], "stage": question.stage, "tier": question.tier}
            try:
                report = ask_laws(
                    question.transform, **options, examples=AT_ONCE[question.tier], seed=number
                )
                cases += report.drawn
            except WrongQuestion:
                continue  # most programs are refused
            except LawBroken as error:
                known.add(question)
                print(_shown(question, number, error), file=stream, flush=True)
        forget()  # programs of one round are of no use to the next
        number += 1
        print(
            f"{cases:,} cases, {number - seed} rounds, {len(known)} failures",
            file=stream,
            flush=True,
        )
    return len(known)


def _shown(question: Question, seed: int, error: LawBroken) -> str:
    chosen = f"--tier {question.tier} --transformation {name_of(question.transform)} --law {question.law.name!r}"
    again = f"python -m tests.laws.deep --seed {seed} --rounds 1 {chosen}"
    return f"\n{question}, tier {question.tier}\n{error}\nagain: {again}\n"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.laws.deep", description="Ask the laws of purefx of ever new programs."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument(
        "--rounds", type=int, help="stop after so many rounds, each with programs of its own"
    )
    parser.add_argument(
        "--seed", type=int, help="of the first round; by default another one each time"
    )
    parser.add_argument(
        "--tier", action="append", choices=TIERS, help="only this tier; may be given several times"
    )
    names = [entry.transformation.name for entry in REGISTRY]
    parser.add_argument(
        "--transformation",
        action="append",
        choices=names,
        help="only this one; may be given several times",
    )
    laws = sorted({question.law.name for question in questions()})
    parser.add_argument(
        "--law", action="append", choices=laws, help="only this law; may be given several times"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, stream: TextIO = sys.stderr) -> int:
    """Search as the command line says; return 1 when a law is broken."""
    options = _options(arguments)
    seed: int = secrets.randbits(24) if options.seed is None else options.seed
    tiers, names, laws = options.tier or TIERS, options.transformation or (), options.law or ()
    return (
        1
        if search(
            [*questions(tiers, names, laws)],
            stream,
            seed=seed,
            seconds=60 * options.minutes,
            rounds=options.rounds,
        )
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
