"""``CORRUPTORS``: one way or more to break each invariant of a program, each with who must refuse the result.

A checker is judged by what it refuses.  The table has a corruptor for every rule of ``verify``, and those that
no rule can see.  ``purefx.laws.strategies.programs`` draws from it; nothing here needs hypothesis.
"""

from __future__ import annotations

from tests.laws.corruptions.calls import IN_CALLS
from tests.laws.corruptions.contract import IN_CONTRACT
from tests.laws.corruptions.corruptor import MEANING, Corruption, Corruptor
from tests.laws.corruptions.state import IN_STATE
from tests.laws.corruptions.values import IN_NODES, UNSEEN

__all__ = ["CORRUPTORS", "MEANING", "Corruption", "Corruptor"]

CORRUPTORS: tuple[Corruptor, ...] = (*IN_NODES, *IN_CALLS, *IN_CONTRACT, *IN_STATE, *UNSEEN)
"""All corruptors: of nodes, of calls, of the contract, of state, and those that give another valid program."""
