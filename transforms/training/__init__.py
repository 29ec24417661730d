"""Joint forward and backward programs: which node is of which half, and how to cut one into two programs.

``phases`` says the first; ``partition_joint`` does the second, with a policy of ``policies``.  ``candidates`` has what a policy
chooses among, ``crossing`` what crosses then, ``halves`` the two programs; ``operators`` and ``sizes`` say what values cost.
``snapshots`` copies what a write would take from the backward, ``flow`` finds the cuts of ``min_cut``, ``picture`` draws a
partition.  ``split_backward`` cuts a backward once more.
"""

from __future__ import annotations

from .candidates import Candidate
from .min_cut import budget, min_cut
from .partition import Partition, Saved, partition_joint
from .phases import Phases, phases
from .picture import picture
from .policies import Policy, by_operator, recompute, save_all
from .split_backward import SplitBackward, split_backward

__all__ = [
    "Candidate",
    "Partition",
    "Phases",
    "Policy",
    "Saved",
    "SplitBackward",
    "budget",
    "by_operator",
    "min_cut",
    "partition_joint",
    "phases",
    "picture",
    "recompute",
    "save_all",
    "split_backward",
]
