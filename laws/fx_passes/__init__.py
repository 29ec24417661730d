"""``check_fx_pass``: laws for passes over fx graphs, asked of generated programs within the contract of the pass.

``contract`` says what a pass may assume, ``judge`` calls it, ``laws`` are what should hold, ``runs`` runs programs and modules,
``checking`` asks.  Needs the extra ``laws``.
"""

from __future__ import annotations

from .checking import Finding, PassReport, check_fx_pass, survey_pass
from .contract import ANYTHING, FUNCTIONAL, INFERENCE, POINTWISE, Contract

__all__ = [
    "ANYTHING", "FUNCTIONAL", "INFERENCE", "POINTWISE", "Contract", "Finding", "PassReport", "check_fx_pass",
    "survey_pass",
]  # fmt: skip
