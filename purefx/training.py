"""Training programs, as ``px.training``: a joint forward and backward program cut into two, by a policy.

    joint = px.import_ep(torch.export.experimental._export_forward_backward(ep), forward=ep)
    cut = px.training.partition_joint(joint, policy=px.training.recompute("layers.*"))

``cut.forward`` and ``cut.backward`` are programs, ``cut.saved`` is what the one keeps for the other (docs/training.md).
"""

from __future__ import annotations

from purefx.transforms.training import (
    Candidate,
    Partition,
    Phases,
    Policy,
    Saved,
    by_operator,
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
    "by_operator",
    "partition_joint",
    "phases",
    "recompute",
    "save_all",
]
