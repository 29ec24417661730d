"""``check_fx_pass``: test passes over fx graphs against laws, on generated programs within the contract of the pass.

``contract`` lists assumptions and claims of a pass, ``judge`` calls it and has the laws, ``checking`` tests.  Needs the extra
``laws``.
"""

from __future__ import annotations

from .checking import Finding, PassReport, check_fx_pass, survey_pass
from .contract import ANYTHING, FUNCTIONAL, INFERENCE, POINTWISE, Contract

__all__ = [
    "ANYTHING", "FUNCTIONAL", "INFERENCE", "POINTWISE", "Contract", "Finding", "PassReport", "check_fx_pass",
    "survey_pass",
]  # fmt: skip
