"""Stages: the parts of a split program as modules that run on ``torch.distributed.pipelining``.

``plan.py`` finds the boundary values and refuses what cannot run, ``cutting.py`` makes a program of each part,
``lower_stages.py`` lowers them, passes them to torch and sums the gradients of copies.
"""

from __future__ import annotations

from .lower_stages import Stages, Tie, lower_stages, pipeline_stage, sum_tied_gradients

__all__ = ["Stages", "Tie", "lower_stages", "pipeline_stage", "sum_tied_gradients"]
