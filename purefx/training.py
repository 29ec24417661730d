"""Training programs, as ``px.training``: capture a joint forward and backward program, and cut it into two by a policy.

    joint = px.training.capture_joint(model, (x,))
    cut = px.training.partition_joint(joint, policy=px.training.recompute("layers.*"))

``cut.forward`` and ``cut.backward`` are programs, ``cut.saved`` lists the values kept between them (docs/training.md).
"""

from __future__ import annotations

from purefx._joint import capture_joint
from purefx.ir.importing.stacks import module_calls
from purefx.lowering.training import TrainingModule
from purefx.transforms.training import (
    Candidate,
    Partition,
    Phases,
    Policy,
    Saved,
    budget,
    min_cut,
    partition_joint,
    phases,
    recompute,
    save_all,
)

__all__ = [
    "Candidate",
    "Partition",
    "Phases",
    "Policy",
    "Saved",
    "TrainingModule",
    "budget",
    "capture_joint",
    "min_cut",
    "module_calls",
    "partition_joint",
    "phases",
    "recompute",
    "save_all",
]
