"""Stages: the parts of a split program as modules that run on ``torch.distributed.pipelining``.

``refusals.py`` says what can not be, ``cutting.py`` makes a program of each part, ``lower_stages.py`` lowers them,
``boundaries.py`` knows what crosses, ``pipeline_stage.py`` hands a stage to torch, ``ties.py`` sums gradients of copies.
"""

from __future__ import annotations

from .lower_stages import Stages, Tie, lower_stages
from .pipeline_stage import pipeline_stage
from .ties import sum_tied_gradients

__all__ = ["Stages", "Tie", "lower_stages", "pipeline_stage", "sum_tied_gradients"]
