"""``smallest``: the smallest case on which a law is broken.

One idea: the programs are drawn again with the same numbers, and hypothesis drops what it can from the first that
fails, calls before nodes.  Time is bounded: whatever was smallest when it is up is what is shown.
"""

from __future__ import annotations

import time
from contextlib import suppress

from attrs import evolve
from hypothesis import Phase, given, seed

from .asking import LawBroken, assert_law, refuses
from .contents import EXACT, Tolerance
from .law import Law, Transform
from .strategies import Stage
from .tiers import Source, Tier, case_of, draw_settings, sources

__all__ = ["smallest"]

SECONDS = 30.0
"""For real programs, each of which is exported anew while it gets smaller; programs of integers take one or two."""


class _TimeIsUp(KeyboardInterrupt):
    """Passes through hypothesis, which keeps other errors for later."""


def smallest(
    transform: Transform,
    law: Law,
    *,
    tier: Tier,
    stage: Stage,
    examples: int,
    number: int,
    seconds: float = SECONDS,
    tolerance: Tolerance = EXACT,
) -> LawBroken | None:
    """Return what is said about the smallest case found; None where none of the drawn ones breaks the law.

    Args:
        transform: the function from programs to programs.
        law: what does not hold.
        tier: where the cases come from.
        stage: of the programs.
        examples: how many are drawn to find a first one.
        number: draws the same cases again as ``drawn_cases`` did.
        seconds: how long to look for smaller ones after the first.
        tolerance: how far floating point numbers may be apart.

    >>> from .law import GENERIC
    >>> smallest(lambda program: program, GENERIC[0], tier="toy", stage="flat", examples=5, number=0) is None
    True
    """
    broken: list[LawBroken] = []
    until: list[float] = []

    @seed(number)
    @draw_settings(examples, Phase.generate, Phase.shrink)
    @given(sources(tier, stage))
    def holds(source: Source) -> None:
        if until and time.monotonic() > until[0]:
            raise _TimeIsUp
        case = case_of(source, tier=tier, stage=stage)
        if case is None or refuses(transform, case):
            return
        try:
            assert_law(transform, law, evolve(case, tolerance=tolerance))
        except LawBroken as error:
            until.append(time.monotonic() + seconds)
            broken.append(error)
            raise

    # The errors of hypothesis say where a test failed; ours say what the program is.
    with suppress(LawBroken, _TimeIsUp):
        holds()
    return min(broken, key=_size, default=None)


def _size(error: LawBroken) -> tuple[int, int]:
    program = error.case.program if error.case else None
    return (sum(1 for _ in program.nodes()), len(str(program))) if program else (0, 0)
