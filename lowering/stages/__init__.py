"""Run the parts of a split program as stages of ``torch.distributed.pipelining``."""

from __future__ import annotations

from .lower_stages import Stages, Tie, lower_stages, pipeline_stage, sum_tied_gradients

__all__ = ["Stages", "Tie", "lower_stages", "pipeline_stage", "sum_tied_gradients"]
