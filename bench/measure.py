"""Timing: alternate the candidates, take medians, report ratios.

One idea: candidates are run in turn (A B A B ...), so a machine that slows down slows all of them.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["alternate", "exponent"]


def alternate(candidates: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """Return the median wall-clock seconds of each candidate.

    Args:
        candidates: what to run, by name.
        rounds: how many times each is run, after one round that is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, run in candidates.items():
            gc.collect()
            start = time.perf_counter()
            result = run()
            elapsed = time.perf_counter() - start
            del result
            if number:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of time against size in log-log terms: 1 is linear.

    >>> round(exponent([10, 100, 1000], [1.0, 10.0, 100.0]), 3)
    1.0
    """
    xs, ys = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
