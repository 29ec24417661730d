"""``cases_narrow`` and ``cases_of_strategy``: drawn programs for passes over fx graphs.

They are remembered while one pass after the other is asked.  What a pass looks for is not asked here (``around.py``).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import hypothesis.strategies as st

from ...ir.importing import import_ep
from ..draws import examples_of
from ..law import Case
from ..strategies.aten import exported_programs
from ..strategies.aten.narrow import Narrow
from ..tiers import VARIANTS, Source, case_of

__all__ = ["cases_narrow", "cases_of_strategy", "within"]


@cache
def within(narrow: Narrow) -> st.SearchStrategy[Case | None]:
    """Return the strategy of cases of real operators.

    Args:
        narrow: what programs do not have.
    """
    return st.builds(partial(_case_of), exported_programs(narrow), VARIANTS)


def _case_of(made: Any, variant: int) -> Case | None:
    return case_of(Source(import_ep(made.ep), variant, made.calls), tier="aten", stage="flat")


@cache
def cases_narrow(narrow: Narrow, examples: int, number: int) -> tuple[Case, ...]:
    """Return drawn cases of real operators, the same ones whenever it is asked.

    Args:
        narrow: what programs do not have.
        examples: how many are drawn.
        number: draws others.

    >>> cases_narrow(Narrow(), 2, 0) is cases_narrow(Narrow(), 2, 0)
    True
    """
    return cases_of_strategy(within(narrow), examples, number)


def cases_of_strategy(made: st.SearchStrategy[Case | None], examples: int, number: int) -> tuple[Case, ...]:
    """Return the cases that a strategy draws.

    Args:
        made: gives None for what is no case.
        examples: how many are drawn.
        number: draws others.
    """
    return tuple(case for case in examples_of(made, examples, number) if case is not None)
