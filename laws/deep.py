"""``python -m purefx.laws.deep``: ask all laws of ever new programs, for as long as told.

One idea: a round draws a few programs of each tier with one seed and asks every law of every transformation and pair, so an
hour finds what a minute finds, and more of it.  What is broken is told at once, with the smallest program and how to see
it again, and the search goes on; it changes nothing and keeps nothing.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from .asking import LawBroken, assert_law, name_of, refuses
from .progress import Progress
from .questions import Question, both, pair_questions, questions
from .registry import REGISTRY
from .smallest import smallest
from .tiers import TIERS, Tier, drawn_cases, forget

__all__ = ["Deep", "main"]

AT_ONCE: dict[Tier, int] = {"toy": 25, "aten": 10, "modules": 3}
"""Programs of a tier in a round: about ten seconds of each."""


class Deep:
    """A search that goes on until its time or its rounds are over.

    Args:
        asked: the questions of each round.
        stream: where progress and findings are written.
        seconds: how long it goes on; the round at hand is left in the middle.
        rounds: how many; None for as many as there is time for.

    >>> import io
    >>> search = Deep(questions(["toy"], ["outline"], ["valid"]), io.StringIO(), seconds=60, rounds=1)
    >>> search.run(7), search.progress.cases["toy"] > 40
    (0, True)
    """

    def __init__(self, asked: Iterator[Question], stream: TextIO, *, seconds: float, rounds: int | None = None) -> None:
        self.asked = tuple(asked)
        self.stream = stream
        self.rounds = rounds
        self.progress = Progress(stream, seconds)
        self.known: set[Question] = set()
        """What was found broken; it is not asked again."""

    def run(self, seed: int) -> int:
        """Search, starting from a seed; return how many questions had a wrong answer."""
        try:
            self._rounds(seed)
        except KeyboardInterrupt:
            self.progress.line("stopped")
        self.progress.summary()
        return len(self.known)

    def _rounds(self, seed: int) -> None:
        number = seed
        while not self.progress.is_over and (self.rounds is None or number < seed + self.rounds):
            self.progress.begin(number)
            for question in self.asked:
                if question not in self.known:
                    self._ask(question, number)
                if self.progress.is_over:
                    break
            # Programs of one round are of no use to the next.
            forget()
            number += 1

    def _ask(self, question: Question, seed: int) -> None:
        tier, stage, examples = question.tier, question.stage, AT_ONCE[question.tier]
        with self.progress.asking(tier):
            drawn = drawn_cases(tier, stage, examples, seed)
            cases = [case for case in drawn if not refuses(question.transform, case)]
            for number, case in enumerate(cases, 1):
                try:
                    assert_law(question.transform, question.law, case)
                except LawBroken as error:
                    self.progress.cases[tier] += number
                    self._tell(question, seed, error)
                    return
            self.progress.cases[tier] += len(cases)

    def _tell(self, question: Question, seed: int, error: LawBroken) -> None:
        self.known.add(question)
        self.progress.failures += 1
        tier, stage, transform, law = question.tier, question.stage, question.transform, question.law
        shown = smallest(transform, law, tier=tier, stage=stage, examples=AT_ONCE[tier], number=seed) or error
        chosen = "" if transform is both else f" --transformation {name_of(transform)}"
        again = f"--seed {seed} --rounds 1 --tier {tier}{chosen} --law {law.name!r}"
        self.progress.line(f"\n{self.progress.failures}. {question}, tier {tier}")
        self.progress.line(f"{shown}\nagain: python -m purefx.laws.deep {again}\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m purefx.laws.deep", description="Ask the laws of purefx of ever new programs.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--rounds", type=int, help="stop after so many rounds, each with programs of its own")
    parser.add_argument("--seed", type=int, help="of the first round; by default another one each time")
    parser.add_argument("--tier", action="append", choices=TIERS, help="only this tier; may be given several times")
    names = [entry.transformation.name for entry in REGISTRY]
    parser.add_argument("--transformation", action="append", choices=names, help="only this one; may be given several times")
    laws = sorted({question.law.name for question in (*questions(), *pair_questions())})
    parser.add_argument("--law", action="append", choices=laws, help="only this law; may be given several times")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, stream: TextIO = sys.stderr) -> int:
    """Search as the command line says; return 1 when a law is broken.

    Args:
        arguments: of the command line.
        stream: where progress and findings are written.

    >>> import io
    >>> main(["--rounds", "1", "--tier", "toy", "--transformation", "outline", "--law", "valid"], io.StringIO())
    0
    """
    options = _options(arguments)
    seed: int = secrets.randbits(24) if options.seed is None else options.seed
    tiers, names, laws = options.tier or TIERS, options.transformation or (), options.law or ()
    pairs = pair_questions(names, laws) if "toy" in tiers else ()
    asked = itertools.chain(questions(tiers, names, laws), pairs)
    search = Deep(asked, stream, seconds=60 * options.minutes, rounds=options.rounds)
    return 1 if search.run(seed) else 0


if __name__ == "__main__":
    sys.exit(main())
