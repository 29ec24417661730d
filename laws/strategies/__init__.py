"""Hypothesis strategies that generate programs: ``from purefx.laws.strategies import programs``.

They draw small numbers and return valid programs.  They require the extra ``laws``.
"""

from __future__ import annotations

from .exported import Exported, exported_programs
from .modules import ModuleTree, module_trees
from .programs import STAGES, Stage, programs

__all__ = [
    "STAGES",
    "Exported",
    "ModuleTree",
    "Stage",
    "exported_programs",
    "module_trees",
    "programs",
]
