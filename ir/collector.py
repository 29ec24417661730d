"""``collector_paused``: no garbage collection while many live values are made.

One idea: what import, verify, our own transformations and lowering make is alive while they run, so a collection in between
walks all of it and frees none (100,000 nodes: half of the time of outlining).  The state that was found is put back, also
after an error.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

__all__ = ["collector_paused"]


class _Pauses:
    """How many blocks pause the collector now, in all threads: it is one for the whole process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.was_running = False

    def begin(self) -> None:
        with self.lock:
            if self.count == 0:
                self.was_running = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.was_running:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the garbage collector, if it is running, until the end of the block; of the last one where threads overlap.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
