"""``examples_of``: what a strategy draws, the same whenever it is asked, in short runs of hypothesis with seeds of their own.

After the first ten of a run hypothesis follows each example with mutated copies, which helps a search and makes the hundreds of
one long run much alike: what the first ones lack, nearly all lack.  Nothing is checked or made smaller here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import SearchStrategy

__all__ = ["RUN", "draw_settings", "examples_of", "runs_of", "same_everywhere"]

Drawn = TypeVar("Drawn")

RUN = 12
"""How many examples one run of hypothesis draws."""

APART = 100_003
"""How far apart the seeds of the runs of one number are; numbers are small."""


def runs_of(count: int, number: int, *, longest: int = RUN) -> Iterator[tuple[int, int]]:
    """Iterate over the runs that draw some examples: the seed of each, and how many it draws.

    Args:
        count: how many examples there are in all.
        number: the seed of the first run.
        longest: how many one run draws.

    >>> list(runs_of(30, 3))
    [(3, 12), (100006, 12), (200009, 6)]
    """
    for start in range(0, count, longest):
        yield number + start // longest * APART, min(longest, count - start)


def examples_of(strategy: SearchStrategy[Drawn], count: int, number: int, *, longest: int = RUN) -> list[Drawn]:
    """Return examples of a strategy, the same ones whenever it is asked.

    Args:
        strategy: what they are drawn from.
        count: how many; there are less where hypothesis finds no more.
        number: another number draws others.
        longest: how many one run of hypothesis draws.

    >>> from hypothesis import strategies as st
    >>> examples_of(st.just(1), 3, 0)
    [1]
    >>> examples_of(st.integers(), 40, 0) == examples_of(st.integers(), 40, 0)
    True
    """
    found: list[Drawn] = []
    for start, size in runs_of(count, number, longest=longest):

        @seed(start)
        @draw_settings(size, Phase.generate)
        @given(strategy)
        def keep(drawn: Drawn) -> None:
            found.append(drawn)

        with same_everywhere():
            keep()
    return found


@contextmanager
def same_everywhere() -> Generator[None]:
    """Draw the same from one seed whatever modules the process has.

    Hypothesis collects the literals of the user's modules and draws them too, so a literal of a script changes what is drawn.

    >>> with same_everywhere():
    ...     providers.HypothesisProvider._local_constants.integers
    set()
    """
    module: Any = providers
    cache = type(module.CONSTANTS_CACHE)(1024)
    with (
        patch.object(module.HypothesisProvider, "_local_constants", module.Constants()),
        patch.object(module, "CONSTANTS_CACHE", cache),
    ):
        yield


def draw_settings(examples: int, *phases: Phase) -> settings:
    """Return the settings under which cases are drawn: nothing is kept on disk, and no program is too slow.

    Args:
        examples: how many are drawn.
        phases: of hypothesis.

    >>> draw_settings(3, Phase.generate).max_examples
    3
    """
    return settings(
        max_examples=examples,
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
            HealthCheck.large_base_example,
        ],
        phases=phases,
        report_multiple_bugs=False,
        print_blob=False,
    )
