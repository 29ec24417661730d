"""``check_rule``: test rewrite rules against laws, on programs built around their patterns.  Needs the extra ``laws``.

``instances`` draws values for the variables of a pattern and traces it on them, ``build`` builds programs
around it, ``checking`` has the laws and tests them.
"""

from __future__ import annotations

from .checking import RULE_LAWS, check_rule

__all__ = ["RULE_LAWS", "check_rule"]
