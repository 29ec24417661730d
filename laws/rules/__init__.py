"""``check_rule``: test rewrite rules against laws, on programs built around their patterns.  Needs the extra ``laws``.

``operands`` draws values for the variables of a pattern, ``instances`` traces the pattern on them, ``build`` builds programs
around it, ``laws`` lists the laws, ``checking`` tests them.
"""

from __future__ import annotations

from .checking import RuleReport, check_rule
from .laws import RULE_LAWS

__all__ = ["RULE_LAWS", "RuleReport", "check_rule"]
