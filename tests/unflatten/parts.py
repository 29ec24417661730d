"""What the modules of several tests of ``px.unflatten`` are made of: children with this state.

A test says what the children do and how they are called.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.programs import parent


class Linear(parent(linear=lambda: nn.Linear(3, 3), n=lambda: torch.zeros(3))):
    """What the children have in common."""
