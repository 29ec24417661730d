"""How much the laws were asked: counted while the tests of laws run, and said at the end of the session.

A case is one law asked of one program; programs are counted as they were drawn, equal ones once, whatever
stages were made of them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from purefx.ir.analysis.digest import digest
from purefx.laws.strategies import Stage
from purefx.laws.tiers import TIERS, Tier, drawn_cases


class Tally:
    """Cases, programs and seconds for each tier."""

    def __init__(self) -> None:
        self.cases: Counter[Tier] = Counter()
        self.programs: defaultdict[Tier, set[str]] = defaultdict(set)
        self.seconds: Counter[Tier] = Counter()

    @contextmanager
    def of(
        self, tier: Tier, stage: Stage, examples: int, number: int, *, laws: int = 1, asked: int | None = None
    ) -> Generator[None]:
        """Count the cases that are asked inside the block: all that are drawn, or the first of them."""
        begun = time.perf_counter()
        yield
        self.seconds[tier] += time.perf_counter() - begun
        source: Stage = "tree" if stage == "tree" else "flat"
        self.cases[tier] += laws * len(drawn_cases(tier, stage, examples, number)[:asked])
        self.programs[tier].update(digest(case.program) for case in drawn_cases(tier, source, examples, number)[:asked])

    def __str__(self) -> str:
        return "; ".join(
            f"{tier} {self.cases[tier]:,} cases on {len(self.programs[tier]):,} programs in {self.seconds[tier]:.0f} s"
            for tier in TIERS
            if self.cases[tier]
        )


TALLY = Tally()


@pytest.fixture
def tally() -> Tally:
    """Return what counts for the whole session."""
    return TALLY


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker counted to the process that started it, where ``tests/conftest.py`` says it."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["laws"] = [(tier, TALLY.cases[tier], sorted(TALLY.programs[tier]), TALLY.seconds[tier]) for tier in TIERS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was asked."""
    if any(TALLY.cases.values()):
        terminalreporter.write_line(f"laws: {TALLY}")
