"""Run a joint program as a module: autograd calls the backward of the program itself."""

from __future__ import annotations

from .module import TrainingModule, training_module

__all__ = ["TrainingModule", "training_module"]
