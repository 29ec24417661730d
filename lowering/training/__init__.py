"""Training modules: a joint program as a module that autograd differentiates by the program's own backward.

``seed`` gives a loss a tangent, ``explicit`` makes functions of tensors of programs, ``boxed`` runs those and frees what they are
given, ``backward`` and ``halves`` say what a call computes, ``step`` is the node of autograd, ``module`` the module.
"""

from __future__ import annotations

from .module import TrainingModule, training_module

__all__ = ["TrainingModule", "training_module"]
