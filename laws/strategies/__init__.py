"""Hypothesis strategies that generate programs: ``from purefx.laws.strategies import programs``.

They draw small numbers and return valid programs.  They require the extra ``laws``.
"""

from __future__ import annotations

from .exported import Exported, exported_programs
from .modules import ModuleTree, module_trees
from .programs import STAGES, Stage, legal_orders, programs, renamings

__all__ = [
    "STAGES", "Exported", "ModuleTree", "Stage", "exported_programs", "legal_orders", "module_trees", "programs", "renamings",
]  # fmt: skip
