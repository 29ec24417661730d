"""``python -m tests.laws.deep``: ask all laws of ever new programs, for as long as told.

``questions`` lists what our own transformations can be asked; progress is one line that is written over.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from attrs import frozen

from purefx.ir.program import Program
from purefx.laws.asking import LawBroken, assert_law, name_of, refuses, smallest
from purefx.laws.law import GRADIENTS, Case, Law, Transform
from purefx.laws.strategies import Stage
from purefx.laws.tiers import TIERS, Tier, attempts, drawn_cases, forget, stages_of
from purefx.laws.values import said_values
from tests.laws.pairs import PAIRS, PairLaw
from tests.laws.registry import REGISTRY, Entry

__all__ = ["Deep", "Progress", "Question", "main", "pair_questions", "questions"]


class Progress:
    """Counts cases and time for each tier, and says so."""

    def __init__(self, stream: TextIO, seconds: float) -> None:
        self.stream = stream
        self.seconds = seconds
        self.begun = self.told = time.monotonic()
        self.cases: Counter[str] = Counter()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.failures = 0
        self.rounds = 0
        self.seed = 0
        self.renews = stream.isatty()
        self.width = 0

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() - self.begun >= self.seconds

    def begin(self, seed: int) -> None:
        """Begin a round."""
        self.rounds += 1
        self.seed = seed

    @contextmanager
    def asking(self, tier: str) -> Generator[None]:
        """Count the time of the block for a tier, and say how far the search is."""
        begun = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self.spent[tier] += now - begun
            if now - self.told > (0.2 if self.renews else 60):
                self.told = now
                self._renew()

    def line(self, text: str) -> None:
        """Write text that stays."""
        self._clear()
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def summary(self) -> None:
        """Write how it ended."""
        self.line(f"{self._counts()}, {self.rounds} round{'s' * (self.rounds != 1)}, {self._failed()}")

    def _renew(self) -> None:
        text = f"{self._counts()}, seed {self.seed}, {self._failed()}"
        if not self.renews:
            self.line(text)
            return
        self._clear()
        self.width = len(text)
        self.stream.write(text)
        self.stream.flush()

    def _clear(self) -> None:
        if self.width:
            self.stream.write(f"\r{' ' * self.width}\r")
            self.width = 0

    def _failed(self) -> str:
        return f"{self.failures} failure{'s' * (self.failures != 1)}"

    def _counts(self) -> str:
        elapsed = time.monotonic() - self.begun
        tiers = [f"{tier} {count:,} cases ({count / self.spent[tier]:,.0f}/s)" for tier, count in self.cases.items()]
        return " | ".join([f"{_clock(elapsed)} of {_clock(self.seconds)}", *tiers])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


@frozen
class Question:
    """A law of a transformation, at one stage of one tier."""

    tier: Tier
    transform: Transform
    stage: Stage
    law: Law

    def __str__(self) -> str:
        return f"{name_of(self.transform)}, {self.stage}, {self.law.name}"


def questions(tiers: Sequence[Tier] = TIERS, names: Sequence[str] = (), laws: Sequence[str] = ()) -> Iterator[Question]:
    """Iterate over all that can be asked."""
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
    """
    for pair in PAIRS:
        if (not names or set(names) & set(pair.transformations)) and (not laws or pair.name in laws):
            yield from (Question("toy", both, stage, Law(pair.name, pair.statement, _asked(pair))) for stage in pair.stages)


def both(program: Program) -> Program:
    """Return the program: both sides of a law of pairs are made of it by the law."""
    return program


def _asked(pair: PairLaw) -> Callable[[Transform, Case], list[str]]:
    return lambda _, case: pair.check(case)


def _laws(entry: Entry, tier: Tier) -> tuple[Law, ...]:
    # Integers have no gradients, and no fake values.
    return entry.laws if tier == "toy" else (*entry.laws, *entry.aimed((GRADIENTS, said_values)))


AT_ONCE: dict[Tier, int] = {"toy": 25, "aten": 10, "modules": 3}
"""Programs of a tier in a round: about ten seconds of each."""


class Deep:
    """A search that goes on until its time or its rounds are over."""

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
        shown = smallest(transform, law, attempts(tier, stage), examples=AT_ONCE[tier], number=seed) or error
        chosen = "" if transform is both else f" --transformation {name_of(transform)}"
        again = f"--seed {seed} --rounds 1 --tier {tier}{chosen} --law {law.name!r}"
        self.progress.line(f"\n{self.progress.failures}. {question}, tier {tier}")
        self.progress.line(f"{shown}\nagain: python -m tests.laws.deep {again}\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.laws.deep", description="Ask the laws of purefx of ever new programs.")
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
    """Search as the command line says; return 1 when a law is broken."""
    options = _options(arguments)
    seed: int = secrets.randbits(24) if options.seed is None else options.seed
    tiers, names, laws = options.tier or TIERS, options.transformation or (), options.law or ()
    pairs = pair_questions(names, laws) if "toy" in tiers else ()
    asked = itertools.chain(questions(tiers, names, laws), pairs)
    search = Deep(asked, stream, seconds=60 * options.minutes, rounds=options.rounds)
    return 1 if search.run(seed) else 0


if __name__ == "__main__":
    sys.exit(main())
