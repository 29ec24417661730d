"""``Progress``: how far a long search is, in one line that is written over.

One idea: on a terminal the line is renewed a few times a second; elsewhere, in the log of a night, a line a minute is
written.  It knows nothing of laws.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["Progress"]


class Progress:
    r"""Counts cases and time for each tier, and says so.

    Args:
        stream: where it says so.
        seconds: how long the search may take.

    >>> import io
    >>> stream = io.StringIO()
    >>> Progress(stream, 60).summary()
    >>> stream.getvalue()
    '0:00 of 1:00, 0 rounds, 0 failures\n'
    """

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
