"""Partition a joint forward and backward program into two programs.

A policy decides which values are saved and which are computed again; ``split_backward`` cuts the backward once more.
"""

from __future__ import annotations

from .candidates import Candidate
from .min_cut import budget, min_cut
from .partition import Partition, Saved, partition_joint
from .phases import Phases, phases
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
    "recompute",
    "save_all",
    "split_backward",
]
