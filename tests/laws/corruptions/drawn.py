"""Strategies of programs that are wrong in one respect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hypothesis.strategies as st

from purefx.ir.program import Program
from purefx.laws.evaluate import Meaning
from purefx.laws.strategies import Stage, programs
from purefx.laws.toy import toy_meaning
from tests.laws.corruptions import CORRUPTORS, Corruption, Corruptor

__all__ = ["corrupt", "corruptions"]


def corrupt(
    program: Program, corruptor: Corruptor, *, seed: int = 0, meaning: Callable[[Program], Meaning] = toy_meaning
) -> Corruption | None:
    """Return a program that is broken in one way, or None if that does not apply to it."""
    broken = corruptor.apply(program, seed)
    if broken is None or (corruptor.rule is None and meaning(broken) == meaning(program)):
        return None
    return Corruption(corruptor, broken, program)


def corruptions(stage: Stage = "flat", *, corruptors: Sequence[Corruptor] = CORRUPTORS) -> st.SearchStrategy[Corruption]:
    """Return a strategy of corrupted programs of toy operators, with the corruptor and the original."""

    def broken(program: Program, seed: int, first: int) -> Corruption | None:
        rows = [*corruptors[first:], *corruptors[:first]]
        return next((found for row in rows if (found := corrupt(program, row, seed=seed)) is not None), None)

    drawn = st.builds(broken, programs(stage), st.integers(0, 1 << 16), st.integers(0, len(corruptors) - 1))
    return drawn.filter(lambda found: found is not None).map(_found)


def _found(corruption: Corruption | None) -> Corruption:
    assert corruption is not None
    return corruption
