"""Timing and memory: alternate the candidates, take medians; count what Python keeps.

Candidates run alternately (A B A B ...), so a machine that slows down slows all of them.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

__all__ = ["alternate", "exponent", "kept"]

PATIENCE = 6.0
"""Seconds after which a candidate is not run once more."""


def alternate(
    candidates: Mapping[str, Callable[..., Any]],
    *,
    rounds: int,
    calls: int = 1,
    fresh: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the median wall-clock seconds of one call of each candidate; NaN for one that raises.

    Args:
        candidates: what to run, by name; what they print is thrown away.
        rounds: how many times each is run, after one round that is not counted; one that took long is run less often.
        calls: how many calls in a row are timed as one.
        fresh: for a candidate that changes what it is given, what makes that; this is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, run in candidates.items():
            if not sum(seconds[name]) <= PATIENCE:
                continue  # slow, or it raised
            elapsed = _timed(partial(run, fresh[name]()) if name in fresh else run, calls)
            if number == 1:
                seconds[name].clear()
            seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _timed(run: Callable[[], Any], calls: int) -> float:
    gc.collect()
    result: Any = None
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.perf_counter()
        try:
            for _ in range(calls):
                result = run()
        except RecursionError:
            return math.nan
        elapsed = time.perf_counter() - start
    del result
    return elapsed / calls


def kept(make: Callable[[], Any]) -> tuple[Any, int, int]:
    """Return what a function makes, the bytes of Python objects that this keeps, and those at the peak."""
    make()
    gc.collect()
    tracemalloc.start()
    with contextlib.redirect_stdout(io.StringIO()):
        made = make()
    gc.collect()
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, now, peak


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of time against size in log-log terms: 1 is linear.

    >>> round(exponent([10, 100, 1000], [1.0, 10.0, 100.0]), 3)
    1.0
    """
    xs, ys = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum(
        (a - x) ** 2 for a in xs
    )
