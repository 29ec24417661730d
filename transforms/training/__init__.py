"""Partition a joint forward and backward program into two programs.

A policy decides which values are saved and which are recomputed.
"""

from __future__ import annotations

from .candidates import Candidate
from .partition import Partition, Saved, partition_joint
from .phases import Phases, phases
from .policies import Policy, budget, min_cut, recompute, save_all

__all__ = [
    "Candidate", "Partition", "Phases", "Policy", "Saved", "budget", "min_cut", "partition_joint", "phases",
    "recompute", "save_all",
]  # fmt: skip
