"""``check_fx_pass``: laws for passes over fx graphs, asked of generated programs within the contract of the pass.

``contract`` says what a pass may assume, ``judge`` calls it, ``laws`` are what should hold, ``runs`` runs programs and modules,
``checking`` asks, ``hunting`` goes on asking.  Needs the extra ``laws``.
"""

from __future__ import annotations

from .checking import Finding, PassReport, check_fx_pass, survey_pass
from .contract import ANYTHING, FUNCTIONAL, INFERENCE, POINTWISE, Contract
from .hunting import Hunt, hunt, texts

__all__ = [
    "ANYTHING", "FUNCTIONAL", "INFERENCE", "POINTWISE", "Contract", "Finding", "Hunt", "PassReport", "check_fx_pass", "hunt",
    "survey_pass", "texts",
]  # fmt: skip
