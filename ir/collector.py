"""``collector_paused``: no garbage collection while many live values are made.

One idea: what import, verify, our own transformations and lowering make is alive while they run, so a collection in between
walks all of it and frees none (100,000 nodes: half of the time of outlining).  The state that was found is put back, also
after an error.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the garbage collector, if it is running, until the end of the block.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
