"""Run a joint program as a module whose backward pass is the backward of the program."""

from __future__ import annotations

from .module import TrainingModule, training_module

__all__ = ["TrainingModule", "training_module"]
